"""How every Glue job here is made: its role with exactly its rights, its schedule, its limits."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from aws_cdk import FileAssetPackaging, RemovalPolicy, Stack
from aws_cdk import aws_glue as glue
from aws_cdk import aws_iam as iam
from aws_cdk import aws_logs as logs
from constructs import Construct

from coldstream.deployment import job_script
from infra import rights
from infra.arns import job_arn, log_group_arn
from infra.glue_bundle import PACKAGE_ZIP
from infra.glue_wheels import SUFFIX
from infra.nag import accept, accept_arn
from infra.schedule import schedule

#: Spark 4.1.1 on Python 3.13, the first with the Python Data Source API.
GLUE_VERSION = "6.0"
WORKER_TYPE = "G.1X"

#: What Glue is asked of every job.
_ARGUMENTS = {
    "--enable-auto-scaling": "true",
    "--enable-metrics": "true",
    "--enable-observability-metrics": "true",
    "--enable-continuous-cloudwatch-log": "true",
}

#: Findings of cdk-nag about every job, and why they are accepted.
_ACCEPTED = {
    "GL1": "The log holds names of streams and counts, no message; it is encrypted at rest",
    "GL3": "There are no bookmarks: what was done is written into the tables themselves",
}


@dataclass(frozen=True, slots=True)
class UploadedFile:
    """A file of ours in the CDK's own bucket of assets.

    Attributes:
        bucket: name of the bucket.
        key: of the object.
    """

    bucket: str
    key: str

    @property
    def url(self) -> str:
        """As Glue wants it."""
        return f"s3://{self.bucket}/{self.key}"


def upload(stack: Stack, path: Path) -> UploadedFile:
    """Make an asset of a file, under a key that keeps the file's name.

    The CDK's own `Asset` calls every object after its hash. Glue takes the end of a name for what
    says what to do with it, and a person who looks at a job in the console wants to see it.
    """
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    location = stack.synthesizer.add_file_asset(
        source_hash=f"{digest}/{path.stem}",
        file_name=str(path),
        packaging=FileAssetPackaging.FILE,
    )
    return UploadedFile(location.bucket_name, location.object_key)


@dataclass(frozen=True, slots=True, kw_only=True)
class Code:
    """What every job carries.

    Attributes:
        directory: what `infra.glue_bundle` has built.
    """

    directory: Path


class GlueJob(Construct):
    """A Spark job that a schedule or a person starts.

    Args:
        scope: where it belongs.
        id: its name there.
        name: of the job, and of its script.
        code: what it carries.
        arguments: what its script is told, by the argument's name without dashes.
        statements: what its role may do besides reading its code and writing its log and metrics.
        log_group: where its log goes: <name of it>/output and <name of it>/error.
        workers: the most workers at once.
        timeout_minutes: the longest run.
        retries: how often a run that failed is tried again; 0 where a person should look first.
        every_minutes: how often a schedule starts it; 0 for never.
        description: one sentence for the console.

    Attributes:
        job_name: the job's name.
        role: its role.
    """

    def __init__(
        self,
        scope: Construct,
        id: str,  # noqa: A002 - the CDK's own word
        *,
        name: str,
        code: Code,
        arguments: Mapping[str, str],
        statements: Sequence[iam.PolicyStatement],
        log_group: LogGroups,
        workers: int,
        timeout_minutes: int,
        retries: int,
        every_minutes: int,
        description: str,
    ) -> None:
        super().__init__(scope, id)
        stack = Stack.of(self)
        self.job_name = f"{stack.stack_name}-{name}"
        script = upload(stack, code.directory / job_script(name))
        package = upload(stack, code.directory / PACKAGE_ZIP)
        (wheels,) = (upload(stack, path) for path in code.directory.glob(f"*{SUFFIX}"))
        self.role = self._role([script, package, wheels], statements, log_group)
        job = glue.CfnJob(
            self,
            "Job",
            name=self.job_name,
            description=description,
            role=self.role.role_arn,
            command=glue.CfnJob.JobCommandProperty(
                name="glueetl", python_version="3", script_location=script.url
            ),
            glue_version=GLUE_VERSION,
            worker_type=WORKER_TYPE,
            number_of_workers=workers,
            timeout=timeout_minutes,
            max_retries=retries,
            # Two runs of one job would do the same work twice.
            execution_property=glue.CfnJob.ExecutionPropertyProperty(max_concurrent_runs=1),
            default_arguments={
                **_ARGUMENTS,
                "--custom-logGroup-prefix": log_group.prefix,
                "--job-language": "python",
                "--extra-py-files": package.url,
                "--additional-python-modules": wheels.url,
                "--python-modules-installer-option": "--no-index",
                **{f"--{key}": value for key, value in arguments.items()},
            },
            tags={"job": name},
        )
        # The job may be started as soon as it is there, so its role must be able to do its work.
        job.node.add_dependency(self.role)
        for rule, reason in _ACCEPTED.items():
            accept(job, rule, reason)
        if every_minutes:
            self._schedule(every_minutes)

    def _role(
        self,
        assets: Sequence[UploadedFile],
        statements: Sequence[iam.PolicyStatement],
        log_group: LogGroups,
    ) -> iam.Role:
        role = iam.Role(
            self, "Role", assumed_by=rights.service_of_this_account(self, "glue.amazonaws.com")
        )
        partition = Stack.of(self).partition
        for statement in (
            *statements,
            iam.PolicyStatement(
                sid="ReadCode",
                actions=["s3:GetObject"],
                resources=[f"arn:{partition}:s3:::{each.bucket}/{each.key}" for each in assets],
            ),
            iam.PolicyStatement(
                sid="WriteLogs",
                # The groups are there, but Glue asks for them all the same.
                actions=["logs:CreateLogGroup", "logs:CreateLogStream", "logs:PutLogEvents"],
                resources=log_group.stream_arns,
            ),
            iam.PolicyStatement(
                sid="PutMetrics",
                actions=["cloudwatch:PutMetricData"],
                resources=["*"],
                conditions={"StringEquals": {"cloudwatch:namespace": ["coldstream", "Glue"]}},
            ),
        ):
            role.add_to_policy(statement)
        accept(
            role,
            "IAM5[Resource::*]",
            "PutMetricData knows no resources; the condition names the namespaces",
        )
        for arn in log_group.stream_arns:
            accept_arn(role, arn, "Each run has a log stream of its own, called by the run's id")
        return role

    def _schedule(self, every_minutes: int) -> None:
        stack = Stack.of(self)
        schedule(
            self,
            start=iam.PolicyStatement(
                sid="StartJob",
                actions=["glue:StartJobRun"],
                resources=[job_arn(stack, self.job_name)],
            ),
            target=f"arn:{stack.partition}:scheduler:::aws-sdk:glue:startJobRun",
            message={"JobName": self.job_name},
            every_minutes=every_minutes,
            # A run that is still going refuses the next one, which then comes in its turn.
            retries=0,
            description=f"Starts the Glue job {self.job_name}",
        )


class LogGroups(Construct):
    """The two log groups of all jobs, which forget, unlike those that Glue makes itself.

    Args:
        scope: where it belongs.
        id: its name there.
        retention: how long logs are kept.

    Attributes:
        prefix: what the names of both begin with.
    """

    def __init__(
        self,
        scope: Construct,
        id: str,  # noqa: A002 - the CDK's own word
        *,
        retention: logs.RetentionDays,
    ) -> None:
        super().__init__(scope, id)
        stack = Stack.of(self)
        self.prefix = f"/aws-glue/jobs/{stack.stack_name}"
        for name in ("output", "error"):
            logs.LogGroup(
                self,
                name.title(),
                log_group_name=f"{self.prefix}/{name}",
                retention=retention,
                removal_policy=RemovalPolicy.DESTROY,
            )

    @property
    def stream_arns(self) -> list[str]:
        """All log streams of both."""
        stack = Stack.of(self)
        groups = log_group_arn(stack, self.prefix)
        return [f"{groups}/{name}:log-stream:*" for name in ("output", "error")]
