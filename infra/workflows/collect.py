"""collect: deletes garbage, after the proof of DESIGN section 8, and alone touches live streams."""

from __future__ import annotations

from constructs import Construct

from infra import rights
from infra.config import PUBLISHING_TIMEOUT_SECONDS
from infra.steps import SharedSteps, Site

# Each lists a whole stream and deletes up to a thousand keys a request. S3 answers some 3,500
# deletes and 5,500 reads a second below one prefix, and nothing here is urgent.
MAX_CONCURRENCY = 4


class Collect(Construct):
    """By the clock, for all streams that are live or gone for good.

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
            "collect",
            statements=[
                rights.read_objects(bucket=bucket, prefix=prefix),
                rights.write_metadata(bucket=bucket, prefix=prefix),
                rights.delete_objects(bucket=bucket, prefix=prefix),
                rights.list_streams(bucket=bucket, prefix=prefix),
                rights.commit_to_catalog(table=table),
                rights.read_policies(table=table),
            ],
            kinds=("data", "metadata"),
            description="Records garbage, and deletes what has been garbage for the grace time",
        )
        self.machine = shared.surveying_workflow(
            self,
            "collect",
            step=self.function,
            timeout_seconds=PUBLISHING_TIMEOUT_SECONDS,
            max_concurrency=MAX_CONCURRENCY,
            every_minutes=site.settings.collect_interval_minutes,
            description="Records garbage, and deletes what has been garbage for the grace time",
        ).machine
