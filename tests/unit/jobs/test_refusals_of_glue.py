"""A request that Glue refuses for want of a right is refused the next time, too: nobody waits."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import pytest
from botocore.exceptions import ClientError

from coldstream.adapters.glue_schemas import GlueSchemas
from coldstream.bodies.registry import GlueRegistry
from coldstream.errors import ColdstreamError, PermissionDeniedError
from coldstream.jobs.materialise.iceberg.catalog_answers import answers
from coldstream.jobs.snapshots import SnapshotTables

#: What AWS answers to a wrong secret, an unknown key, an old session, and a missing right.
CODES = (
    *("AccessDeniedException", "ExpiredTokenException"),
    *("InvalidClientTokenId", "InvalidSignatureException", "UnrecognizedClientException"),
)


class Refusing:
    """A client, or a catalog, that Glue refuses everything."""

    def __init__(self, code: str) -> None:
        self._code = code

    def __getattr__(self, name: str) -> Callable[..., Any]:
        def refuse(*_: Any, **__: Any) -> Any:
            answer: Any = {
                "Error": {"Code": self._code},
                "ResponseMetadata": {"HTTPStatusCode": 400},
            }
            raise ClientError(answer, name)

        return refuse


def _a_snapshot(refusing: Refusing) -> None:
    SnapshotTables(refusing, "shop").check([])  # type: ignore[arg-type]


def _a_table(refusing: Refusing) -> None:
    with answers("shop.orders"):
        refusing.load_table()


def _a_schema(refusing: Refusing) -> None:
    GlueRegistry(GlueSchemas(refusing)).latest("orders")


ASKED: Mapping[str, Callable[[Refusing], None]] = MappingProxyType(
    {"a snapshot": _a_snapshot, "a table": _a_table, "a schema": _a_schema}
)


@pytest.mark.parametrize("code", CODES)
@pytest.mark.parametrize("what", ASKED)
def test_what_glue_refuses_is_not_tried_again(what: str, code: str) -> None:
    with pytest.raises(ColdstreamError) as caught:
        ASKED[what](Refusing(code))

    assert type(caught.value) is PermissionDeniedError
    assert code in str(caught.value)
