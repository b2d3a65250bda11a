"""Where the tables of the jobs are: a bucket, a database, a workgroup of Athena, saved queries."""

from __future__ import annotations

import re
from pathlib import Path

from aws_cdk import Duration, RemovalPolicy, Stack
from aws_cdk import aws_athena as athena
from aws_cdk import aws_glue as glue
from aws_cdk import aws_s3 as s3
from constructs import Construct

from infra.bucket import private_bucket
from infra.nag import accept

QUERIES = Path(__file__).with_name("queries")

#: A query that would read more is ended; 1 TB costs 5 $.
MAX_SCANNED_BYTES = 10**12
RESULTS_PREFIX = "athena-results/"
_RESULT_DAYS = 30


class Warehouse(Construct):
    """Tables, apart from the streams: nothing here is needed to have a stream back.

    Args:
        scope: where it belongs.
        id: its name there.
        name: of the bucket; empty for one that CloudFormation makes up.
        database: name of the database.
        encryption_key: ARN of a KMS key; empty for S3's own.

    Attributes:
        bucket: where all tables have their files, those of a job below <job>/.
        database: name of the database in the Glue Data Catalog.
        workgroup: name of the workgroup that the saved queries belong to.
    """

    def __init__(
        self,
        scope: Construct,
        id: str,  # noqa: A002 - the CDK's own word
        *,
        name: str,
        database: str,
        encryption_key: str,
    ) -> None:
        super().__init__(scope, id)
        stack = Stack.of(self)
        # It stays: tables can be made again from the streams, at some cost; a person decides.
        self.bucket = private_bucket(
            self,
            "Warehouse",
            name=name,
            encryption_key=encryption_key,
            more_rules=[
                s3.LifecycleRule(
                    id="ForgetResultsOfQueries",
                    prefix=RESULTS_PREFIX,
                    expiration=Duration.days(_RESULT_DAYS),
                )
            ],
        )
        accept(
            self.bucket,
            "S1",
            "Tables that are made again from the streams; who reads them is known from Athena's and"
            " CloudTrail's own records",
        )
        self.database = database
        made = glue.CfnDatabase(
            self,
            "Database",
            catalog_id=stack.account,
            # Its primary id: without it no stack could take over what an earlier one has left.
            database_name=database,
            database_input=glue.CfnDatabase.DatabaseInputProperty(
                name=database,
                description="Tables made of RabbitMQ streams by coldstream",
                location_uri=self.url,
            ),
        )
        # Iceberg's metadata can be registered again, but not by a stack that comes back.
        made.apply_removal_policy(RemovalPolicy.RETAIN_ON_UPDATE_OR_DELETE)
        workgroup = self._workgroup(encryption_key)
        self.workgroup = workgroup.name
        for path in sorted(QUERIES.glob("*.sql")):
            title, text = saved_query(path)
            query = athena.CfnNamedQuery(
                self,
                f"Query{path.stem.title().replace('-', '')}",
                name=f"{stack.stack_name}-{path.stem}",
                description=title,
                database=database,
                query_string=text,
                work_group=workgroup.name,
            )
            query.add_resource_dependency(workgroup)

    def _workgroup(self, encryption_key: str) -> athena.CfnWorkGroup:
        return athena.CfnWorkGroup(
            self,
            "Workgroup",
            name=Stack.of(self).stack_name,
            description="Queries about RabbitMQ streams in S3",
            recursive_delete_option=True,
            work_group_configuration=athena.CfnWorkGroup.WorkGroupConfigurationProperty(
                enforce_work_group_configuration=True,
                bytes_scanned_cutoff_per_query=MAX_SCANNED_BYTES,
                publish_cloud_watch_metrics_enabled=False,
                result_configuration=athena.CfnWorkGroup.ResultConfigurationProperty(
                    output_location=f"{self.url}{RESULTS_PREFIX}",
                    # What is said here goes before what the bucket does by itself.
                    encryption_configuration=athena.CfnWorkGroup.EncryptionConfigurationProperty(
                        encryption_option="SSE_KMS" if encryption_key else "SSE_S3",
                        kms_key=encryption_key or None,
                    ),
                ),
            ),
        )

    @property
    def url(self) -> str:
        """The URL below which each job has a place for the files of its tables."""
        return f"s3://{self.bucket.bucket_name}/"

    def files(self, job: str) -> str:
        """The URL below which a job's tables have their files."""
        return f"{self.url}{job}/"


def saved_query(path: Path) -> tuple[str, str]:
    """(title, text) of a saved query: its first line is a comment that says what it answers.

    Raises:
        ValueError: it has none.
    """
    text = path.read_text("utf-8")
    first = re.match(r"-- (.+)\n", text)
    if first is None:
        raise ValueError(f"{path.name} does not begin with a comment that says what it answers")
    return first[1], text
