"""What a scan of the table costs: half of it where nobody needs the last second."""

from __future__ import annotations

from typing import Any

from coldstream.adapters.dynamodb import DynamoCatalog
from coldstream.plans.policy import PolicySet
from coldstream.remote.context import Context
from coldstream.usecases.scan import ScanFor, scan
from tests.support.remote import Remote


class Asked:
    """A client that notes how it is asked, and answers that there is nothing."""

    def __init__(self) -> None:
        self.consistent: list[bool] = []

    def scan(self, **arguments: Any) -> dict[str, Any]:
        self.consistent.append(arguments["ConsistentRead"])
        return {"Items": []}

    def describe_table(self, **_: Any) -> dict[str, Any]:
        return {"Table": {"TableId": "t"}}


def test_only_a_sweep_for_work_takes_items_as_they_may_have_been_a_second_ago() -> None:
    client = Asked()
    catalog = DynamoCatalog(client=client, table="t", prefix="p/")  # type: ignore[arg-type]

    assert list(catalog.streams()) == []
    assert catalog.page(None, 10).items == ()
    assert client.consistent == [True, True]

    client.consistent.clear()
    context = Context(Remote().new_context().store, catalog, "p/", lambda: 1)
    for workflow in ScanFor:
        scan(context, workflow, PolicySet(), now_ms=0, target_size=1)
    assert set(client.consistent) == {False}
