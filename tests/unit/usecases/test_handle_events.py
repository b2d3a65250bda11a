from __future__ import annotations

import gc
import json
import weakref
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from coldstream.errors import (
    ConflictError,
    CorruptDataError,
    InternalError,
    InvalidInputError,
    NotFoundError,
    RefusedFragmentError,
    UnavailableError,
)
from coldstream.manifest.catalog import StreamState
from coldstream.remote.context import Context
from coldstream.usecases.commit_runs import CommitReport, commit_runs
from coldstream.usecases.handle_events import BatchReport, handle_messages, parse_message
from tests.support.remote import (
    PREFIX,
    STREAM,
    Remote,
    chain,
    messages,
    no_pause,
    piece,
    s3_event,
    s3_record,
)

EVENTS = Path(__file__).parents[2] / "events"
OTHER = "__invoices_1745252105682952999"


def handle(remote: Remote, *bodies: str) -> BatchReport:
    return handle_messages(remote.context, messages(bodies), pause=no_pause)


@pytest.fixture
def remote() -> Remote:
    return Remote().claimed().claimed(stream=OTHER)


# Reading one message.


def test_the_event_that_aws_documents_names_its_stream_with_the_key_decoded() -> None:
    body = (EVENTS / "s3ObjectCreated.json").read_text()

    (mention,) = parse_message(body, PREFIX)

    assert mention.stream == "__orders=_1745252105682952932"
    assert mention.key.startswith("rabbitmq/stream/__orders=_1745252105682952932/data/0")


def test_the_body_of_a_documented_sqs_record_is_such_an_event() -> None:
    event = json.loads((EVENTS / "s3SqsEvent.json").read_text())

    (mention,) = parse_message(event["Records"][0]["body"], PREFIX)

    assert mention.stream == "__orders=_1745252105682952932"


def test_the_test_event_of_s3_names_nothing_and_is_no_error() -> None:
    assert parse_message((EVENTS / "s3TestEvent.json").read_text(), PREFIX) == ()


def test_an_agent_asks_for_a_stream_by_its_name() -> None:
    (mention,) = parse_message(json.dumps({"stream": STREAM}), PREFIX)

    assert (mention.stream, mention.key) == (STREAM, "")


MALFORMED = {
    "empty": "",
    "not json": "{",
    "a number": "7",
    "null": "null",
    "a list": "[]",
    "a string": '"x"',
    "an empty object": "{}",
    "no records": '{"Records": []}',
    "records that are none": '{"Records": 7}',
    "a record that is null": '{"Records": [null]}',
    "a record that is a list": '{"Records": [[]]}',
    "a record without s3": '{"Records": [{}]}',
    "a record without an object": '{"Records": [{"s3": {}}]}',
    "s3 that is a string": '{"Records": [{"s3": "x"}]}',
    "a key that is a number": '{"Records": [{"s3": {"object": {"key": 7}}}]}',
    "a key that is null": '{"Records": [{"s3": {"object": {"key": null}}}]}',
    "a key that is a list": '{"Records": [{"s3": {"object": {"key": ["a"]}}}]}',
    "a stream that is a number": '{"stream": 7}',
    "a stream that is null": '{"stream": null}',
    "a stream that climbs": '{"stream": "../../x"}',
    "an empty stream": '{"stream": ""}',
    "deeply nested": "[" * 100_000,
    "a long number": '{"Records": ' + "9" * 10_000 + "}",
    "far too long": json.dumps({"stream": STREAM, "padding": "x" * 2_000_000}),
    "a foreign key": s3_event("somebody/else.txt"),
    "another cluster": s3_event("eu/" + piece(0, 10).path(PREFIX)),
    "a root": s3_event(f"{PREFIX}stream/{STREAM}/metadata/root.1.manifest"),
    "a key encoded twice": s3_event(piece(0, 10).path(PREFIX).replace("_", "%5F")),
    "a surrogate": '{"stream": "\\ud800"}',
}


@pytest.mark.parametrize("name", MALFORMED)
def test_a_malformed_message_is_refused_in_words_and_with_no_other_error(name: str) -> None:
    with pytest.raises(InvalidInputError) as caught:
        parse_message(MALFORMED[name], PREFIX)

    assert len(str(caught.value)) < 1000


@pytest.mark.parametrize("name", MALFORMED)
def test_a_malformed_message_fails_alone_and_the_rest_of_the_batch_is_done(
    remote: Remote, name: str
) -> None:
    (path,) = remote.upload(piece(0, 10))

    batch = handle(remote, MALFORMED[name], s3_event(path))

    assert list(batch.failed) == ["m0"]
    assert [each.next_offset for each in batch.reports] == [10]


# A batch.


def test_each_stream_of_a_batch_is_brought_forward_once(remote: Remote) -> None:
    ours = remote.upload(*chain(5))
    theirs = remote.upload(*chain(3, stream=OTHER))
    remote.forget()

    batch = handle(remote, *(s3_event(path) for path in (*ours, *theirs, *ours)))

    assert batch.failed == {}
    assert {each.stream: each.next_offset for each in batch.reports} == {STREAM: 50, OTHER: 30}
    assert remote.catalog.calls["commit"] == 2


def test_one_message_with_several_records_names_several_streams(remote: Remote) -> None:
    paths = remote.upload(piece(0, 10), piece(0, 10, stream=OTHER))

    batch = handle(remote, s3_event(*paths))

    assert {each.stream for each in batch.reports} == {STREAM, OTHER}


@pytest.mark.parametrize("place", [0, 1, 2])
def test_good_records_are_done_wherever_a_foreign_one_stands_and_the_message_fails_for_it(
    remote: Remote, place: int
) -> None:
    keys = remote.upload(piece(0, 10), piece(0, 10, stream=OTHER))
    keys.insert(place, "somebody/else.txt")

    batch = handle(remote, s3_event(*keys))

    assert {each.stream: each.next_offset for each in batch.reports} == {STREAM: 10, OTHER: 10}
    assert isinstance(batch.failed["m0"], InvalidInputError)
    assert batch.failed["m0"].key == "somebody/else.txt"


def test_a_record_without_a_key_stops_no_good_record_of_its_message(remote: Remote) -> None:
    (path,) = remote.upload(piece(0, 10))

    batch = handle(remote, json.dumps({"Records": [{}, s3_record(path), None]}))

    assert [each.next_offset for each in batch.reports] == [10]
    assert isinstance(batch.failed["m0"], InvalidInputError)


def test_an_event_for_an_object_that_is_gone_fails_nothing(remote: Remote) -> None:
    assert handle(remote, s3_event(piece(0, 10).path(PREFIX))).failed == {}


def test_an_event_that_comes_again_after_its_commit_changes_nothing(remote: Remote) -> None:
    (path,) = remote.upload(piece(0, 10))
    handle(remote, s3_event(path))
    before = (remote.tampered(), dict(remote.items.items))

    batch = handle(remote, s3_event(path), s3_event(path))

    assert batch.failed == {}
    assert (remote.tampered(), dict(remote.items.items)) == before


@pytest.mark.parametrize("data", [b"", b"garbage", b"x" * 10_000, piece(5, 15).data])
def test_garbage_under_a_right_key_fails_its_own_message_and_names_all(
    remote: Remote, data: bytes
) -> None:
    good, bad = piece(0, 10), replace(piece(10, 20), data=data)
    remote.upload(good, bad)

    batch = handle(remote, s3_event(bad.path(PREFIX)), s3_event(good.path(PREFIX)))

    assert list(batch.failed) == ["m0"]
    error = batch.failed["m0"]
    assert isinstance(error, RefusedFragmentError)
    for part in (STREAM, "offset 10", bad.path(PREFIX)):
        assert part in str(error)
    assert remote.ranges() == [(0, 10, good.key.uid)]


def test_a_bad_fragment_fails_only_the_message_that_announces_it(remote: Remote) -> None:
    good, bad, later = piece(0, 10), replace(piece(10, 20), data=b"?"), piece(20, 30)
    paths = remote.upload(good, bad, later)

    batch = handle(remote, *(s3_event(path) for path in paths), json.dumps({"stream": STREAM}))

    assert list(batch.failed) == ["m1"]


def test_the_event_of_a_bad_fragment_fails_until_another_upload_has_taken_its_place(
    remote: Remote,
) -> None:
    bad = replace(piece(0, 10), data=b"?")
    (path,) = remote.upload(bad)
    assert list(handle(remote, s3_event(path)).failed) == ["m0"]
    assert list(handle(remote, s3_event(path)).failed) == ["m0"]

    remote.upload(piece(0, 10, uid=2**63))

    assert list(handle(remote, s3_event(path)).failed) == ["m0"], "refused, and replaced"
    assert handle(remote, s3_event(path)).failed == {}, "no run needs it any more"


def test_an_unknown_stream_fails_each_of_its_messages_with_its_own_key_and_offset(
    remote: Remote,
) -> None:
    unknown = [piece(n * 10, n * 10 + 10, stream="__nobody_1") for n in range(2)]
    remote.upload(*unknown)
    (path,) = remote.upload(piece(0, 10))
    before = remote.tampered()

    batch = handle(
        remote, *(s3_event(each.path(PREFIX)) for each in unknown), s3_event(path),
        json.dumps({"stream": "__nobody_1"}),
    )  # fmt: skip

    assert list(batch.failed) == ["m0", "m1", "m3"]
    for number, each in enumerate(unknown):
        error = batch.failed[f"m{number}"]
        assert isinstance(error, NotFoundError)
        for part in ("__nobody_1", f"offset {number * 10}", each.path(PREFIX)):
            assert part in str(error)
    assert batch.failed["m3"].key is None
    assert batch.failed["m3"].stream == "__nobody_1"
    assert "__nobody_1" not in remote.items.items
    assert before.items() <= remote.tampered().items()
    assert [each.next_offset for each in batch.reports] == [10]


def test_a_damaged_root_fails_its_streams_messages_and_no_others(remote: Remote) -> None:
    ours, theirs = remote.upload(piece(0, 10), piece(0, 10, stream=OTHER))
    root_key = remote.items.items[STREAM].root_key
    remote.memory.objects[root_key] = b"damaged"
    remote.context = remote.new_context()

    batch = handle(remote, s3_event(ours), s3_event(theirs))

    assert list(batch.failed) == ["m0"]
    assert isinstance(batch.failed["m0"], CorruptDataError)
    assert (batch.failed["m0"].stream, batch.failed["m0"].key) == (STREAM, root_key)
    assert [each.stream for each in batch.reports] == [OTHER]


def test_an_outage_of_one_stream_fails_its_messages_and_no_others(remote: Remote) -> None:
    ours, theirs = remote.upload(piece(0, 10), piece(0, 10, stream=OTHER))

    def outage(stream: str) -> None:
        raise UnavailableError("down")

    remote.catalog.before["get"] = outage
    batch = handle(remote, s3_event(ours), s3_event(theirs))

    assert list(batch.failed) == ["m0"]
    assert batch.failed["m0"].stream == STREAM
    assert [each.stream for each in batch.reports] == [OTHER]
    assert handle(remote, s3_event(ours)).reports[0].next_offset == 10


def test_a_stream_that_is_being_deleted_fails_its_messages(remote: Remote) -> None:
    (path,) = remote.upload(piece(0, 10))
    item = remote.items.items[STREAM]
    remote.items.items[STREAM] = replace(item, state=StreamState.DELETING)

    batch = handle(remote, s3_event(path))

    assert isinstance(batch.failed["m0"], ConflictError)


def test_a_hole_that_is_announced_enters_no_manifest_yet(remote: Remote) -> None:
    key = replace(piece(0, 10).key, kind="hole").path(PREFIX)
    remote.memory.put(key, b"", write_id="w")

    batch = handle(remote, s3_event(key))

    assert batch.failed == {}
    assert remote.ranges() == []


def test_a_record_of_a_deletion_is_only_a_reason_to_look(remote: Remote) -> None:
    (path,) = remote.upload(piece(0, 10))
    record: dict[str, Any] = s3_record(path) | {"eventName": "ObjectRemoved:Delete"}

    batch = handle(remote, json.dumps({"Records": [record]}))

    assert [each.next_offset for each in batch.reports] == [10]


def test_an_unexpected_exception_of_one_stream_fails_its_own_messages_only(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    remote = Remote().claimed().claimed(stream=OTHER)
    good = remote.upload(*chain(2, stream=OTHER))
    bad = remote.upload(*chain(1))

    def failing(context: Context, stream: str, **more: Any) -> CommitReport:
        if stream == STREAM:
            raise ZeroDivisionError("a bug")
        return commit_runs(context, stream, **more)

    monkeypatch.setattr("coldstream.usecases.handle_events.commit_runs", failing)
    bodies = [s3_event(key) for key in (*bad, *good)]

    report = handle_messages(remote.context, messages(bodies), pause=no_pause)

    assert set(report.failed) == {"m0"}
    error = report.failed["m0"]
    assert isinstance(error, InternalError)
    assert (error.stream, "ZeroDivisionError" in str(error)) == (STREAM, True)
    assert [each.fragments for each in report.reports] == [2]


def once() -> Callable[[], bool]:
    """Time for one look."""
    left = iter([True])
    return lambda: next(left, False)


class Asked(list[str]):
    """Takes streams that are to be looked at again."""

    def ask(self, stream: str) -> None:
        self.append(stream)


def test_a_long_backlog_is_asked_for_anew_and_no_message_fails(
    remote: Remote,
) -> None:
    paths = remote.claimed().upload(*chain(1200))
    asked, calls, bodies = Asked(), 0, [s3_event(*paths[:3])]

    while bodies:
        calls += 1
        report = handle_messages(
            remote.new_context(),
            messages(bodies),
            pause=no_pause,
            time_left=once(),
            requests=asked,
        )
        assert report.failed == {}
        bodies = [json.dumps({"stream": stream}) for stream in asked]
        asked.clear()

    assert remote.root().next_offset == 12_000
    assert calls == 3


def test_a_backlog_of_more_than_sixteen_links_ends_in_the_manifest_and_in_no_dead_letter(
    remote: Remote, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Lambda's own guard against loops would cut the chain there; `infra.commit` turns it off."""
    monkeypatch.setattr(
        "coldstream.usecases.handle_events.commit_runs", partial(commit_runs, limit=5)
    )
    paths = remote.claimed().upload(*chain(120))
    asked, links, bodies = Asked(), 0, [s3_event(paths[0])]

    while bodies:
        links += 1
        report = handle_messages(
            remote.new_context(),
            messages(bodies),
            pause=no_pause,
            time_left=once(),
            requests=asked,
        )
        assert report.failed == {}
        bodies = [json.dumps({"stream": stream}) for stream in asked]
        asked.clear()

    assert remote.root().next_offset == 1200
    assert links >= 20


def test_streams_that_no_time_was_left_for_are_asked_for_too(remote: Remote) -> None:
    remote.claimed().claimed(stream=OTHER)
    asked = Asked()

    report = handle_messages(
        remote.new_context(),
        messages([json.dumps({"stream": each}) for each in (STREAM, OTHER)]),
        pause=no_pause,
        time_left=once(),
        requests=asked,
    )

    assert (asked, report.failed) == ([OTHER], {})


def test_a_backlog_that_cannot_be_asked_for_comes_back_by_its_messages(remote: Remote) -> None:
    paths = remote.claimed().upload(*chain(600))

    class Broken:
        def ask(self, stream: str) -> None:
            raise UnavailableError("no queue", stream=stream)

    report = handle_messages(
        remote.new_context(),
        messages([s3_event(paths[0])]),
        pause=no_pause,
        time_left=once(),
        requests=Broken(),
    )

    assert len(report.failed) == 1


def test_messages_of_a_stream_of_which_more_is_to_be_committed_come_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    remote = Remote().claimed()
    paths = remote.upload(*chain(2))

    def some(context: Context, stream: str, **more: Any) -> CommitReport:
        return replace(commit_runs(context, stream, **more), more=True)

    monkeypatch.setattr("coldstream.usecases.handle_events.commit_runs", some)

    report = handle(remote, *(s3_event(path) for path in paths))

    assert set(report.failed) == {"m0", "m1"}
    assert all(isinstance(error, UnavailableError) for error in report.failed.values())
    assert [each.fragments for each in report.reports] == [2]


def test_a_batch_that_ran_out_of_time_leaves_nothing_behind_in_the_process(remote: Remote) -> None:
    """Found in the simulator, which grew: one error for all batches kept the stack of each."""
    (key,) = remote.upload(*chain(1))

    def batch() -> weakref.ref[Any]:
        def time_left() -> bool:
            return False

        report = handle_messages(
            remote.context, messages((s3_event(key),)), pause=no_pause, time_left=time_left
        )
        (error,) = report.failed.values()
        assert isinstance(error, UnavailableError)
        return weakref.ref(time_left)

    gone = batch()
    gc.collect()

    assert gone() is None
