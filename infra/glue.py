"""The Glue jobs: what each may do, how long, how often. docs/how-to/glue.md says what for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from aws_cdk import Stack
from aws_cdk import aws_iam as iam
from aws_cdk import aws_lambda as lambda_
from constructs import Construct

from coldstream.deployment import job_script
from infra import rights, table_rights
from infra.arns import catalog_arn
from infra.failures import report_jobs
from infra.function import RETENTION
from infra.glue_job import Code, GlueJob, LogGroups
from infra.nag import accept, accept_arn, accept_keys
from infra.optimizers import TableOptimizers
from infra.steps import Site
from infra.warehouse import Warehouse

#: What a run looks at is many times the last one's only where something was neglected; then an hour
#: more costs less than a person who starts it again and again.
_LONG_MINUTES = 480
_SHORT_MINUTES = 120
MATERIALISE = "materialise"


@dataclass(frozen=True, slots=True)
class JobPlan:
    """How one job differs from the others.

    Attributes:
        description: one sentence for the console.
        tables: pattern of the names of its tables; "" if it keeps none.
        every_minutes: how often a schedule starts it; 0 for never.
        retries: how often a run that failed is tried again.
        timeout_minutes: the longest run.
        arguments: beside those that every job has, without dashes.
    """

    description: str
    tables: str = ""
    every_minutes: int = 0
    retries: int = 1
    timeout_minutes: int = _LONG_MINUTES
    arguments: Mapping[str, str] = field(default_factory=dict)


class Jobs(Construct):
    """One Glue job for each of `coldstream.deployment.JOBS`.

    No role here may write, delete or replace an object of a stream, or change its item.

    Args:
        scope: where it belongs.
        id: its name there.
        site: what they are made for.
        code: what they carry.
        warehouse: where their tables are.
        report: the function that logs and counts what has failed.

    Attributes:
        jobs: the jobs by their names.
        every_minutes: how often a schedule starts each; 0 for never.
    """

    def __init__(
        self,
        scope: Construct,
        id: str,  # noqa: A002 - the CDK's own word
        *,
        site: Site,
        code: Code,
        warehouse: Warehouse,
        report: lambda_.IFunction,
    ) -> None:
        super().__init__(scope, id)
        self._site, self._code, self._warehouse = site, code, warehouse
        self._logs = LogGroups(self, "Logs", retention=RETENTION[site.settings.log_retention_days])
        settings = site.settings
        plans = {
            # Each of them may be repeated: what was done is not done again.
            MATERIALISE: JobPlan(
                "Fills tables from streams, each message once",
                tables="*",
                every_minutes=settings.materialise_interval_minutes,
                arguments={"rules": settings.materialise_rules}
                if settings.materialise_rules
                else {},
            ),
            "scrub": JobPlan(
                "Checks every byte of the streams, the longest unchecked first",
                tables="scrub_*",
                every_minutes=settings.scrub_interval_minutes,
            ),
            "profile": JobPlan(
                "Rates, sizes, batching, producers, consumers and cost of the streams",
                tables="profile_*",
                every_minutes=settings.profile_interval_minutes,
            ),
            "rebuild": JobPlan(
                "Compares manifests with those that a rebuild would make",
                tables="rebuild_*",
                # A person has started it, and should look before it is tried again.
                retries=0,
            ),
            "fleet": JobPlan(
                "All catalog items and manifests as tables",
                tables="fleet_*",
                every_minutes=settings.fleet_interval_minutes,
                timeout_minutes=_SHORT_MINUTES,
            ),
        }
        # tests/infra/test_glue.py sees to it that every job of `deployment.JOBS` has a script.
        self.jobs = {
            name: self._job(name, plan)
            for name, plan in plans.items()
            if (code.directory / job_script(name)).is_file()
        }
        report_jobs(self, jobs=[job.job_name for job in self.jobs.values()], report=report)
        self.every_minutes = {name: plans[name].every_minutes for name in self.jobs}

    def _job(self, name: str, plan: JobPlan) -> GlueJob:
        site, stack, warehouse = self._site, Stack.of(self), self._warehouse
        bucket, prefix = site.bucket, site.settings.prefix
        more_rights, more_arguments = self._more(plan) if name == MATERIALISE else ([], {})
        job = GlueJob(
            self,
            name.title(),
            name=name,
            code=self._code,
            arguments={
                "bucket": bucket.bucket_name,
                "table": site.table.table_name,
                "prefix": prefix,
                "region": stack.region,
                "service": stack.stack_name,
                "warehouse": warehouse.files(name),
                "database": warehouse.database,
                **plan.arguments,
                **more_arguments,
            },
            statements=[
                rights.read_objects(bucket=bucket, prefix=prefix),
                rights.list_streams(bucket=bucket, prefix=prefix),
                rights.read_catalog(table=site.table),
                *table_rights.keep_tables(
                    bucket=warehouse.bucket,
                    prefix=f"{name}/",
                    catalog=catalog_arn(stack),
                    database=warehouse.database,
                    tables=plan.tables,
                ),
                *more_rights,
            ],
            log_group=self._logs,
            workers=site.settings.job_workers,
            timeout_minutes=plan.timeout_minutes,
            retries=plan.retries,
            every_minutes=plan.every_minutes,
            description=plan.description,
        )
        accept_keys(job.role, bucket=bucket, prefix=prefix, kinds=("data", "metadata"))
        accept_arn(
            job.role,
            f"<Warehouse.Arn>/{name}/*",
            "The files of the job's own tables, which are named while it runs",
        )
        if plan.tables:
            accept_arn(
                job.role,
                f"{catalog_arn(stack)}:table/{warehouse.database}/{plan.tables}",
                "The job's own tables; which ones there are depends on the operator's rules",
            )
        if name == MATERIALISE:
            accept(
                job.role,
                "IAM5[Resource::*]",
                "GetSchemaVersion is asked by the id in a body, which names no registry",
            )
        return job

    def _more(self, plan: JobPlan) -> tuple[list[iam.PolicyStatement], dict[str, str]]:
        """Rights and arguments that only the job materialise has."""
        settings, more = self._site.settings, [table_rights.decode_bodies()]
        if settings.catalog_secret:
            more.append(table_rights.read_secret(arn=settings.catalog_secret))
        if settings.table_maintenance != "glue":
            return more, {}
        optimizers = TableOptimizers(
            self, "Optimizers", warehouse=self._warehouse, job=MATERIALISE, tables=plan.tables
        )
        more += table_rights.switch_optimizers(
            role=optimizers.role,
            catalog=catalog_arn(Stack.of(self)),
            database=self._warehouse.database,
            tables=plan.tables,
        )
        return more, {"maintenance": "glue", "optimizer-role": optimizers.role.role_arn}
