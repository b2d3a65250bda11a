"""What `streams` and `describe` show of the brokers' side, as the agents have said it."""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from typer.testing import Result

from coldstream.adapters.memory import MemoryHeartbeats
from coldstream.cli import agents_said
from coldstream.clock import now_ms
from coldstream.errors import PermissionDeniedError
from coldstream.manifest.catalog import QueueName
from coldstream.plans.heartbeats import Heartbeat
from coldstream.plans.stream_words import MARKS, StreamWord, WordsPage, pack, unpack
from tests.support.tier import Tier, chunk

Run = Callable[..., Result]


def says(heartbeats: MemoryHeartbeats, node: str, *words: StreamWord, age_ms: int = 0) -> None:
    at_ms = now_ms() - age_ms
    heartbeats.beat(Heartbeat(node, at_ms, 60_000, len(words), 0, 0, 0, pages=1))
    heartbeats.tell(WordsPage(node, 0, 1, at_ms, pack(words)))


def word(stream: str, **more: Any) -> StreamWord:
    return StreamWord(stream, True, (90, 60, 30, 1, 1), (1000, 2000, 3000, 4000, 0), **more)


@pytest.fixture
def both(tier: Tier) -> None:
    for stream, queue in (("a", "invoices"), ("b", "orders")):
        tier.add(stream, [[chunk(0, b"7", timestamp=1500)]], name=QueueName("c", "/", queue))


@pytest.mark.usefixtures("both")
def test_streams_says_who_uploads_what_is_behind_and_since_when_it_is_stuck(
    run: Run, heartbeats: MemoryHeartbeats
) -> None:
    stuck = word("b", lag_ms=70_000, lag_bytes=555, stuck_since_ms=86_400_000, super_stream="all")
    says(heartbeats, "rabbit@n1", stuck)

    gone, behind = json.loads(run("streams", "--json").stdout)

    assert gone["agent"] == "gone"
    assert gone["lag_s"] is None
    assert (behind["agent"], behind["lag_bytes"]) == ("rabbit@n1", 555)
    assert 70 <= behind["lag_s"] < 75
    assert behind["stuck_since"] == "1970-01-02T00:00:00.000Z"
    assert behind["super_stream"] == "all"
    assert "lag_s" in run("streams").stdout.splitlines()[0].split("\t")


@pytest.mark.usefixtures("both")
def test_a_stream_that_a_rule_may_leave_out_is_not_called_gone(
    run: Run, heartbeats: MemoryHeartbeats
) -> None:
    """Agents tell nothing of what a rule leaves out, and who reads `gone` may delete it."""
    says(heartbeats, "rabbit@n1", word("b"))
    (beat,) = heartbeats.all()
    assert isinstance(beat, Heartbeat)
    heartbeats.beat(replace(beat, left_out=1))

    unknown, told = json.loads(run("streams", "--json").stdout)

    assert (unknown["agent"], told["agent"]) == (None, "rabbit@n1")
    assert json.loads(run("describe", "a", "--json").stdout)["summary"]["gone"] is None


@pytest.mark.usefixtures("both")
def test_a_name_that_agents_share_is_noted_and_nothing_counts_as_gone(
    run: Run, heartbeats: MemoryHeartbeats
) -> None:
    """What one of them has told is hidden, and who reads `gone` may delete it."""
    says(heartbeats, "rabbit@n1", word("b"))
    (beat,) = heartbeats.all()
    assert isinstance(beat, Heartbeat)
    heartbeats.beat(replace(beat, shared=1))

    done = run("streams", "--json")

    unknown, told = json.loads(done.stdout)
    assert (unknown["agent"], told["agent"]) == (None, "rabbit@n1")
    assert "more than one agent tells under the name 'rabbit@n1'" in done.stderr
    assert "'rabbit@n1'" in run("describe", "b").stderr


@pytest.mark.usefixtures("both")
def test_a_silent_agent_is_called_so_and_nothing_counts_as_gone(
    run: Run, heartbeats: MemoryHeartbeats
) -> None:
    says(heartbeats, "rabbit@n1", word("b"), age_ms=3_600_000)

    unknown, silent = json.loads(run("streams", "--json").stdout)

    assert unknown["agent"] is None
    assert silent["agent"] == "rabbit@n1 (silent)"


@pytest.mark.usefixtures("both")
def test_describe_shows_the_five_watermarks_of_every_node(
    run: Run, heartbeats: MemoryHeartbeats
) -> None:
    says(heartbeats, "rabbit@n1", word("b", lag_ms=5000, headroom_ms=120_000, reason="slow\nlink"))
    says(heartbeats, "rabbit@n2", word("b"))

    text, document = run("describe", "b").stdout, json.loads(run("describe", "b", "--json").stdout)

    node = document["nodes"][0]
    assert list(node["watermarks"]) == list(MARKS)
    assert node["watermarks"]["cut"] == {"offset": 60, "time": "1970-01-01T00:00:02.000Z"}
    assert node["watermarks"]["published"] == {"offset": 1, "time": None}
    assert (node["headroom_s"], node["reason"]) == (120, "slow\nlink")
    for words in ("NODES", "WATERMARKS", "rabbit@n2", "60 at 1970-01-01T00:00:02.000Z", "1 at -"):
        assert words in text
    assert r"slow\nlink" in text


@pytest.mark.usefixtures("both")
def test_a_stream_of_which_no_agent_tells_is_described_all_the_same(run: Run) -> None:
    assert "NODES" not in run("describe", "a").stdout
    assert json.loads(run("describe", "a", "--json").stdout)["nodes"] == []


@pytest.mark.usefixtures("both")
def test_who_may_not_read_what_agents_say_is_told_and_sees_the_rest(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: Any, **__: Any) -> None:
        raise PermissionDeniedError("no right to Query")

    monkeypatch.setattr(agents_said, "told_by_agents", refused)

    result = run("streams", "--json")

    assert (result.exit_code, len(json.loads(result.stdout))) == (0, 2)
    assert "what the agents say cannot be read" in result.stderr


@pytest.mark.usefixtures("both")
def test_a_stream_of_which_nothing_new_is_proved_is_called_so(
    run: Run, heartbeats: MemoryHeartbeats
) -> None:
    unproved = word("b", unproved_ms=120_000, local_end=95, lag_ms=120_000, stuck_since_ms=1000)
    fresh = word("a", unproved_ms=2_000, local_end=95)
    says(heartbeats, "rabbit@n1", replace(unproved, reason="not proved: no answer"), fresh)

    first, second = json.loads(run("streams", "--json").stdout)

    assert (first["agent"], second["agent"]) == ("rabbit@n1", "rabbit@n1 (unproved)")
    assert 120 <= second["unproved_s"] < 125
    assert 120 <= second["lag_s"] < 125
    described = run("describe", "b").stdout
    assert "unproved_s" in described
    assert "not proved: no answer" in described


@pytest.mark.usefixtures("both")
def test_a_stream_of_which_nothing_was_ever_proved_is_listed_and_described(
    run: Run, heartbeats: MemoryHeartbeats
) -> None:
    never = StreamWord(
        "__new_1", True, (0,) * 5, (0,) * 5, lag_ms=500_000, lag_bytes=7, stuck_since_ms=1000,
        reason="no permission", unproved_ms=500_000, local_end=40,
    )  # fmt: skip
    says(heartbeats, "rabbit@n1", never, word("a"), word("b"))

    *_, row = json.loads(run("streams", "--json").stdout)
    assert (row["stream"], row["state"], row["agent"]) == ("__new_1", None, "rabbit@n1 (unproved)")
    assert row["lag_s"] >= 500
    assert row["stuck_since"] is not None
    assert "__new_1" not in run("streams", "--match", "orders").stdout

    described = run("describe", "__new_1")
    assert described.exit_code == 0
    assert "no permission" in described.stdout
    assert "the catalog does not know this stream" in described.stderr
    assert run("describe", "__other_1").exit_code == 66


@pytest.mark.usefixtures("both")
def test_what_another_nodes_agent_has_published_is_not_unproved(
    run: Run, heartbeats: MemoryHeartbeats
) -> None:
    says(heartbeats, "rabbit@n1", word("b", unproved_ms=120_000, local_end=1))

    *_, row = json.loads(run("streams", "--json").stdout)

    assert (row["agent"], row["unproved_s"]) == ("rabbit@n1", 0)


@pytest.mark.usefixtures("both")
def test_a_partition_shows_its_super_stream_and_a_gone_stream_that_it_is(
    run: Run, heartbeats: MemoryHeartbeats
) -> None:
    says(heartbeats, "rabbit@n1", word("b", super_stream="all-orders"))

    header, *rows = run("streams").stdout.splitlines()
    place = header.split("\t").index("super_stream")
    assert [row.split("\t")[place] for row in rows] == ["-", "all-orders"]
    there = json.loads(run("describe", "b", "--json").stdout)["summary"]
    gone = json.loads(run("describe", "a", "--json").stdout)["summary"]
    assert (there["super_stream"], there["gone"]) == ("all-orders", False)
    assert (gone["super_stream"], gone["gone"]) == (None, True)
    assert "all-orders" in run("describe", "b").stdout


@pytest.mark.usefixtures("both")
def test_a_partition_is_told_by_the_catalog_while_no_agent_says_anything(
    run: Run, tier: Tier
) -> None:
    tier.catalog.set_name("b", QueueName("c", "/", "orders-0", "all-orders", "0"))

    rows = {row["stream"]: row for row in json.loads(run("streams", "--json").stdout)}

    assert (rows["a"]["super_stream"], rows["b"]["super_stream"]) == (None, "all-orders")
    summary = json.loads(run("describe", "b", "--json").stdout)["summary"]
    assert summary["super_stream"] == "all-orders"


def test_a_page_of_an_agent_of_an_earlier_version_is_understood() -> None:
    rows = json.loads(zlib.decompress(pack([word("a"), word("b")])))
    older = zlib.compress(json.dumps([row[:-2] for row in rows]).encode())

    assert unpack(older) == [word("a"), word("b")]
