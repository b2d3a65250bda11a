"""What a broker's management API says of who asks it."""

from __future__ import annotations

import pytest

from coldstream.broker.management import Management


@pytest.mark.parametrize(
    ("answer", "sees"),
    [
        ({"tags": ["administrator"]}, True),
        ({"tags": "management,monitoring"}, True),
        ({"tags": ["management"]}, False),
        ({"tags": [7, None]}, False),
        ({"tags": None}, False),
        ([], False),
    ],
)
def test_only_some_tags_show_the_queues_of_all_virtual_hosts(
    monkeypatch: pytest.MonkeyPatch, answer: object, sees: bool
) -> None:
    monkeypatch.setattr(Management, "get", lambda _, path: {"/api/whoami": answer}[path])

    assert Management.parse("http://tier:secret@127.0.0.1:1").sees_all() is sees
