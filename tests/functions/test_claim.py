"""The handler `claim`: what an agent is told, what people are told, and what is counted."""

from __future__ import annotations

import json
from typing import Any

from coldstream import deployment
from coldstream.manifest.catalog import QueueName
from coldstream.plans import agent_requests as asking
from coldstream.plans.claim import LocalChunk
from coldstream.plans.told_log import Question, Subject, ToldLog
from functions.claim import handler
from tests.functions.conftest import Invocation, Site
from tests.support.remote import STREAM, chain, piece

NAME = QueueName("c", "/", "orders")


def ask(request: asking.Request) -> dict[str, Any]:
    return handler(json.loads(asking.encode(request)), Invocation())


def told(*chunks: LocalChunk, near: int) -> ToldLog:
    return ToldLog(0).with_answer(Question(Subject.NEAR, near), chunks)


def test_a_claim_lands_is_counted_and_logged(site: Site) -> None:
    chunk = LocalChunk(0, 10, 4)
    said = told(chunk, near=0).with_answer(Question(Subject.BETWEEN, 0, 1), [chunk])

    row = ask(asking.Open("__orders_1", 4, 0, NAME, said))

    assert row == {"claimed": {"truncated": None, "rooted": False}}
    item = site.context.catalog.get("__orders_1")
    assert item is not None
    assert (item.epoch, item.name) == (4, NAME)
    metrics = site.metrics()
    assert (metrics[deployment.METRIC_CLAIMS], metrics[deployment.METRIC_CLAIMS_THAT_CUT]) == (1, 0)


def test_what_is_not_known_of_the_log_is_asked_and_nothing_is_counted(site: Site) -> None:
    site.claimed()

    row = ask(asking.Open(STREAM, 2, None, NAME, ToldLog(0)))

    assert row == {"question": ["near", 0, 0]}
    assert not any(site.metrics().values())


def test_a_claim_that_cuts_the_manifest_off_warns_and_raises_the_alarm(site: Site) -> None:
    site.claimed()
    site.upload(*chain(2))
    handler({"ask": "commit", "stream": STREAM}, Invocation())
    site.metrics()
    log = (LocalChunk(0, 10, 1), LocalChunk(10, 13, 2))
    said = told(*log, near=20)

    while "question" in (row := ask(asking.Open(STREAM, 2, None, NAME, said))):
        question = Question.from_json(row["question"])
        overlapping = [
            each
            for each in log
            if each.chunk_id < question.next_offset and question.first < each.next_offset
        ]
        said = said.with_answer(question, overlapping)

    assert row["claimed"]["truncated"]["offset"] == 10
    (line,) = [each for each in site.logged("WARNING") if "quarantine" in each["message"]]
    assert (line["stream"], line["epoch"], line["offset"]) == (STREAM, 2, 10)


def test_a_commit_that_an_agent_asks_for_is_counted_like_any_other(site: Site) -> None:
    site.claimed()
    site.upload(piece(0, 10))

    row = ask(asking.Commit(STREAM))

    assert row["committed"]["next_offset"] == 10
    metrics = site.metrics()
    assert (metrics[deployment.METRIC_COMMITS], metrics[deployment.METRIC_FRAGMENTS_COMMITTED]) == (
        1,
        1,
    )


def test_rubbish_is_answered_and_logged_as_an_error(site: Site) -> None:
    row = handler({"ask": "everything", "stream": STREAM}, Invocation())

    assert row["error"]["error"] == "InvalidInputError"
    assert site.logged("ERROR")
