"""reconcile: the safety net under the events, for uploads that no manifest has yet."""

from __future__ import annotations

from constructs import Construct

from infra.commit import commit_rights
from infra.steps import SharedSteps, Site

# A batch of a hundred streams is one LIST each, and a commit for few of them.
MAX_CONCURRENCY = 10

# It starts every few minutes whether the last run has ended or not. Two at once would do no harm,
# only work twice, so a run gets an hour and not the six of the others.
TIMEOUT_SECONDS = 3600


class Reconcile(Construct):
    """By the clock, for all live streams.

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
            "reconcile",
            statements=commit_rights(bucket=bucket, table=table, prefix=prefix),
            starts=["delete", "rebalance"],
            kinds=("data", "metadata"),
            description="Commits uploads whose events were lost",
        )
        self.machine = shared.surveying_workflow(
            self,
            "reconcile",
            step=self.function,
            timeout_seconds=TIMEOUT_SECONDS,
            max_concurrency=MAX_CONCURRENCY,
            every_minutes=site.settings.reconcile_interval_minutes,
            description="Commits uploads whose events were lost",
        ).machine
