"""erase: what still has erased messages goes for good, with all versions. A person starts it."""

from __future__ import annotations

from aws_cdk import Stack
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_stepfunctions as sfn
from constructs import Construct

from infra import rights
from infra.config import PUBLISHING_TIMEOUT_SECONDS
from infra.steps import SharedSteps, Site


def erase(
    stack: Stack, *, site: Site, shared: SharedSteps
) -> tuple[sfn.StateMachine, lambda_.IFunction]:
    """The state machine that `coldstream erase` starts, and its step: the one that deletes
    versions.

    Args:
        stack: where it belongs, as "Erase".
        site: what it is made for.
        shared: what all workflows call.
    """
    scope = Construct(stack, "Erase")
    bucket, prefix = site.bucket, site.settings.prefix
    description = "Deletes what still has erased messages, with all versions"
    step = site.step(
        scope,
        "erase",
        statements=[
            rights.read_objects(bucket=bucket, prefix=prefix),
            # A root like the one before, for S3's clock.
            rights.write_metadata(bucket=bucket, prefix=prefix),
            rights.list_streams(bucket=bucket, prefix=prefix),
            rights.list_versions(bucket=bucket, prefix=prefix),
            rights.delete_versions(bucket=bucket, prefix=prefix),
            *rights.commit_to_catalog(table=site.table, prefix=prefix),
            rights.read_policies(table=site.table),
        ],
        kinds=("data", "metadata"),
        description=description,
    )
    machine = shared.workflow(
        scope,
        "erase",
        step=step,
        # Eight passes at the most, with a settling time between two. One that is too slow for very
        # many versions is started again.
        timeout_seconds=PUBLISHING_TIMEOUT_SECONDS,
        # Whoever has written an object for a root gives up within half a grace time.
        numbers={
            "SettleSeconds": min(site.settings.step_timeout_seconds, site.settings.grace_seconds)
        },
        description=description,
    )
    return machine, step
