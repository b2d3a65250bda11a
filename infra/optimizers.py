"""The role of Glue's table optimisers, which compact, forget and delete what no table names."""

from __future__ import annotations

from aws_cdk import Stack
from aws_cdk import aws_iam as iam
from constructs import Construct

from infra import rights, table_rights
from infra.arns import catalog_arn, log_group_arn
from infra.nag import accept_arn
from infra.warehouse import Warehouse

#: Glue's own names of log groups (AWS Glue, "Table optimization prerequisites").
_LOGS = "/aws-glue/iceberg-*"


class TableOptimizers(Construct):
    """What a table's optimisers may do, with the tables of one job.

    Args:
        scope: where it belongs.
        id: its name there.
        warehouse: where the tables are.
        job: whose they are.
        tables: pattern of their names.

    Attributes:
        role: that Glue takes.
    """

    def __init__(
        self,
        scope: Construct,
        id: str,  # noqa: A002 - the CDK's own word
        *,
        warehouse: Warehouse,
        job: str,
        tables: str,
    ) -> None:
        super().__init__(scope, id)
        stack = Stack.of(self)
        self.role = iam.Role(
            self, "Role", assumed_by=rights.service_of_this_account(self, "glue.amazonaws.com")
        )
        groups = log_group_arn(stack, _LOGS)
        for statement in (
            *table_rights.optimize_tables(
                bucket=warehouse.bucket,
                prefix=f"{job}/",
                catalog=catalog_arn(stack),
                database=warehouse.database,
                tables=tables,
            ),
            iam.PolicyStatement(
                sid="WriteLogs",
                actions=["logs:CreateLogGroup", "logs:CreateLogStream", "logs:PutLogEvents"],
                resources=[f"{groups}:*"],
            ),
        ):
            self.role.add_to_policy(statement)
        for arn, reason in (
            (
                f"<Warehouse.Arn>/{job}/*",
                "The files of the job's tables, of which there are as many as rules say",
            ),
            (
                f"{catalog_arn(stack)}:table/{warehouse.database}/{tables}",
                "The job's tables; which ones there are depends on the operator's rules",
            ),
            (f"{groups}:*", "Glue itself gives the log groups below this one their names"),
        ):
            accept_arn(self.role, arn, reason)
