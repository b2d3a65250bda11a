"""The operator's rules as one item of the catalog's table: key `<prefix>`, sort key "policies".

A stream's key is never the bare prefix, so the item lies beside all streams and among none.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from botocore.exceptions import BotoCoreError, ClientError

from coldstream.adapters.aws_errors import code_of
from coldstream.adapters.dynamodb_errors import REFUSED, translated, translating
from coldstream.adapters.dynamodb_item import UNREADABLE
from coldstream.errors import (
    ColdstreamError,
    CorruptDataError,
    InvalidInputError,
    UnavailableError,
    UnknownOutcomeError,
)
from coldstream.names import (
    CATALOG_PARTITION_KEY,
    CATALOG_SORT_KEY,
    POLICIES_ITEM,
    check_prefix,
)
from coldstream.plans.policy import PolicySet
from coldstream.plans.policy_document import parse_policies, policy_document

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient


class DynamoPolicies:
    """The `Policies` port on one table, for the cluster of one prefix.

    Args:
        client: a boto3 DynamoDB client with standard retries.
        table: name.
        prefix: of the cluster, ends in "/".
    """

    def __init__(self, *, client: DynamoDBClient, table: str, prefix: str) -> None:
        self._client = client
        self._table = table
        self._key: dict[str, Any] = {
            CATALOG_PARTITION_KEY: {"S": check_prefix(prefix)},
            CATALOG_SORT_KEY: {"S": POLICIES_ITEM},
        }

    def load(self) -> tuple[PolicySet, int]:
        document, revision = self._read()
        if not revision:
            return PolicySet(), 0
        try:
            return parse_policies(document), revision
        except InvalidInputError as exc:
            raise CorruptDataError(
                f"the rules in the table cannot be read: {exc}", remedy=UNREADABLE
            ) from exc

    def save(self, policies: PolicySet, read_revision: int) -> bool:
        document = policy_document(policies)
        try:
            self._client.put_item(
                TableName=self._table,
                Item={
                    **self._key,
                    "kind": {"S": POLICIES_ITEM},
                    "document": {"S": document},
                    "revision": {"N": str(read_revision + 1)},
                },
                ConditionExpression=(
                    "#revision = :read_revision" if read_revision else "attribute_not_exists(#key)"
                ),
                **_placeholders(read_revision),
            )
        except (ClientError, BotoCoreError) as exc:
            if code_of(exc) == REFUSED:
                # The SDK may have repeated a write that had landed.
                return self._read() == (document, read_revision + 1)
            error = translated(exc)
            if not isinstance(error, UnavailableError):
                raise error from exc
            return self._read_back(document, read_revision, exc)
        return True

    def _read_back(self, document: str, read_revision: int, cause: Exception) -> bool:
        """What a save without an answer came to; the revision that was read proves nothing."""
        try:
            found, revision = self._read()
        except ColdstreamError:
            revision = read_revision
        if revision == read_revision:
            raise UnknownOutcomeError("DynamoDB gave no answer to a change of rules") from cause
        return (found, revision) == (document, read_revision + 1)

    def _read(self) -> tuple[str, int]:
        """Document and revision, ("", 0) where there is none."""
        answer = translating(
            lambda: self._client.get_item(TableName=self._table, Key=self._key, ConsistentRead=True)
        )
        item = answer.get("Item")
        if not item:
            return "", 0
        try:
            document, revision = str(item["document"]["S"]), int(item["revision"]["N"])
        except (KeyError, ValueError, TypeError) as exc:
            raise CorruptDataError(
                f"an item of rules that cannot be read: {exc!r}", remedy=UNREADABLE
            ) from exc
        return document, revision


def _placeholders(read_revision: int) -> Any:
    """The names and values that the condition speaks of, and no others: DynamoDB wants it so."""
    if not read_revision:
        return {"ExpressionAttributeNames": {"#key": CATALOG_PARTITION_KEY}}
    return {
        "ExpressionAttributeNames": {"#revision": "revision"},
        "ExpressionAttributeValues": {":read_revision": {"N": str(read_revision)}},
    }
