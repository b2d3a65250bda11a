"""The stack composes; the constructs beside it create."""

from __future__ import annotations

from pathlib import Path

from aws_cdk import CfnOutput, Stack
from aws_cdk import aws_lambda as lambda_
from constructs import Construct

from coldstream import deployment
from coldstream.plans.consolidate import READ_WHOLE
from infra.agents import Agents
from infra.alarms import Alarms
from infra.arns import machine_arn_prefix
from infra.catalog import CatalogTable
from infra.claim import Claim
from infra.commit import CommitQueue, CommitRuns
from infra.config import Settings
from infra.encryption import let_use
from infra.failures import report_machines
from infra.glue import Jobs
from infra.glue_job import Code
from infra.logs import save_queries
from infra.moves import refuse_moves
from infra.people import People
from infra.steps import SharedSteps, Site
from infra.storage import Storage
from infra.warehouse import Warehouse
from infra.workflows.delete import Delete
from infra.workflows.erase import erase
from infra.workflows.rebalance import rebalance
from infra.workflows.scanning import WORKFLOWS, ScanWorkflow, looked_at_minutes

# W3005: the CDK makes each function depend on its role as well as on the role's policy: once more
# than needed, and harmless. E3601: it takes no substitution within the ARN of a state's resource;
# tests/infra/test_definitions.py validates the whole definitions.
_IGNORED = ["W3005", "E3601"]


class ColdstreamStack(Stack):
    """All that one deployment has in an AWS account.

        agents -> Storage (S3) -> CommitQueue (SQS) -> CommitRuns (Lambda) -> Catalog (DynamoDB)
                                            the workflows (Step Functions) ->
                                            the jobs (Glue) -> Warehouse (S3, Glue Data Catalog)

    Args:
        scope: the app.
        id: the stack's name.
        settings: of the deployment.
        bundle: directory with the code of the functions.
        job_code: what the Glue jobs carry.
        description: one sentence for the console.
    """

    def __init__(
        self,
        scope: Construct,
        id: str,  # noqa: A002 - the CDK's own word
        *,
        settings: Settings,
        bundle: Path,
        job_code: Code,
        description: str,
    ) -> None:
        super().__init__(
            scope, id, description=description, termination_protection=settings.protected
        )
        self.template_options.metadata = {"cfn-lint": {"config": {"ignore_checks": _IGNORED}}}
        refuse_moves(self, settings.prefix)
        catalog = CatalogTable(
            self, "Catalog", name=settings.table_name, protected=settings.protected
        )
        commit_queue = CommitQueue(
            self,
            "CommitQueue",
            batch_window_seconds=settings.batch_window_seconds,
            bucket_name=settings.bucket_name,
        )
        storage = Storage(
            self,
            "Storage",
            name=settings.bucket_name,
            prefix=settings.prefix,
            encryption_key=settings.encryption_key,
            commit_queue=commit_queue,
            deleted_kept_days=settings.deleted_kept_days,
            archive_after_days=settings.archive_after_days,
        )
        site = self._site(settings, storage, catalog, bundle)
        commit_runs = CommitRuns(self, "CommitRuns", site=site, queue=commit_queue.queue)
        shared = SharedSteps(self, "Steps", site=site)
        delete = Delete(self, "Delete", site=site, shared=shared)
        scanning = {
            name: ScanWorkflow(self, name.capitalize(), name=name, site=site, shared=shared)
            for name in WORKFLOWS
        }
        erasing, erase_step = erase(self, site=site, shared=shared)
        storage.deny_deletes_but_by(
            [scanning["collect"].function, delete.function], of_versions=erase_step
        )
        rebalancing, rebalance_step = rebalance(self, site=site, shared=shared)
        machines = {
            "rebalance": rebalancing,
            "delete": delete.machine,
            "erase": erasing,
            **{name: each.machine for name, each in scanning.items()},
        }
        claim = Claim(self, "Claims", site=site)
        agents = Agents(self, "Agents", site=site, queue=commit_queue.queue, claim=claim.function)
        warehouse = Warehouse(
            self,
            "Warehouse",
            name=settings.warehouse_name,
            database=settings.database,
            encryption_key=settings.encryption_key,
        )
        jobs = Jobs(
            self, "Jobs", site=site, code=job_code, warehouse=warehouse, report=shared.report
        )
        people = People(
            self,
            "People",
            site=site,
            commit_queue=commit_queue,
            missed=delete.missed,
            jobs=[job.job_name for job in jobs.jobs.values()],
            mapping=WORKFLOWS,
        )
        report_machines(self, machines=machines, report=shared.report)
        alarms = Alarms(
            self,
            "Alarms",
            commit_queue=commit_queue,
            commit_runs=commit_runs.function,
            claim=claim.function,
            machines={name: machines[name] for name in deployment.WORKFLOWS},
            every_minutes={name: row.every_minutes(settings) for name, row in WORKFLOWS.items()},
            looked_at_minutes=looked_at_minutes(settings),
            jobs_every_minutes=jobs.every_minutes,
            report=shared.report,
            tombstone=delete.tombstone,
            table=catalog.table,
            missed_tombstones=delete.missed,
            behind_minutes=settings.agents_behind_minutes,
            email=settings.alarm_email,
        )
        committing = [commit_runs.function, claim.function, scanning["reconcile"].function]
        others = [shared.scan, rebalance_step, delete.function, delete.tombstone, shared.report]
        others.append(erase_step)
        others += [each.function for name, each in scanning.items() if name != "reconcile"]
        save_queries(
            Construct(self, "Logs"),
            {
                "failures": [*committing, *others],
                "commits": committing,
                "claims": [claim.function],
                "holes": committing,
                "workflows": [shared.report],
            },
        )
        if settings.encryption_key:
            let_use(self, settings.encryption_key)
        # Whoever works with a deployment, the CLI first of all, finds it by these.
        for name, value in {
            deployment.OUTPUT_BUCKET: storage.bucket.bucket_name,
            deployment.OUTPUT_TABLE: catalog.table.table_name,
            deployment.OUTPUT_PREFIX: settings.prefix,
            deployment.OUTPUT_QUEUE_URL: commit_queue.queue.queue_url,
            deployment.OUTPUT_DEAD_LETTERS_URL: commit_queue.dead_letters.queue_url,
            deployment.OUTPUT_CLAIM_FUNCTION: claim.function.function_name,
            deployment.OUTPUT_COMMIT_FUNCTION: commit_runs.function.function_name,
            deployment.OUTPUT_RECONCILE_FUNCTION: scanning["reconcile"].function.function_name,
            deployment.OUTPUT_WORKFLOWS: machine_arn_prefix(self),
            deployment.OUTPUT_UNDELETE_SECONDS: str(settings.undelete_seconds),
            deployment.OUTPUT_AGENT_ROLE: agents.role.role_arn,
            deployment.OUTPUT_AGENT_POLICY: agents.policy.managed_policy_arn,
            deployment.OUTPUT_READER_POLICY: people.readers.managed_policy_arn,
            deployment.OUTPUT_GATEWAY_POLICY: people.gateways.managed_policy_arn,
            deployment.OUTPUT_OPERATOR_POLICY: people.operators.managed_policy_arn,
            deployment.OUTPUT_CONSOLE_POLICY: people.consoles.managed_policy_arn,
            deployment.OUTPUT_LOGS_POLICY: people.logs.managed_policy_arn,
            deployment.OUTPUT_WAREHOUSE: warehouse.url,
            deployment.OUTPUT_DATABASE: warehouse.database,
            deployment.OUTPUT_WORKGROUP: warehouse.workgroup,
            deployment.OUTPUT_ALARM_TOPIC: alarms.topic.topic_arn,
            deployment.OUTPUT_DASHBOARD: alarms.dashboard_url,
        }.items():
            CfnOutput(self, name, value=value)

    def _site(
        self, settings: Settings, storage: Storage, catalog: CatalogTable, bundle: Path
    ) -> Site:
        return Site(
            settings=settings,
            bucket=storage.bucket,
            table=catalog.table,
            # Byte code appears when a program imports from the bundle; it belongs to their
            # interpreter.
            code=lambda_.Code.from_asset(str(bundle), exclude=["**/__pycache__"]),
            environment={
                deployment.ENV_BUCKET: storage.bucket.bucket_name,
                deployment.ENV_TABLE: catalog.table.table_name,
                deployment.ENV_PREFIX: settings.prefix,
                deployment.ENV_WORKFLOWS: machine_arn_prefix(self),
                deployment.ENV_BRANCHING: str(settings.branching),
                deployment.ENV_FRAGMENT_SIZE: str(settings.fragment_size_mib * 2**20),
                deployment.ENV_READ_WHOLE: str(READ_WHOLE),
                deployment.ENV_GRACE_SECONDS: str(settings.grace_seconds),
                deployment.ENV_RECONCILE_MINUTES: str(settings.reconcile_interval_minutes),
                deployment.ENV_RECONCILE_IDLE_MINUTES: str(
                    settings.reconcile_idle_interval_minutes
                ),
            },
        )
