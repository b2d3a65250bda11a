"""Every small batch of queue messages: exactly those of what went wrong come back.

Two streams, of each of which there may come an event of S3 with one record, a message that only
names it, or an event with records of both; and messages that cannot be read, whole or in part. Each
stream is brought forward, or fails in one of several ways. All batches of up to three messages are
tried against all pairs of fates, and what must come back is said by a table that looks at one
message at a time.

Why that is enough: a message fails by itself or by its streams, and what is said of one is never
said of another; three messages of two streams have every way to share a stream and to stand before,
between and behind others.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import product

import pytest

from coldstream.adapters.memory import MemoryCatalog, MemoryObjectStore
from coldstream.errors import (
    ColdstreamError,
    ConflictError,
    CorruptDataError,
    InternalError,
    InvalidInputError,
    NotFoundError,
    RefusedFragmentError,
    UnavailableError,
)
from coldstream.manifest.root import Root
from coldstream.remote.context import Context
from coldstream.usecases import handle_events
from coldstream.usecases.commit_runs import CommitReport
from coldstream.usecases.handle_events import handle_messages

A, B = "__a_1", "__b_1"
KEYS = {
    stream: f"rabbitmq/stream/{stream}/data/{0:020d}-{10:020d}.{1:010d}.{7:016x}.fragment"
    for stream in (A, B)
}


def event(*keys: object) -> str:
    return json.dumps({"Records": [{"s3": {"object": {"key": key}}} for key in keys]})


@dataclass(frozen=True)
class Sort:
    """A sort of message.

    Attributes:
        body: of it.
        announces: streams of which it announces the one fragment.
        names: streams that it only names.
        unreadable: whether it, or a record of it, cannot be read.
    """

    body: str
    announces: str = ""
    names: str = ""
    unreadable: bool = False

    @property
    def streams(self) -> set[str]:
        return {{"a": A, "b": B}[each] for each in self.announces + self.names}


SORTS = {
    "event of a": Sort(event(KEYS[A]), announces="a"),
    "event of b": Sort(event(KEYS[B]), announces="b"),
    "event of both": Sort(event(KEYS[A], KEYS[B]), announces="ab"),
    "name of a": Sort(json.dumps({"stream": A}), names="a"),
    "event of a and a foreign key": Sort(event(KEYS[A], "else.txt"), "a", unreadable=True),
    "foreign key and event of b": Sort(event(None, KEYS[B]), "b", unreadable=True),
    "no JSON": Sort("{", unreadable=True),
    "foreign key": Sort(event("else.txt"), unreadable=True),
    "test event": Sort('{"Event": "s3:TestEvent"}'),
}


class Bug(Exception):  # noqa: N818 - none of ours
    """What nobody expects."""


#: What becomes of a stream: what is raised, or what its report says.
FATES: dict[str, Exception | str] = {
    "done": "",
    "refuses its fragment": "refused",
    "more is left": "more",
    "unavailable": UnavailableError("down"),
    "unknown": NotFoundError("who?"),
    "damaged": CorruptDataError("root", key="the/root"),
    "lost again and again": ConflictError("others"),
    "a bug": Bug("of ours"),
    "no time": "no time",
}


class Streams:
    """Instead of `commit_runs`: what becomes of each stream, and how often it was asked for."""

    def __init__(self, fates: dict[str, str]) -> None:
        self.asked: list[str] = []
        self._fates = {stream: FATES[fate] for stream, fate in fates.items()}

    def commit_runs(self, context: Context, stream: str, **_: object) -> CommitReport:
        self.asked.append(stream)
        fate = self._fates[stream]
        if isinstance(fate, Exception):
            raise fate
        refused = RefusedFragmentError("bad", stream=stream, key=KEYS[stream])
        return CommitReport(
            stream, 1, 0, 1, 10, 2, 10, Root(0, 10),
            (refused,) if fate == "refused" else (), more=fate == "more",
        )  # fmt: skip

    def time_left(self, next_one: Callable[[], str]) -> bool:
        return self._fates[next_one()] != "no time"


def expected(sort: Sort, fates: dict[str, str]) -> set[type[ColdstreamError]]:
    """The errors that a message of this sort may fail with; none if it is done."""
    found: set[type[ColdstreamError]] = {InvalidInputError} if sort.unreadable else set()
    for stream in sort.streams:
        fate = FATES[fates[stream]]
        if isinstance(fate, Bug):
            found.add(InternalError)
        elif isinstance(fate, ColdstreamError):
            found.add(type(fate))
        elif fate in ("more", "no time"):
            found.add(UnavailableError)
        elif fate == "refused" and KEYS[stream] in sort.body:
            found.add(RefusedFragmentError)
    return found


def all_batches() -> Iterator[tuple[str, ...]]:
    yield ()
    for length in (1, 2, 3):
        yield from product(SORTS, repeat=length)


def look_at(names: tuple[str, ...], fates: dict[str, str], patch: pytest.MonkeyPatch) -> None:
    streams = Streams(fates)
    patch.setattr(handle_events, "commit_runs", streams.commit_runs)
    messages = [(f"m{number}", SORTS[name].body) for number, name in enumerate(names)]
    order: list[str] = []  # in which the streams come first
    for name in names:
        body = SORTS[name].body
        order += sorted(SORTS[name].streams - set(order), key=body.index)
    turns = iter(order)
    context = Context(MemoryObjectStore(), MemoryCatalog(), "rabbitmq/", lambda: 1)

    report = handle_messages(
        context,
        messages,
        pause=lambda _: None,
        time_left=lambda: streams.time_left(lambda: next(turns)),
    )

    wanted = {f"m{n}": expected(SORTS[name], fates) for n, name in enumerate(names)}
    assert set(report.failed) == {each for each, errors in wanted.items() if errors}
    for message, error in report.failed.items():
        sort = SORTS[names[int(message[1:])]]
        assert type(error) in wanted[message]
        if not isinstance(error, InvalidInputError):
            assert error.stream in sort.streams
            mine = {KEYS[each] for each in sort.streams if KEYS[each] in sort.body}
            assert error.key in {None, "the/root", *mine}
            assert error.key or not mine, "it names the object that it is about"
    timely = [each for each in order if FATES[fates[each]] != "no time"]
    assert streams.asked == timely, "each stream once, in the order in which they were named"
    good = [each for each in timely if isinstance(FATES[fates[each]], str)]
    assert [each.stream for each in report.reports] == good
    for exc in FATES.values():
        assert not isinstance(exc, ColdstreamError) or exc.stream is None, "it was said of a copy"


@pytest.mark.parametrize("fate_of_a", FATES)
def test_exactly_the_messages_of_what_went_wrong_come_back(
    fate_of_a: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for fate_of_b in FATES:
        for names in all_batches():
            if len(names) == 3 and fate_of_b not in ("done", "unavailable"):
                continue
            try:
                look_at(names, {A: fate_of_a, B: fate_of_b}, monkeypatch)
            except Exception as exc:
                raise AssertionError(f"{names}, {A}: {fate_of_a}, {B}: {fate_of_b}") from exc


#: What may stand anywhere in a message.
ANYTHING: tuple[object, ...] = (
    None, 7, True, "", "x", KEYS[A], [], {}, [None], {"key": KEYS[A]}, {"key": "else.txt"},
    {"object": {"key": KEYS[A]}}, {"s3": {"object": {"key": KEYS[A]}}},
)  # fmt: skip


def streams_in(message: object) -> tuple[set[str], bool]:
    """The streams that a message names by the naive reading, and whether all of it can be read."""
    if not isinstance(message, dict):
        return set(), False
    if message.get("Event") == "s3:TestEvent":
        return set(), True
    if "stream" in message:
        known = message["stream"] in (A, B)
        return ({message["stream"]} if known else set()), known
    records = message.get("Records")
    if not isinstance(records, list) or not records:
        return set(), False
    good = {"s3": {"object": {"key": KEYS[A]}}}
    return ({A} if good in records else set()), all(each == good for each in records)


def all_messages() -> Iterator[object]:
    yield from ANYTHING
    for each in ANYTHING:
        yield {"Records": each}
        yield {"stream": A if each == "x" else each} if each != "" else {"stream": B}
        yield {"Event": "s3:TestEvent", "Records": each}
        yield {"Event": each}
        for other in ANYTHING:
            yield {"Records": [each, other]}
            yield {"Records": [{"s3": each}, other]}
            yield {"Records": [{"s3": {"object": each}}, other]}


def test_what_can_be_read_of_a_message_is_done_and_the_rest_fails_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    context = Context(MemoryObjectStore(), MemoryCatalog(), "rabbitmq/", lambda: 1)
    for message in all_messages():
        if isinstance(message, dict) and message.get("stream") in ("x", KEYS[A]):
            continue
        streams = Streams({A: "done", B: "done"})
        monkeypatch.setattr(handle_events, "commit_runs", streams.commit_runs)
        named, readable = streams_in(message)

        report = handle_messages(
            context, [("m", json.dumps(message)), ("n", "{")], pause=lambda _: None
        )

        assert set(streams.asked) == named, message
        assert set(report.failed) == ({"n"} if readable else {"m", "n"}), message
        assert all(isinstance(each, InvalidInputError) for each in report.failed.values())


def test_a_message_at_which_the_parser_breaks_fails_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    streams = Streams({A: "done", B: "done"})
    monkeypatch.setattr(handle_events, "commit_runs", streams.commit_runs)
    parse = handle_events.parse_message

    def breaks(body: str, prefix: str) -> object:
        if body == "bug":
            raise Bug("of ours")
        return parse(body, prefix)

    monkeypatch.setattr(handle_events, "parse_message", breaks)
    context = Context(MemoryObjectStore(), MemoryCatalog(), "rabbitmq/", lambda: 1)
    for at in range(3):
        streams.asked.clear()
        bodies = [event(KEYS[A]), event(KEYS[B])]
        bodies.insert(at, "bug")
        report = handle_messages(
            context, [(f"m{n}", body) for n, body in enumerate(bodies)], pause=lambda _: None
        )
        assert {key: type(each) for key, each in report.failed.items()} == {f"m{at}": InternalError}
        assert streams.asked == [A, B]
