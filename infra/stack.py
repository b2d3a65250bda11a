"""The stack composes; the constructs beside it create."""

from __future__ import annotations

from pathlib import Path

from aws_cdk import CfnOutput, Stack
from aws_cdk import aws_lambda as lambda_
from constructs import Construct

from coldstream import names
from infra.agents import Agents
from infra.alarms import Alarms
from infra.catalog import Catalog
from infra.commit import CommitQueue, CommitRuns
from infra.config import Settings
from infra.reconcile import Reconcile
from infra.storage import Storage


class ColdstreamStack(Stack):
    """All that one deployment has in an AWS account.

        agents -> Storage (S3) -> CommitQueue (SQS) -> CommitRuns (Lambda) -> Catalog (DynamoDB)
                                                       Reconcile  (Lambda) ->

    Args:
        scope: the app.
        id: the stack's name.
        settings: of the deployment.
        bundle: directory with the code of the functions.
        description: one sentence for the console.
    """

    def __init__(
        self,
        scope: Construct,
        id: str,  # noqa: A002 - the CDK's own word
        *,
        settings: Settings,
        bundle: Path,
        description: str,
    ) -> None:
        super().__init__(scope, id, description=description)
        # The CDK makes each function depend on its role as well as on the role's policy: once more
        # than needed, and harmless.
        self.template_options.metadata = {"cfn-lint": {"config": {"ignore_checks": ["W3005"]}}}
        catalog = Catalog(self, "Catalog")
        commit_queue = CommitQueue(
            self, "CommitQueue", batch_window_seconds=settings.batch_window_seconds
        )
        storage = Storage(self, "Storage", prefix=settings.prefix, commit_queue=commit_queue)
        # Byte code appears when somebody imports from the bundle; it belongs to their interpreter.
        code = lambda_.Code.from_asset(str(bundle), exclude=["**/__pycache__"])
        environment = {
            names.ENV_BUCKET: storage.bucket.bucket_name,
            names.ENV_TABLE: catalog.table.table_name,
            names.ENV_PREFIX: settings.prefix,
        }
        commit_runs = CommitRuns(
            self,
            "CommitRuns",
            settings=settings,
            bucket=storage.bucket,
            table=catalog.table,
            queue=commit_queue.queue,
            code=code,
            environment=environment,
        )
        reconcile = Reconcile(
            self,
            "Reconcile",
            settings=settings,
            bucket=storage.bucket,
            table=catalog.table,
            code=code,
            environment=environment,
        )
        agents = Agents(
            self,
            "Agents",
            prefix=settings.prefix,
            bucket=storage.bucket,
            table=catalog.table,
            queue=commit_queue.queue,
            principals=settings.agent_principals,
        )
        Alarms(
            self,
            "Alarms",
            commit_queue=commit_queue,
            commit_runs=commit_runs.function,
            reconcile=reconcile.function,
            email=settings.alarm_email,
        )
        # Whoever works with a deployment, the CLI first of all, finds it by these.
        for name, value in {
            names.OUTPUT_BUCKET: storage.bucket.bucket_name,
            names.OUTPUT_TABLE: catalog.table.table_name,
            names.OUTPUT_PREFIX: settings.prefix,
            names.OUTPUT_QUEUE_URL: commit_queue.queue.queue_url,
            names.OUTPUT_DEAD_LETTERS_URL: commit_queue.dead_letters.queue_url,
            names.OUTPUT_COMMIT_FUNCTION: commit_runs.function.function_name,
            names.OUTPUT_RECONCILE_FUNCTION: reconcile.function.function_name,
            names.OUTPUT_AGENT_ROLE: agents.role.role_arn,
            names.OUTPUT_AGENT_POLICY: agents.policy.managed_policy_arn,
        }.items():
            CfnOutput(self, name, value=value)
