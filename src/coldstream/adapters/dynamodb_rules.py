"""The condition of a transaction that the operator's rules are those that were read."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from coldstream.manifest.catalog import CatalogItem
from coldstream.names import CATALOG_PARTITION_KEY, CATALOG_SORT_KEY, POLICIES_ITEM
from coldstream.ports import CommitOutcome

if TYPE_CHECKING:
    from botocore.exceptions import ClientError
    from mypy_boto3_dynamodb.type_defs import TransactWriteItemTypeDef

#: Code of a transaction of which nothing was written.
CANCELLED = "TransactionCanceledException"


@dataclass(frozen=True, slots=True)
class RulesUnchanged:
    """That the rules still have a revision.

    Attributes:
        revision: 0 where there were none.
        judge: what the item means where they have another one.
    """

    revision: int
    judge: Callable[[CatalogItem | None], CommitOutcome]

    def check(self, table: str, prefix: str) -> TransactWriteItemTypeDef:
        """The first part of a transaction."""
        key = {
            CATALOG_PARTITION_KEY: {"S": prefix},
            CATALOG_SORT_KEY: {"S": POLICIES_ITEM},
        }
        if not self.revision:
            return {
                "ConditionCheck": {
                    "TableName": table,
                    "Key": key,
                    "ConditionExpression": "attribute_not_exists(#key)",
                    "ExpressionAttributeNames": {"#key": CATALOG_PARTITION_KEY},
                }
            }
        return {
            "ConditionCheck": {
                "TableName": table,
                "Key": key,
                "ConditionExpression": "#revision = :revision",
                "ExpressionAttributeNames": {"#revision": "revision"},
                "ExpressionAttributeValues": {":revision": {"N": str(self.revision)}},
            }
        }

    def held(self, exc: ClientError) -> bool:
        """Whether a transaction was cancelled by its second part's condition alone.

        Where another transaction was in the way, nobody looked at the conditions at all, and ours
        has not happened either.
        """
        reasons = exc.response.get("CancellationReasons", [])
        codes = [reason.get("Code", "None") for reason in reasons]
        return codes == ["None", "ConditionalCheckFailed"]
