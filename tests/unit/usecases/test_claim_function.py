"""The function `claim`: what it does for agents, and what nobody gets it to do."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from coldstream.agent.stream.commits import Commits
from coldstream.errors import (
    ConflictError,
    FencedError,
    InvalidInputError,
    LostRangeError,
    UnavailableError,
)
from coldstream.manifest.catalog import QueueName
from coldstream.manifest.queue_name import kept_in
from coldstream.names import DataKey
from coldstream.plans import agent_requests as asking
from coldstream.plans.claim import KnownHistory, LocalChunk
from coldstream.plans.told_log import Question, Subject, ToldLog
from coldstream.plans.undo_epoch import MAX_LEAP
from coldstream.usecases.claim_function import OwnRights, answer
from coldstream.usecases.commit_runs import commit_runs
from coldstream.usecases.holes import ChainGap
from tests.support.remote import PREFIX, STREAM, Remote, chain, log_of, no_pause, piece

NAME = QueueName("c", "/", "orders")


@pytest.fixture
def remote() -> Remote:
    return Remote()


def commits(remote: Remote, function: Any = None) -> Commits:
    own = OwnRights(remote.new_context(), no_pause, lambda: 5)
    return Commits(remote.new_context(), function or own, STREAM, no_pause)


def ask(remote: Remote, row: Any, **more: Any) -> dict[str, Any]:
    return answer(remote.new_context(), row, pause=no_pause, now_ms=5, **more).row


def nobody_else(begin: int, end: int) -> None:
    del begin, end


def test_a_stream_is_anchored_named_and_claimed_by_one_request(remote: Remote) -> None:
    log = KnownHistory((LocalChunk(0, 10, 3),))

    done = commits(remote).claim(3, 0, NAME, log, nobody_else)

    item = remote.items.items[STREAM]
    assert (item.epoch, item.name, item.first_offset, item.next_offset) == (3, NAME, 0, 0)
    assert done.loaded.item == item


def test_a_claim_that_was_made_is_found_without_asking(remote: Remote) -> None:
    log = KnownHistory((LocalChunk(0, 10, 3),))
    commits(remote).claim(3, 0, NAME, log, nobody_else)

    class Nobody:
        def invoke(self, request: bytes) -> bytes:
            raise AssertionError(request)

    done = commits(remote, Nobody()).claim(3, 0, NAME, log, nobody_else)

    assert done.loaded.item.epoch == 3


def test_a_new_name_is_set_although_the_claim_was_made(remote: Remote) -> None:
    log = KnownHistory((LocalChunk(0, 10, 3),))
    commits(remote).claim(3, 0, QueueName(), log, nobody_else)

    commits(remote).claim(3, 0, NAME, log, nobody_else)

    assert remote.items.items[STREAM].name == NAME


def test_a_partition_that_was_claimed_by_an_older_agent_gets_its_super_stream(
    remote: Remote,
) -> None:
    log = KnownHistory((LocalChunk(0, 10, 3),))
    commits(remote).claim(3, 0, NAME, log, nobody_else)
    partition = replace(NAME, super_stream="all-orders", routing_key="eu")

    commits(remote).claim(3, 0, partition, log, nobody_else)
    commits(remote).claim(3, 0, NAME, log, nobody_else)

    assert remote.items.items[STREAM].name == partition


def test_a_request_of_an_agent_that_knows_no_super_streams_is_taken() -> None:
    row = json.loads(asking.encode(asking.Open(STREAM, 1, None, NAME, ToldLog())))
    del row["partition"]

    assert asking.parse(row).name == NAME  # type: ignore[union-attr]


def test_an_answer_that_is_lost_leaves_a_claim_that_the_next_look_finds(remote: Remote) -> None:
    own = OwnRights(remote.new_context(), no_pause, lambda: 5)

    class Loses:
        asked = 0

        def invoke(self, request: bytes) -> bytes:
            self.asked += 1
            done = own.invoke(request)
            if b"claimed" in done:
                raise UnavailableError("no answer")
            return done

    log, function = KnownHistory((LocalChunk(0, 10, 3),)), Loses()
    with pytest.raises(UnavailableError):
        commits(remote, function).claim(3, 0, NAME, log, nobody_else)
    asked = function.asked
    done = commits(remote, function).claim(3, 0, NAME, log, nobody_else)

    assert done.loaded.item.epoch == 3
    assert function.asked == asked


def test_an_epoch_that_no_election_can_have_reached_claims_nothing(remote: Remote) -> None:
    remote.claimed(7)
    before = remote.items.items[STREAM]

    for epoch in (7 + MAX_LEAP + 1, 2**32 - 1):
        with pytest.raises(InvalidInputError, match="no broker counts"):
            commits(remote).claim(epoch, 0, NAME, log_of(*chain(1)), nobody_else)

    assert remote.items.items[STREAM] == before
    log = KnownHistory((LocalChunk(0, 10, 7 + MAX_LEAP),))
    assert commits(remote).claim(7 + MAX_LEAP, 0, NAME, log, nobody_else)


def test_a_lower_epoch_is_fenced_and_never_asked_about_its_log(remote: Remote) -> None:
    remote.claimed(7)

    with pytest.raises(FencedError):
        commits(remote).claim(6, 0, NAME, KnownHistory((LocalChunk(0, 1, 6),)), nobody_else)


def test_a_stream_that_an_older_writer_has_begun_below_a_gap_is_looked_at_again(
    remote: Remote,
) -> None:
    remote.claimed(2)
    request = asking.Open(STREAM, 3, 50, NAME, ToldLog(50))

    row = ask(remote, json.loads(asking.encode(request)))

    assert row["error"]["error"] == "ConflictError"
    assert remote.items.items[STREAM].epoch == 2


@pytest.mark.parametrize("epoch", [2, 3])
def test_of_two_agents_that_begin_a_stream_at_once_both_go_on(remote: Remote, epoch: int) -> None:
    remote.claimed(2)
    near = Question(Subject.NEAR, 0)
    said = ToldLog(0).with_answer(near, ()).with_answer(Question(Subject.BETWEEN, 0, 1), ())
    request = asking.Open(STREAM, epoch, 0, NAME, said)

    row = ask(remote, json.loads(asking.encode(request)))

    assert "claimed" in row
    assert remote.items.items[STREAM].epoch == epoch


def test_a_log_that_loses_its_beginning_while_it_is_asked_about_says_all_anew(
    remote: Remote,
) -> None:
    remote.claimed(1).upload(*chain(3))
    commit_runs(remote.new_context(), STREAM, pause=no_pause)

    class Retiring:
        """Begins at 0 at first, at 10 once it has been asked something more."""

        looks = 0
        inner = KnownHistory((LocalChunk(0, 10, 1), LocalChunk(10, 20, 1), LocalChunk(20, 40, 2)))

        def chunks_near(self, offset: int) -> Any:
            return self.inner.chunks_near(offset)

        def chunks_between(self, first: int, next_offset: int) -> Any:
            return self.inner.chunks_between(first, next_offset)

        def first_offset(self) -> int | None:
            self.looks += 1
            return 0 if self.looks <= 2 else 10

    own, firsts = OwnRights(remote.new_context(), no_pause, lambda: 5), []

    class Notes:
        def invoke(self, request: bytes) -> bytes:
            firsts.append(json.loads(request)["said"]["first"])
            return own.invoke(request)

    done = commits(remote, Notes()).claim(2, 0, NAME, Retiring(), nobody_else)

    assert done.loaded.item.epoch == 2
    assert firsts[0] == 0
    assert firsts[-1] == 10


def test_a_longer_log_of_another_member_stops_the_claim(remote: Remote) -> None:
    remote.claimed(1).upload(*chain(3))
    commit_runs(remote.new_context(), STREAM, pause=no_pause)

    def others_have_more(begin: int, end: int) -> None:
        raise LostRangeError(f"{begin} {end}", stream=STREAM)

    with pytest.raises(LostRangeError, match="50 30"):
        commits(remote).claim(2, 50, NAME, KnownHistory((LocalChunk(50, 60, 2),)), others_have_more)
    assert remote.items.items[STREAM].epoch == 1


# Holes.


def gap(first: int, next_offset: int, epoch: int = 1) -> ChainGap:
    return ChainGap(
        first, next_offset, epoch, False, False, (), parts=((first, next_offset, epoch),)
    )


def holes(remote: Remote) -> list[str]:
    return sorted(key for key in remote.memory.objects if key.endswith(".hole"))


def test_a_hole_is_declared_over_the_gap_that_is_there_and_once(remote: Remote) -> None:
    remote.claimed(1).upload(*chain(2))

    (key,) = commits(remote).declare(gap(20, 50), log_first=50)
    again = commits(remote).declare(gap(20, 50), log_first=50)

    assert (holes(remote), list(again)) == ([key], [])


@pytest.mark.parametrize(
    ("asked", "log_first"),
    [
        (gap(20, 60), 50),  # further than the log's begin
        (gap(10, 50), 50),  # over what is in the bucket
        (gap(20, 50, 2), 50),  # under a claim that is not there
        (gap(20, 10**15), 50),
        (gap(5, 15), 15),  # where nothing is missing
    ],
)
def test_no_hole_is_declared_over_anything_but_the_gap(
    remote: Remote, asked: ChainGap, log_first: int
) -> None:
    remote.claimed(1).upload(*chain(2))

    with pytest.raises(ConflictError, match="no gap"):
        commits(remote).declare(asked, log_first=log_first)

    assert not holes(remote)


def test_a_hole_under_a_claim_that_is_over_is_not_declared(remote: Remote) -> None:
    remote.claimed(1).upload(*chain(2))
    commit_runs(remote.new_context(), STREAM, pause=no_pause)
    remote.claim(2)

    with pytest.raises(ConflictError, match="no gap"):
        commits(remote).declare(gap(20, 50), log_first=50)

    assert not holes(remote)


# Requests that are none.


@pytest.mark.parametrize(
    "row",
    [None, 5, "open", [], {}, {"stream": STREAM}, {"ask": "open", "stream": "../x"},
     {"ask": "declare", "stream": STREAM, "epoch": 0}, {"ask": "drop", "stream": STREAM}],
)  # fmt: skip
def test_rubbish_gets_an_error_and_changes_nothing(remote: Remote, row: Any) -> None:
    remote.claimed(1)
    before = dict(remote.items.items), dict(remote.memory.objects)

    assert ask(remote, row)["error"]["error"] == "InvalidInputError"
    assert (remote.items.items, remote.memory.objects) == before


@pytest.mark.parametrize(
    "answered", [b"", b"[]", b"{}", b"nonsense", b'{"question": ["far", 1, 2]}', b'{"error": {}}']
)
def test_an_answer_that_is_none_is_asked_for_again_later(remote: Remote, answered: bytes) -> None:
    class Odd:
        def invoke(self, request: bytes) -> bytes:
            return answered

    with pytest.raises((UnavailableError, InvalidInputError)):
        commits(remote, Odd()).claim(3, 0, NAME, log_of(*chain(1)), nobody_else)


def test_what_is_refused_is_told_with_its_place(remote: Remote) -> None:
    remote.claimed(1)
    bad = piece(0, 10)
    path = DataKey(STREAM, 0, 10, 1, 99, "fragment").path(PREFIX)
    remote.memory.put(path, bad.data[:-1] + b"\x00", write_id="x")

    report = commits(remote).commit()

    (refused,) = report.refused
    assert (refused.stream, refused.offset, refused.key) == (STREAM, 0, path)


def test_a_claim_without_time_says_so_and_the_next_one_goes_on(remote: Remote) -> None:
    remote.claimed(1).upload(*chain(3))
    request = json.loads(asking.encode(asking.Open(STREAM, 2, None, NAME, ToldLog(0))))

    assert ask(remote, request, time_left=lambda: False)["error"]["error"] == "UnavailableError"
    assert "question" in ask(remote, request)


def test_a_claim_of_a_log_that_agrees_is_one_request(remote: Remote) -> None:
    remote.claimed(1).upload(*chain(3))
    commit_runs(remote.new_context(), STREAM, pause=no_pause)
    own, asked = OwnRights(remote.new_context(), no_pause, lambda: 5), []

    class Counts:
        def invoke(self, request: bytes) -> bytes:
            asked.append(request)
            return own.invoke(request)

    log = KnownHistory((*log_of(*chain(3)).chunks, LocalChunk(30, 40, 2)))
    commits(remote, Counts()).claim(2, 0, NAME, log, nobody_else)

    assert len(asked) == 1


@pytest.mark.parametrize(
    ("stream", "vhost", "queue", "fits"),
    [
        ("__orders_1795227164559759047", "/", "orders", True),
        ("__orders_1795227164559759047", "/", "invoices", False),
        ("__orders_1795227164559759047", "_", "orders", True),
        ("__orders_1795227164559759047", "tmp", "orders", False),
        ("__a_b_17", "/", "a.b", True),
        ("__a_b_17", "/", "ä b", False),
        ("_____17", "/", "é/", True),
        ("___x_17", "/", "e\u0301x", True),
        ("__e__x_17", "/", "e\u0301x", True),
        ("__a___17", "/", "a1\ufe0f\u20e3.", True),
        ("___x_17", "/", "ex", False),
        ("eu_orders_x", "eu", "orders", False),
    ],
)
def test_a_name_fits_the_directories_that_a_broker_makes_of_it(
    stream: str, vhost: str, queue: str, fits: bool
) -> None:
    """VHOST_QUEUE_NANOSECONDS, with "_" for what a broker does not take."""
    name = QueueName("c", vhost, queue)
    assert name.fits(stream) == fits
    assert not fits or kept_in(stream) in name.kept


def test_an_agent_gives_a_stream_no_name_that_another_rule_would_delete(remote: Remote) -> None:
    """Retention goes by names: a thief would call every stream `tmp`."""
    remote.claimed(1)
    said = ToldLog(0)
    for name, kept in (
        (QueueName("c", "/", "tmp"), QueueName()),
        (NAME, NAME),
        (QueueName("c", "_", "orders"), NAME),
        (QueueName("other", "/", "orders"), NAME),
    ):
        ask(remote, json.loads(asking.encode(asking.Open(STREAM, 1, None, name, said))))
        item = remote.items.get(STREAM)
        assert item is not None
        assert item.name == kept


def test_who_has_rights_of_his_own_may_correct_a_name(remote: Remote) -> None:
    log = KnownHistory((LocalChunk(0, 10, 3),))
    commits(remote).claim(3, 0, QueueName("c", "_", "orders"), log, nobody_else)

    commits(remote).claim(3, 0, NAME, log, nobody_else)

    assert remote.items.items[STREAM].name == NAME
