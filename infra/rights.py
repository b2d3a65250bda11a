"""What a role may do with a deployment's objects and catalog, one function for each right.

Every statement names one bucket, table or state machine, and one prefix. Deleting is a right of its
own, for the workflows that collect garbage and delete streams (docs/workflows.md) and nobody else;
deleting versions is one more, for the workflow that erases. Rights to the jobs' tables are in
`table_rights.py`.
"""

from __future__ import annotations

from aws_cdk import Stack
from aws_cdk import aws_dynamodb as dynamodb
from aws_cdk import aws_iam as iam
from aws_cdk import aws_s3 as s3
from constructs import IConstruct

from coldstream.names import (
    FRAGMENT_SUFFIX,
    HOLE_SUFFIX,
    heartbeat_partition,
    offsets_partitions,
    words_partition,
)
from infra.arns import executions_arn, machine_arn


def service_of_this_account(scope: IConstruct, name: str) -> iam.ServicePrincipal:
    """A service that may assume a role, on behalf of this account and no other."""
    return iam.ServicePrincipal(
        name, conditions={"StringEquals": {"aws:SourceAccount": Stack.of(scope).account}}
    )


def read_objects(*, bucket: s3.IBucket, prefix: str) -> iam.PolicyStatement:
    """GET and HEAD of fragments and manifest nodes."""
    return iam.PolicyStatement(
        sid="ReadObjects",
        actions=["s3:GetObject"],
        resources=[_objects(bucket, prefix, "data"), _objects(bucket, prefix, "metadata")],
    )


def read_metadata(*, bucket: s3.IBucket, prefix: str) -> iam.PolicyStatement:
    """GET and HEAD of manifest nodes."""
    return iam.PolicyStatement(
        sid="ReadMetadata",
        actions=["s3:GetObject"],
        resources=[_objects(bucket, prefix, "metadata")],
    )


def write_metadata(*, bucket: s3.IBucket, prefix: str) -> iam.PolicyStatement:
    """PUT of manifest nodes. The bucket policy refuses to overwrite one."""
    return iam.PolicyStatement(
        sid="WriteMetadata",
        actions=["s3:PutObject"],
        resources=[_objects(bucket, prefix, "metadata")],
    )


def write_fragments(*, bucket: s3.IBucket, prefix: str) -> iam.PolicyStatement:
    """PUT of fragments. The bucket policy refuses to overwrite one."""
    return iam.PolicyStatement(
        sid="WriteFragments",
        actions=["s3:PutObject"],
        resources=[_objects(bucket, prefix, "data") + FRAGMENT_SUFFIX],
    )


def write_no_metadata(*, bucket: s3.IBucket, prefix: str) -> iam.PolicyStatement:
    """Refuse a PUT below `metadata/`, whatever else permits it: for agents.

    "*" also stands for "/", so that a right to `*/data/*.fragment` is one to
    `<stream>/metadata/data/x.fragment`, too. No reader takes such a key for one of ours, but many
    of them would be in the way of whoever LISTs `metadata/`.
    """
    return iam.PolicyStatement(
        sid="WriteNoMetadata",
        effect=iam.Effect.DENY,
        actions=["s3:PutObject"],
        resources=[_objects(bucket, prefix, "metadata")],
    )


def write_holes(*, bucket: s3.IBucket, prefix: str) -> iam.PolicyStatement:
    """PUT of holes: for `claim`, which first looks whether anything is lost, and operators."""
    return iam.PolicyStatement(
        sid="WriteHoles",
        actions=["s3:PutObject"],
        resources=[_objects(bucket, prefix, "data") + HOLE_SUFFIX],
    )


def compose_data(*, bucket: s3.IBucket, prefix: str) -> iam.PolicyStatement:
    """PUT of fragments, at once or in parts, and giving up an upload in parts."""
    return iam.PolicyStatement(
        sid="ComposeData",
        actions=["s3:AbortMultipartUpload", "s3:PutObject"],
        resources=[_objects(bucket, prefix, "data")],
    )


def delete_objects(*, bucket: s3.IBucket, prefix: str) -> iam.PolicyStatement:
    """DELETE of fragments and manifest nodes: for `collect` and `delete`, and nobody else."""
    return iam.PolicyStatement(
        sid="DeleteObjects",
        actions=["s3:DeleteObject"],
        resources=[_objects(bucket, prefix, "data"), _objects(bucket, prefix, "metadata")],
    )


def delete_everything(*, bucket: s3.IBucket, prefix: str) -> iam.PolicyStatement:
    """DELETE of whatever lies below the streams, also under keys that are not ours.

    For `delete`, which empties a deleted stream's prefix, and nobody else.
    """
    return iam.PolicyStatement(
        sid="DeleteObjects",
        actions=["s3:DeleteObject"],
        resources=[bucket.arn_for_objects(f"{prefix}stream/*")],
    )


def delete_versions(*, bucket: s3.IBucket, prefix: str) -> iam.PolicyStatement:
    """DELETE of versions of fragments, so that nobody can have them back: for `erase`."""
    return iam.PolicyStatement(
        sid="DeleteVersions",
        actions=["s3:DeleteObjectVersion"],
        resources=[_objects(bucket, prefix, "data")],
    )


def list_versions(*, bucket: s3.IBucket, prefix: str) -> iam.PolicyStatement:
    """LIST of versions below the prefix, also of what was deleted: for `erase`."""
    return iam.PolicyStatement(
        sid="ListVersions",
        actions=["s3:ListBucketVersions"],
        resources=[bucket.bucket_arn],
        conditions={"StringLike": {"s3:prefix": f"{prefix}stream/*"}},
    )


def list_streams(*, bucket: s3.IBucket, prefix: str) -> iam.PolicyStatement:
    """LIST below the prefix, and only there.

    A GET or HEAD of a key that does not exist carries no `s3:prefix`, so S3 answers it with 403
    instead of 404 under this right. Who needs to know whether a key exists has to LIST it.
    """
    return iam.PolicyStatement(
        sid="ListStreams",
        actions=["s3:ListBucket"],
        resources=[bucket.bucket_arn],
        conditions={"StringLike": {"s3:prefix": f"{prefix}stream/*"}},
    )


def commit_to_catalog(*, table: dynamodb.ITable, prefix: str) -> list[iam.PolicyStatement]:
    """Read an item, move that of a stream by a conditional update, and ask for the table's id.

    The id belongs to each commit: a table that was restored from a backup has another one, and
    nothing may be committed to it before `reconcile` has adopted the roots (docs/workflows.md).
    """
    return [
        iam.PolicyStatement(
            sid="CommitToCatalog",
            actions=["dynamodb:DescribeTable", "dynamodb:GetItem"],
            resources=[table.table_arn],
        ),
        _change_streams(table, prefix, "dynamodb:UpdateItem"),
    ]


def anchor_and_commit(*, table: dynamodb.ITable, prefix: str) -> list[iam.PolicyStatement]:
    """As `commit_to_catalog`, and write the first item of a stream: for `claim`."""
    read, _ = commit_to_catalog(table=table, prefix=prefix)
    return [read, _change_streams(table, prefix, "dynamodb:PutItem", "dynamodb:UpdateItem")]


def operate_catalog(*, table: dynamodb.ITable) -> iam.PolicyStatement:
    """Change items and rules: for operators, who commit, rebuild, delete, and set rules."""
    return iam.PolicyStatement(
        sid="OperateCatalog",
        actions=[
            "dynamodb:ConditionCheckItem",
            "dynamodb:PutItem",
            "dynamodb:UpdateItem",
        ],
        resources=[table.table_arn],
    )


def mark_complete(*, bucket: s3.IBucket, prefix: str) -> iam.PolicyStatement:
    """PUT of the object that says that the table lacks no stream (usecases/scan.py).

    And HEAD: of one that is there already it is asked who has written it.
    """
    return iam.PolicyStatement(
        sid="MarkComplete",
        actions=["s3:GetObject", "s3:PutObject"],
        resources=[bucket.arn_for_objects(f"{prefix}stream/.complete/metadata/*")],
    )


def scan_catalog(*, table: dynamodb.ITable) -> iam.PolicyStatement:
    """Walk through the items of all streams, and ask for the table's id."""
    return iam.PolicyStatement(
        sid="ScanCatalog",
        actions=["dynamodb:DescribeTable", "dynamodb:Query", "dynamodb:Scan"],
        resources=[table.table_arn],
    )


def change_state(*, table: dynamodb.ITable) -> iam.PolicyStatement:
    """Read an item, change its state by a conditional update, and ask for the table's id.

    Without the condition on the key that other functions have: the update is one transaction with
    a look at the rules, and AWS does not say whose keys IAM is shown then.
    """
    return iam.PolicyStatement(
        sid="ChangeState",
        actions=[
            # In one transaction with the update: that no rule has changed meanwhile.
            "dynamodb:ConditionCheckItem",
            "dynamodb:DescribeTable",
            "dynamodb:GetItem",
            "dynamodb:UpdateItem",
        ],
        resources=[table.table_arn],
    )


def read_catalog(*, table: dynamodb.ITable) -> iam.PolicyStatement:
    """Read the items of all streams, the operator's rules, and the table's id."""
    return iam.PolicyStatement(
        sid="ReadCatalog",
        actions=[
            "dynamodb:DescribeTable",
            "dynamodb:GetItem",
            "dynamodb:Query",
            "dynamodb:Scan",
        ],
        resources=[table.table_arn],
    )


def read_policies(*, table: dynamodb.ITable) -> iam.PolicyStatement:
    """Read the operator's rules, an item of their own."""
    return iam.PolicyStatement(
        sid="ReadPolicies",
        actions=["dynamodb:GetItem"],
        resources=[table.table_arn],
    )


def start_workflow(scope: IConstruct, name: str) -> list[iam.PolicyStatement]:
    """Start one state machine of this stack, and see who started an execution that is there."""
    return [
        iam.PolicyStatement(
            sid=f"Start{name.capitalize()}",
            actions=["states:StartExecution"],
            resources=[machine_arn(Stack.of(scope), name)],
        ),
        iam.PolicyStatement(
            sid=f"TellOwn{name.capitalize()}",
            actions=["states:DescribeExecution"],
            resources=[executions_arn(Stack.of(scope), name)],
        ),
    ]


def see_in_catalog(*, table: dynamodb.ITable, prefix: str) -> list[iam.PolicyStatement]:
    """What an agent does with the items of its own prefix: look at one whose stream it has.

    `ForAllValues` also holds where a request names no key at all; GetItem always names one. The
    bare prefix is the key of the operator's rules and legal holds, and "*" also stands for nothing:
    so "?*".
    """
    return [
        iam.PolicyStatement(
            sid="SeeInCatalog",
            actions=["dynamodb:GetItem"],
            resources=[table.table_arn],
            conditions={"ForAllValues:StringLike": {"dynamodb:LeadingKeys": [f"{prefix}?*"]}},
        ),
        iam.PolicyStatement(
            sid="IdentifyCatalog",
            actions=["dynamodb:DescribeTable"],
            resources=[table.table_arn],
        ),
    ]


def write_heartbeats(*, table: dynamodb.ITable, prefix: str) -> iam.PolicyStatement:
    """Say that an agent lives, and of its streams how they are, below partition keys of their own.

    PutItem always names one.
    """
    return iam.PolicyStatement(
        sid="WriteHeartbeats",
        actions=["dynamodb:PutItem"],
        resources=[table.table_arn],
        conditions={
            "ForAllValues:StringEquals": {
                "dynamodb:LeadingKeys": [heartbeat_partition(prefix), words_partition(prefix)]
            }
        },
    )


def store_offsets(*, table: dynamodb.ITable, prefix: str) -> iam.PolicyStatement:
    """Keep the offsets of consumers, below partition keys that no stream's item has.

    All three actions always name one.
    """
    return iam.PolicyStatement(
        sid="StoreOffsets",
        actions=["dynamodb:PutItem", "dynamodb:UpdateItem", "dynamodb:DeleteItem"],
        resources=[table.table_arn],
        conditions={
            "ForAllValues:StringLike": {"dynamodb:LeadingKeys": [f"{offsets_partitions(prefix)}?*"]}
        },
    )


def _change_streams(table: dynamodb.ITable, prefix: str, *actions: str) -> iam.PolicyStatement:
    """Change items of the cluster's streams: not the rules and holds, whose key is the bare prefix.

    Nor heartbeats, nor stored offsets. These actions always name a key; see `see_in_catalog`.
    """
    return iam.PolicyStatement(
        sid="ChangeStreams",
        actions=[*actions],
        resources=[table.table_arn],
        conditions={"ForAllValues:StringLike": {"dynamodb:LeadingKeys": [f"{prefix}?*"]}},
    )


def _objects(bucket: s3.IBucket, prefix: str, kind: str) -> str:
    return bucket.arn_for_objects(f"{prefix}stream/*/{kind}/*")
