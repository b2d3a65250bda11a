"""The catalog: the DynamoDB table with one item a stream."""

from __future__ import annotations

from typing import cast

from aws_cdk import RemovalPolicy
from aws_cdk import aws_dynamodb as dynamodb
from constructs import Construct

from coldstream.names import CATALOG_PARTITION_KEY, CATALOG_SORT_KEY


class CatalogTable(Construct):
    """The table. It outlives the stack, like the bucket whose contents it describes.

    Args:
        scope: where it belongs.
        id: its name there.
        name: of the table; empty for one that CloudFormation makes up.
        protected: DynamoDB refuses to delete it.

    Attributes:
        table: the table.
    """

    def __init__(
        self,
        scope: Construct,
        id: str,  # noqa: A002 - the CDK's own word
        *,
        name: str,
        protected: bool,
    ) -> None:
        super().__init__(scope, id)
        self.table = dynamodb.Table(
            self,
            "Table",
            table_name=name or None,
            partition_key=_text(CATALOG_PARTITION_KEY),
            sort_key=_text(CATALOG_SORT_KEY),
            billing_mode=dynamodb.BillingMode.PAY_PER_REQUEST,
            point_in_time_recovery_specification=dynamodb.PointInTimeRecoverySpecification(
                point_in_time_recovery_enabled=True
            ),
            deletion_protection=protected,
            # Both images: who follows the stream sees what a commit moved, not just that it did.
            stream=dynamodb.StreamViewType.NEW_AND_OLD_IMAGES,
            removal_policy=RemovalPolicy.RETAIN_ON_UPDATE_OR_DELETE,
        )
        # A new logical id would mean a new, empty table: this one must survive any refactoring.
        cast("dynamodb.CfnTable", self.table.node.default_child).override_logical_id("CatalogTable")


def _text(name: str) -> dynamodb.Attribute:
    return dynamodb.Attribute(name=name, type=dynamodb.AttributeType.STRING)
