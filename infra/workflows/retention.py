"""retention: what is older or more than a rule allows leaves the manifest."""

from __future__ import annotations

from constructs import Construct

from infra import rights
from infra.config import PUBLISHING_TIMEOUT_SECONDS
from infra.steps import SharedSteps, Site

# A batch of a hundred streams is a few GETs and one commit each. Ten batches at once keep far below
# what the table and the account's functions can do, and 100,000 streams below an hour.
MAX_CONCURRENCY = 10


class Retention(Construct):
    """By the clock, for all streams whose rules may be due; deletes nothing.

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
            "retention",
            statements=[
                rights.read_metadata(bucket=bucket, prefix=prefix),
                rights.write_metadata(bucket=bucket, prefix=prefix),
                rights.list_streams(bucket=bucket, prefix=prefix),
                rights.commit_to_catalog(table=table),
                rights.read_policies(table=table),
            ],
            kinds=("metadata",),
            description="Moves the beginning of streams forward, as their rules say",
        )
        self.machine = shared.surveying_workflow(
            self,
            "retention",
            step=self.function,
            timeout_seconds=PUBLISHING_TIMEOUT_SECONDS,
            max_concurrency=MAX_CONCURRENCY,
            every_minutes=site.settings.retention_interval_minutes,
            description="Moves the beginning of streams forward, as their rules say",
        ).machine
