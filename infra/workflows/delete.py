"""delete: a stream whose queue is gone loses its objects, once nobody can have it back any more."""

from __future__ import annotations

from aws_cdk import Duration, RemovalPolicy
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_sqs as sqs
from aws_cdk.aws_lambda_event_sources import DynamoEventSource, SqsDlq
from constructs import Construct

from coldstream.names import CATALOG_ITEM, CATALOG_SORT_KEY
from infra import rights
from infra.nag import accept, accept_streams
from infra.steps import SharedSteps, Site

# After the undelete time: a sweep of a thousand keys takes about a second, so that a day is enough
# for tens of millions of objects. `collect` sweeps what is left, for ever.
SWEEP_SECONDS = 86_400

TOMBSTONE_TIMEOUT_SECONDS = 60

# A function that cannot start a state machine suffers from an outage, which passes, or from a lost
# right, which does not. Ten tries with AWS's growing pauses cover the first.
TOMBSTONE_RETRIES = 10


class Delete(Construct):
    """The state machine, and the function that starts it when an item becomes a tombstone.

    Args:
        scope: where it belongs.
        id: its name there.
        site: what it is made for.
        shared: what all workflows call.

    Attributes:
        machine: the state machine.
        function: what it calls for each piece of work.
        tombstone: the function that starts it.
        missed: records of the table's stream with which that function failed, for 14 days.
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
        settings = site.settings
        # The undelete time is in the item, which a thief of an operator's credentials can write,
        # and a fault of any function. The execution's clock nobody can set back.
        least_seconds = min(settings.undelete_seconds, settings.grace_seconds)
        self.function = site.step(
            self,
            "delete",
            statements=[
                rights.list_streams(bucket=site.bucket, prefix=settings.prefix),
                rights.delete_everything(bucket=site.bucket, prefix=settings.prefix),
                rights.change_state(table=site.table),
                rights.read_policies(table=site.table),
            ],
            description="Deletes the objects of a stream past its undelete time",
        )
        role = self.function.role
        if role is not None:  # it always has one
            accept_streams(role, bucket=site.bucket, prefix=settings.prefix)
        self.machine = shared.workflow(
            self,
            "delete",
            step=self.function,
            # It publishes nothing, so the grace time does not bound it.
            timeout_seconds=settings.undelete_seconds + SWEEP_SECONDS,
            # Whoever read the item before it became a tombstone has put its last object by then.
            numbers={
                "LeastSeconds": least_seconds,
                "SettleSeconds": min(settings.step_timeout_seconds, settings.grace_seconds),
            },
            description="Deletes a stream after its undelete time",
        )
        self._start_for_tombstones(site)

    def _start_for_tombstones(self, site: Site) -> None:
        scope = Construct(self, "Tombstone")
        self.tombstone = site.step(
            scope,
            "tombstone",
            statements=[],
            starts=["delete"],
            timeout_seconds=TOMBSTONE_TIMEOUT_SECONDS,
            description="Starts the deletion of streams whose item became a tombstone",
        )
        if self.tombstone.role is not None:  # it always has one
            accept(
                self.tombstone.role,
                "IAM5[Resource::*]",
                "Whoever follows a table needs dynamodb:ListStreams, which knows no resources",
            )
        self.missed = sqs.Queue(
            scope,
            "Missed",
            encryption=sqs.QueueEncryption.SQS_MANAGED,
            enforce_ssl=True,
            retention_period=Duration.days(14),
            removal_policy=RemovalPolicy.DESTROY,
        )
        accept(
            self.missed,
            "SQS3",
            "It is itself where failures go: the destination of an event source, not a queue whose"
            " messages somebody handles",
        )
        self.tombstone.add_event_source(
            DynamoEventSource(
                site.table,
                # From the oldest record there is: a change made while the stack is updated counts.
                starting_position=lambda_.StartingPosition.TRIM_HORIZON,
                filters=[
                    lambda_.FilterCriteria.filter(
                        {
                            "eventName": lambda_.FilterRule.is_equal("MODIFY"),
                            "dynamodb": {
                                "Keys": {
                                    CATALOG_SORT_KEY: {
                                        "S": lambda_.FilterRule.is_equal(CATALOG_ITEM)
                                    }
                                },
                                "NewImage": {
                                    "state": {"S": lambda_.FilterRule.is_equal("deleting")}
                                },
                            },
                        }
                    )
                ],
                batch_size=100,
                # One tombstone that fails must not keep the others waiting.
                bisect_batch_on_error=True,
                retry_attempts=TOMBSTONE_RETRIES,
                on_failure=SqsDlq(self.missed),
            )
        )
