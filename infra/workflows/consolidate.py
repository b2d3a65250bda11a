"""consolidate: small neighbouring fragments become one, so that reads cost fewer requests."""

from __future__ import annotations

from constructs import Construct

from infra import rights
from infra.config import PUBLISHING_TIMEOUT_SECONDS
from infra.steps import SharedSteps, Site

# Each copies up to gigabytes within S3 for one stream, and no reader waits for it: a few at once
# leave the bucket's request rate to those who upload and read.
MAX_CONCURRENCY = 8


class Consolidate(Construct):
    """By the clock, for all streams with many small fragments; deletes nothing.

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
            "consolidate",
            statements=[
                rights.read_objects(bucket=bucket, prefix=prefix),
                rights.write_metadata(bucket=bucket, prefix=prefix),
                rights.compose_data(bucket=bucket, prefix=prefix),
                rights.list_streams(bucket=bucket, prefix=prefix),
                rights.commit_to_catalog(table=table),
                rights.read_policies(table=table),
            ],
            kinds=("data", "metadata"),
            # A part that is too small to be copied by S3 goes through memory.
            memory_mib=1024,
            description="Makes large fragments out of small neighbours",
        )
        self.machine = shared.surveying_workflow(
            self,
            "consolidate",
            step=self.function,
            timeout_seconds=PUBLISHING_TIMEOUT_SECONDS,
            max_concurrency=MAX_CONCURRENCY,
            every_minutes=site.settings.consolidate_interval_minutes,
            description="Makes large fragments out of small neighbours",
        ).machine
