"""rebalance: a root that has grown long hands its oldest entries to groups."""

from __future__ import annotations

from aws_cdk import Stack
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_stepfunctions as sfn
from constructs import Construct

from infra import rights
from infra.steps import SharedSteps, Site

# It writes a few small objects for one stream. Every commit that finds the root still too long asks
# for it again, so it need not try for long.
TIMEOUT_SECONDS = 3600


def rebalance(
    stack: Stack, *, site: Site, shared: SharedSteps
) -> tuple[sfn.StateMachine, lambda_.IFunction]:
    """The state machine that `commit_runs` starts for a root of twice the branching factor.

    With the function that it calls.

    Args:
        stack: where it belongs, as "Rebalance".
        site: what it is made for.
        shared: what all workflows call.
    """
    scope = Construct(stack, "Rebalance")
    bucket, prefix = site.bucket, site.settings.prefix
    description = "Moves the oldest entries of a root under groups"
    step = site.step(
        scope,
        "rebalance",
        statements=[
            rights.read_metadata(bucket=bucket, prefix=prefix),
            rights.write_metadata(bucket=bucket, prefix=prefix),
            rights.list_streams(bucket=bucket, prefix=prefix),
            *rights.commit_to_catalog(table=site.table, prefix=prefix),
        ],
        kinds=("metadata",),
        description=description,
    )
    machine = shared.workflow(
        scope, "rebalance", step=step, timeout_seconds=TIMEOUT_SECONDS, description=description
    )
    return machine, step
