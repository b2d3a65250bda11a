"""rebalance: a root that has grown long hands its oldest entries to groups."""

from __future__ import annotations

from constructs import Construct

from infra import rights
from infra.steps import SharedSteps, Site

# It writes a few small objects for one stream. Every commit that finds the root still too long asks
# for it again, so it need not try for long.
TIMEOUT_SECONDS = 3600


class Rebalance(Construct):
    """Started by `commit_runs` when a root has twice the branching factor of entries.

    Args:
        scope: where it belongs.
        id: its name there.
        site: what it is made for.
        shared: what all workflows call.

    Attributes:
        machine: the state machine.
        function: what it calls for each piece of work.
    """

    def __init__(
        self,
        scope: Construct,
        id: str,  # noqa: A002 - the CDK's own word
        *,
        site: Site,
        shared: SharedSteps,
    ) -> None:
        super().__init__(scope, id)
        bucket, table, prefix = site.bucket, site.table, site.settings.prefix
        self.function = site.step(
            self,
            "rebalance",
            statements=[
                rights.read_metadata(bucket=bucket, prefix=prefix),
                rights.write_metadata(bucket=bucket, prefix=prefix),
                rights.list_streams(bucket=bucket, prefix=prefix),
                rights.commit_to_catalog(table=table),
            ],
            kinds=("metadata",),
            description="Moves the oldest entries of a root under groups",
        )
        self.machine = shared.workflow(
            self,
            "rebalance",
            step=self.function,
            timeout_seconds=TIMEOUT_SECONDS,
            description="Moves the oldest entries of a root under groups",
        ).machine
