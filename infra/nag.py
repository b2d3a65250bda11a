"""How findings of cdk-nag are accepted: one by one, each with a reason. All others fail."""

from __future__ import annotations

from collections.abc import Iterable
from typing import cast

from aws_cdk import Acknowledgment, Stack, Validations
from aws_cdk import aws_s3 as s3
from constructs import IConstruct

from infra.arns import executions_arn


def accept(construct: IConstruct, rule: str, reason: str) -> None:
    """Accept one finding on `construct` and what lies below it.

    The full form of the id, with the name of the rule pack, is the only one that the CDK takes for
    findings whose own name contains "::".
    """
    Validations.of(construct).acknowledge(
        Acknowledgment(id=f"AwsSolutions::AwsSolutions-{rule}", reason=reason)
    )


def accept_arn(construct: IConstruct, arn: str, reason: str) -> None:
    """Accept a right to `arn`, which has a wildcard."""
    stack = Stack.of(construct)
    for name, value in (
        ("AWS::Partition", stack.partition),
        ("AWS::Region", stack.region),
        ("AWS::AccountId", stack.account),
    ):
        # cdk-nag writes `Ref` as <Name> in the id of a finding.
        arn = arn.replace(value, f"<{name}>")
    accept(construct, f"IAM5[Resource::{arn}]", reason)


def accept_executions(construct: IConstruct, name: str) -> None:
    """Accept a right to all executions of a state machine."""
    accept_arn(
        construct,
        executions_arn(Stack.of(construct), name),
        "All executions of one state machine: their names are made up when they start",
    )


def accept_marks(construct: IConstruct, *, bucket: s3.IBucket, prefix: str) -> None:
    """Accept a right to the marks of the scan: one key for each table there ever was."""
    logical_id = _logical_id(bucket)
    accept(
        construct,
        f"IAM5[Resource::<{logical_id}.Arn>/{prefix}stream/.complete/metadata/*]",
        "The key has a digest of the table's id, which a restore changes",
    )


def accept_keys(
    construct: IConstruct, *, bucket: s3.IBucket, prefix: str, kinds: Iterable[str]
) -> None:
    """Accept a right to all keys of some kinds, as "data" or "data/*.hole": streams come and go."""
    logical_id = _logical_id(bucket)
    for kind in kinds:
        keys = kind if "/" in kind else f"{kind}/*"
        accept(
            construct,
            f"IAM5[Resource::<{logical_id}.Arn>/{prefix}stream/*/{keys}]",
            f"All keys {keys} of every stream with this prefix: as narrow as a right can be"
            " that does not change with each stream and object",
        )


def accept_streams(construct: IConstruct, *, bucket: s3.IBucket, prefix: str) -> None:
    """Accept a right to whatever lies below the streams, for the one that empties a prefix."""
    accept(
        construct,
        f"IAM5[Resource::<{_logical_id(bucket)}.Arn>/{prefix}stream/*]",
        "A deleted stream's prefix is emptied, also of objects whose keys are not ours, and streams"
        " come and go",
    )


def _logical_id(bucket: s3.IBucket) -> str:
    """The name of a bucket of the stack in its template."""
    resource = cast("s3.CfnBucket", bucket.node.default_child)
    return str(Stack.of(bucket).resolve(resource.logical_id))
