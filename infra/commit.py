"""From "an object was created" to "the manifest has moved": the queue and `commit_runs`."""

from __future__ import annotations

from aws_cdk import Duration, RemovalPolicy, Stack
from aws_cdk import aws_iam as iam
from aws_cdk import aws_sqs as sqs
from aws_cdk.aws_lambda_event_sources import SqsEventSource
from constructs import Construct

from coldstream import deployment
from infra import rights
from infra.function import Function
from infra.nag import accept_executions, accept_keys
from infra.steps import Site

COMMIT_TIMEOUT_SECONDS = 60

# In the worst case each message is about another stream, and each stream is a commit of its own of
# some 0.2 s. A hundred of them stay well inside the time-out.
BATCH_SIZE = 100

# Events only wake a commit up and carry no truth, so one that failed five times is worth a look by
# a person and never worth data: the reconciler will have done its work.
MAX_RECEIVES = 5

#: Of keys that committing has a right to; see `commit_rights`.
COMMIT_KINDS = ("data", "metadata", "data/*.fragment")


class CommitQueue(Construct):
    """Where S3 reports new fragments, and where agents ask for a commit.

    Args:
        scope: where it belongs.
        id: its name there.
        batch_window_seconds: how long the function's event source gathers messages.
        bucket_name: of the bucket whose events it gets; empty for one that CloudFormation makes up.

    Attributes:
        queue: the queue.
        dead_letters: what could not be handled, for 14 days.
        policy: who may send; to be there before the bucket is.
    """

    def __init__(
        self,
        scope: Construct,
        id: str,  # noqa: A002 - the CDK's own word
        *,
        batch_window_seconds: int,
        bucket_name: str,
    ) -> None:
        super().__init__(scope, id)
        self.dead_letters = sqs.Queue(
            self,
            "DeadLetters",
            encryption=sqs.QueueEncryption.SQS_MANAGED,
            enforce_ssl=True,
            retention_period=Duration.days(14),
            removal_policy=RemovalPolicy.DESTROY,
        )
        self.queue = sqs.Queue(
            self,
            "Queue",
            encryption=sqs.QueueEncryption.SQS_MANAGED,
            enforce_ssl=True,
            # AWS's rule for SQS and Lambda: six times the function's time-out, plus the window.
            # Less would hand a message out again while throttled pollers still hold it.
            visibility_timeout=Duration.seconds(6 * COMMIT_TIMEOUT_SECONDS + batch_window_seconds),
            retention_period=Duration.days(4),
            dead_letter_queue=sqs.DeadLetterQueue(
                queue=self.dead_letters, max_receive_count=MAX_RECEIVES
            ),
            removal_policy=RemovalPolicy.DESTROY,
        )
        stack = Stack.of(self)
        self.queue.add_to_resource_policy(
            iam.PolicyStatement(
                sid="AllowBucketEvents",
                principals=[iam.ServicePrincipal("s3.amazonaws.com")],
                actions=["sqs:SendMessage"],
                resources=[self.queue.queue_arn],
                conditions={
                    # The bucket's events need this policy before the bucket exists, and its name is
                    # CloudFormation's choice: <stack>-<logical id>-<random>. The pattern covers
                    # that, and the account keeps out buckets of the same name pattern elsewhere.
                    "StringEquals": {"aws:SourceAccount": stack.account},
                    "ArnLike": {
                        "aws:SourceArn": (
                            f"arn:{stack.partition}:s3:::"
                            + (bucket_name or f"{stack.stack_name}-bucket-*")
                        )
                    },
                },
            )
        )
        self.policy = self.queue.node.find_child("Policy")


class CommitRuns(Construct):
    """The function that appends runs of fragments to manifests, and what wakes it.

    Args:
        scope: where it belongs.
        id: its name there.
        site: what it is made for.
        queue: whose messages wake it.

    Attributes:
        function: the function.
    """

    def __init__(
        self,
        scope: Construct,
        id: str,  # noqa: A002 - the CDK's own word
        *,
        site: Site,
        queue: sqs.IQueue,
    ) -> None:
        super().__init__(scope, id)
        settings = site.settings
        made = Function(
            self,
            "CommitRuns",
            handler="functions.commit_runs.handler",
            code=site.code,
            timeout=Duration.seconds(COMMIT_TIMEOUT_SECONDS),
            environment={**site.environment, deployment.ENV_QUEUE_URL: queue.queue_url},
            rights=[
                *commit_rights(site),
                # Of a long backlog the rest is asked for: a message that came back would count as
                # failed.
                iam.PolicyStatement(
                    sid="AskForRest", actions=["sqs:SendMessage"], resources=[queue.queue_arn]
                ),
                # A commit that makes a root long asks for it to be made short.
                *rights.start_workflow(self, "rebalance"),
            ],
            log_retention_days=settings.log_retention_days,
            tracing=settings.tracing,
            memory_mib=settings.commit_memory_mib,
            reserved=settings.reserved_concurrency or None,
            # It ends: a stream is asked for again only after a commit, or behind another's report.
            asks_itself=True,
            description="Appends verified runs of fragments to the manifests of their streams",
        )
        accept_keys(made.role, bucket=site.bucket, prefix=settings.prefix, kinds=COMMIT_KINDS)
        accept_executions(made.role, "rebalance")
        self.function = made.function
        self.function.add_event_source(
            SqsEventSource(
                queue,
                batch_size=BATCH_SIZE,
                max_batching_window=Duration.seconds(settings.batch_window_seconds),
                max_concurrency=settings.max_concurrency,
                # One stream that fails must not send the events of the others round again.
                report_batch_item_failures=True,
            )
        )


def commit_rights(site: Site) -> list[iam.PolicyStatement]:
    """What committing takes: see what was uploaded, write a root, move the item.

    And a fragment, of the part behind the manifest's end of one that reaches over it.
    """
    bucket, table, prefix = site.bucket, site.table, site.settings.prefix
    return [
        rights.read_objects(bucket=bucket, prefix=prefix),
        rights.write_metadata(bucket=bucket, prefix=prefix),
        rights.write_fragments(bucket=bucket, prefix=prefix),
        rights.list_streams(bucket=bucket, prefix=prefix),
        *rights.commit_to_catalog(table=table, prefix=prefix),
    ]
