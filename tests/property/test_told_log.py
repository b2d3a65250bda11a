"""What agents say of their logs survives the way to the function, and rubbish does not arrive."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coldstream.errors import InvalidInputError
from coldstream.names import MAX_EPOCH, MAX_OFFSET
from coldstream.plans import agent_requests as asking
from coldstream.plans.claim import LocalChunk
from coldstream.plans.told_log import MAX_QUESTIONS, Question, Subject, ToldLog

OFFSETS = st.integers(0, 2**40)
STREAM = "__orders_1"


@st.composite
def chunks(draw: st.DrawFn) -> tuple[LocalChunk, ...]:
    """Chunks in offset order, some of which join; epochs never fall."""
    found, at, epoch = [], draw(OFFSETS), draw(st.integers(1, 9))
    for _ in range(draw(st.integers(0, 12))):
        at += draw(st.sampled_from((0, 0, 0, 7)))
        epoch += draw(st.sampled_from((0, 0, 1, 5)))
        length = draw(st.integers(1, 2**20))
        found.append(LocalChunk(at, at + length, epoch))
        at += length
    return tuple(found)


QUESTIONS = st.builds(Question, st.sampled_from(Subject), OFFSETS, OFFSETS)
TOLD = st.builds(ToldLog, st.none() | OFFSETS, st.dictionaries(QUESTIONS, chunks(), max_size=6))
JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False)
    | st.text(max_size=20)
    | st.sampled_from(["open", "commit", "declare", "near", "between", "alone", STREAM]),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.sampled_from(
                ["ask", "stream", "epoch", "anchor", "name", "said", "first", "next", "log_first",
                 "answers", "thorough"]
            ),
            inner,
            max_size=8,
        )
    ),
    max_leaves=30,
)  # fmt: skip


@given(TOLD)
def test_what_was_said_arrives_as_it_was_said(said: ToldLog) -> None:
    assert ToldLog.from_json(json.loads(json.dumps(said.to_json()))) == said


@given(said=TOLD, epoch=st.integers(1, MAX_EPOCH), anchor=st.none() | OFFSETS)
def test_a_request_arrives_as_it_was_sent(said: ToldLog, epoch: int, anchor: int | None) -> None:
    name = asking.QueueName("c", "/", "ordérs")
    for request in (
        asking.Open(STREAM, epoch, anchor, name, said),
        asking.Commit(STREAM, thorough=True),
        asking.Declare(STREAM, epoch, 5, 9, 9),
    ):
        assert asking.parse(json.loads(asking.encode(request))) == request


@given(JSON)
def test_rubbish_is_an_invalid_request_and_nothing_worse(row: Any) -> None:
    try:
        asking.parse(row)
    except InvalidInputError:
        return


def run(*parts: Any) -> dict[str, Any]:
    return {"first": 0, "answers": [[["near", 5, 0], [list(parts)]]]}


def two_runs(first: int, second: int) -> dict[str, Any]:
    runs = [[first, [1], [[1, 1]]], [second, [1], [[1, 1]]]]
    return {"first": 0, "answers": [[["near", 5, 0], runs]]}


@pytest.mark.parametrize(
    ("said", "words"),
    [
        (run(0, [1], [[1, 10**12]]), "a count"),
        (run(0, [0], [[1, 1]]), "without offsets"),
        (run(MAX_OFFSET, [1], [[1, 1]]), "without offsets"),
        (run(0, [1, 1], [[2, 1], [1, 1]]), "epochs fall"),
        (run(0, [1, 1], [[1, 1]]), "do not all have"),
        (run(-1, [1], [[1, 1]]), "a chunk id"),
        (run(0, [1]), "without lengths or epochs"),
        (run(0, [1], [[1, 1]], 2), "without lengths or epochs"),
        ({"first": 0, "answers": [[["near", 5, 0], [7]]]}, "without lengths or epochs"),
        (run(True, [1], [[1, 1]]), "a chunk id"),
        (two_runs(9, 3), "overlap"),
        ({"first": 0, "answers": [[["far", 5, 0], []]]}, "unknown question"),
        ({"first": 0, "answers": [[[["near"], 5, 0], []]]}, "unknown question"),
        ({"first": 0, "answers": [[["near", 5, 0], []]] * (MAX_QUESTIONS + 1)}, "answers"),
        ({"first": 2**64, "answers": []}, "begins"),
    ],
)  # fmt: skip
def test_a_log_that_cannot_be_is_refused(said: Any, words: str) -> None:
    with pytest.raises(InvalidInputError, match=words):
        ToldLog.from_json(said)
