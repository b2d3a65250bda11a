"""The library as programs use it: its surface, its manual, threads and asyncio."""

from __future__ import annotations

import asyncio
import inspect
import re
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import aclosing
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from coldstream import errors, reader
from coldstream.adapters.settings import MisconfiguredError
from coldstream.errors import (
    ColdstreamError,
    CorruptDataError,
    InvalidInputError,
    LostRangeError,
    NotFoundError,
    UnavailableError,
)
from coldstream.manifest.catalog import QueueName, StreamState
from coldstream.manifest.entries import Entries
from coldstream.osiris.bloom import encode_bloom
from coldstream.osiris.chunk import ChunkHeader
from coldstream.reader import (
    AsyncRemoteTier,
    AsyncStream,
    Filter,
    First,
    Gap,
    GapReason,
    Last,
    Message,
    Next,
    Offset,
    RemoteTier,
    Stream,
    Timestamp,
    open_async_tier,
    open_tier,
)
from coldstream.reader.aio import ClosedError
from coldstream.reader.spec import as_bound, as_spec
from tests.support.tier import PREFIX, SMALL, Tier, chunk

MANUAL = Path(__file__).parents[3] / "docs" / "how-to" / "read-from-python.md"
COUNT = 60


def body(n: int) -> bytes:
    return b"message %d" % n


@pytest.fixture
def tier() -> Tier:
    """Offsets 0 to 60, of which 20 to 30 are a hole."""
    tier = Tier()
    low = [chunk(n, body(n), body(n + 1), timestamp=1000 + n) for n in range(0, 20, 2)]
    high = [chunk(n, body(n), timestamp=1000 + n) for n in range(30, COUNT)]
    tier.add("__orders_1", [low, tier.hole(20, 30), high], name=QueueName("c", "/", "orders"))
    whole = [chunk(n, body(n)) for n in range(COUNT)]
    tier.add("__whole_1", [whole[:25], whole[25:]], name=QueueName("c", "/", "whole"))
    return tier


def remote(tier: Tier) -> RemoteTier:
    return RemoteTier(tier.store, tier.catalog, PREFIX, settings=SMALL)


OFFSETS = [*range(20), *range(30, COUNT)]


# Its surface.


def members() -> Iterator[tuple[str, Any]]:
    for name in reader.__all__:
        found = getattr(reader, name)
        yield name, found
        if inspect.isclass(found) and not issubclass(found, tuple):
            for attribute, value in vars(found).items():
                if not attribute.startswith("_") and (
                    inspect.isfunction(value) or isinstance(value, property | classmethod)
                ):
                    yield f"{name}.{attribute}", value


def test_all_that_is_public_says_what_it_is() -> None:
    undocumented = [
        name
        for name, found in members()
        if callable(found) and not (inspect.getdoc(found) or "").strip()
    ]

    assert undocumented == []


def test_all_that_is_public_is_typed() -> None:
    def untyped(function: Callable[..., Any]) -> bool:
        signature = inspect.signature(function)
        given = [p for p in signature.parameters.values() if p.name not in ("self", "cls")]
        return signature.return_annotation is signature.empty or any(
            p.annotation is p.empty for p in given
        )

    assert [n for n, found in members() if inspect.isfunction(found) and untyped(found)] == []


@pytest.mark.parametrize(
    "name", ["offsets", "locate", "chunks", "entries", "messages", "events", "to_arrow"]
)
def test_asyncio_has_the_same_methods_with_the_same_arguments(name: str) -> None:
    blocking = inspect.signature(getattr(Stream, name)).parameters
    other = inspect.signature(getattr(AsyncStream, name)).parameters

    assert [*other] == [*blocking] or "options" in other
    for each in other.values():
        if each.name in blocking:
            assert each.default == blocking[each.name].default
            assert each.kind == blocking[each.name].kind


def test_the_manual_names_every_method_and_every_entry_point() -> None:
    text = MANUAL.read_text()
    public = [each for each in vars(Stream) if not each.startswith("_")]

    for each in [*public, "open_tier", "open_async_tier", "keep_freed_memory", "MemoryBudget"]:
        assert each in text or each in {"directory", "locate"}, each


def test_the_manual_runs(tier: Tier, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("pyarrow")
    orders = tier.catalog.get("__whole_1")
    assert orders is not None
    opened = remote(tier)
    real = opened.stream
    monkeypatch.setattr(
        opened,
        "stream",
        lambda name, **policy: real(name.replace("orders", "whole"), **policy),
    )
    monkeypatch.setattr(reader, "open_tier", lambda: opened)
    monkeypatch.setattr(reader, "open_async_tier", lambda: AsyncRemoteTier(opened))
    said: list[tuple[object, ...]] = []
    names: dict[str, object] = {"print": lambda *words: said.append(words)}

    blocks = re.findall(r"```python\n(.*?)```", MANUAL.read_text(), re.DOTALL)
    for block in blocks:
        exec(compile(block, str(MANUAL), "exec"), names)

    assert len(blocks) >= 7
    assert said[0] == (0, 1000, body(0))
    assert said[-1] == (COUNT,)
    assert names["position"] == COUNT


def test_errors_say_whether_to_try_again() -> None:
    known = {each for each in vars(errors).values() if inspect.isclass(each)} | {MisconfiguredError}
    again = {each for each in known if getattr(each, "may_retry", False)}

    assert again == {errors.UnavailableError, errors.ConflictError}


# What is read.


@pytest.mark.parametrize("name", ["//orders", "orders", "__orders_1"])
def test_a_stream_is_opened_by_any_of_its_names(tier: Tier, name: str) -> None:
    stream = remote(tier).stream(name)

    assert (stream.directory, stream.vhost, stream.queue) == ("__orders_1", "/", "orders")
    assert stream.offsets() == (0, COUNT)
    assert sorted(remote(tier).names()) == ["//orders", "//whole"]


def test_every_name_that_a_tier_gives_opens_its_stream() -> None:
    """After a queue was declared anew it gave a name of two, and refused it."""
    tier = Tier()
    live, gone = StreamState.LIVE, StreamState.DELETED
    for stream, vhost, queue, state in (
        ("__ded_1", "/", "ded", live),
        ("__ded_2", "/", "ded", live),
        ("__anew_1", "/", "anew", gone),
        ("__anew_2", "/", "anew", live),
        ("__only_1", "/", "only", live),
        ("v_only_1", "v", "only", live),
        ("w___only_1", "w", "//only", live),
        ("__nameless_1", "", "", live),
    ):
        tier.add(stream, [[chunk(0, b"x")]], name=QueueName("c", vhost, queue))
        tier.catalog.items[stream] = replace(tier.catalog.items[stream], state=state)
    opened = remote(tier)

    names = list(opened.names())

    found = {name: opened.stream(name).directory for name in names}
    assert sorted(found.values()) == sorted(set(tier.catalog.items) - {"__anew_1"})
    assert found["//anew"] == "__anew_2"
    assert found["v/only"] == "v_only_1"
    assert {"__ded_1", "__ded_2", "__nameless_1"} <= set(names)


def test_a_stream_that_there_is_not_is_told(tier: Tier) -> None:
    with pytest.raises(NotFoundError):
        remote(tier).stream("//none")


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ("first", First()),
        ("last", Last()),
        (Next(), Next()),
        (7, Offset(7)),
        ("7", Offset(7)),
        (Timestamp(5), Timestamp(5)),
        (datetime(1970, 1, 1, 0, 0, 1, 1, UTC), Timestamp(1001)),
        (datetime(1970, 1, 1, 0, 0, 1), Timestamp(1000)),
    ],
)
def test_a_spec_may_be_given_as_what_it_is_anywhere(given: Any, meant: object) -> None:
    assert as_spec(given) == meant


@pytest.mark.parametrize("given", [-1, True, None, 1.5, "soon", 2**64])
def test_what_is_no_spec_is_refused(given: Any) -> None:
    with pytest.raises(InvalidInputError):
        as_spec(given)


def test_an_end_is_an_offset_or_a_time() -> None:
    assert as_bound("5") == Offset(5)
    with pytest.raises(InvalidInputError):
        as_bound("first")


def test_messages_entries_and_chunks_are_the_same_history(tier: Tier) -> None:
    stream, gaps = remote(tier).stream("orders"), list[Gap]()

    messages = list(stream.messages(on_gap=gaps.append))
    entries = list(stream.entries(on_gap=gaps.append))
    chunks = list(stream.chunks(on_gap=gaps.append))

    assert [m.offset for m in messages] == OFFSETS
    assert [bytes(m.body) for m in messages] == [body(n) for n in OFFSETS]
    assert [e.offset for e in entries] == OFFSETS
    assert sum(c.header.records for c in chunks) == len(OFFSETS)
    assert gaps == [Gap(20, 30, GapReason.HOLE)] * 3


def test_an_event_tells_of_a_gap_in_its_turn(tier: Tier) -> None:
    events = list(remote(tier).stream("orders").events(18, 32))

    assert [e if isinstance(e, Gap) else e.offset for e in events] == [18, 19, Gap(20, 30), 30, 31]


def test_a_gap_that_nobody_asked_to_be_told_of_stops_the_read(tier: Tier) -> None:
    found = remote(tier).stream("orders").messages(19)

    assert next(found).offset == 19
    with pytest.raises(LostRangeError) as error:
        next(found)
    assert error.value.offset == 20


@pytest.fixture
def cut(tier: Tier) -> Tier:
    """The same, and retention has taken all of `whole` below 25."""
    root = tier.reader("__whole_1").snapshot().root
    entries = Entries.of(list(root.entries)[1:])
    tier.commit("__whole_1", replace(root, first_offset=25, entries=entries))
    return tier


WAYS: list[Callable[..., Any]] = [
    lambda stream, *bounds, **more: list(stream.messages(*bounds, **more)),
    lambda stream, *bounds, **more: list(stream.chunks(*bounds, **more)),
    lambda stream, *bounds, **more: list(stream.entries(*bounds, **more)),
    lambda stream, *bounds, **more: stream.to_arrow(*bounds, columns=["offset"], **more),
]


@pytest.mark.parametrize("way", WAYS, ids=["messages", "chunks", "entries", "arrow"])
@pytest.mark.parametrize(
    ("bounds", "missed"),
    [
        ((0,), (0, 25)),
        ((10, 30), (10, 25)),
        ((10, 20), (10, 20)),
        ((24, "2100-01-01"), (24, 25)),
        ((25,), None),
        ((10, 10), None),
        (("first",), None),
        (("first", 20), None),
        (("timestamp:1",), None),
    ],
)
def test_what_is_missing_between_an_offset_and_the_first_one_is_a_gap_in_every_way_to_read(
    cut: Tier, way: Callable[..., Any], bounds: tuple[Any, ...], missed: tuple[int, int] | None
) -> None:
    """Who goes on behind his last message was given a later one, and no word of those between."""
    pytest.importorskip("pyarrow")
    stream, gaps = remote(cut).stream("whole"), list[Gap]()

    found = way(stream, *bounds, on_gap=gaps.append)

    assert gaps == ([Gap(*missed, GapReason.RETENTION)] if missed else [])
    assert bool(len(found)) is (bounds not in {(10, 20), (10, 10), ("first", 20)})
    if missed:
        with pytest.raises(LostRangeError, match=f"offsets {missed[0]} to {missed[1] - 1}"):
            way(stream, *bounds)


def test_who_follows_is_told_once_of_what_is_missing_where_he_begins(cut: Tier) -> None:
    found = remote(cut).stream("whole").events(20, follow=True, poll_seconds=0)

    first = [next(found) for _ in range(COUNT - 25 + 1)]
    root = cut.reader("__whole_1").snapshot().root
    new = cut.upload("__whole_1", [chunk(COUNT, body(COUNT))], epoch=1, floor=0)
    entries = Entries.of([*root.entries, new])
    cut.commit("__whole_1", replace(root, entries=entries, next_offset=COUNT + 1))
    first.append(next(found))
    found.close()

    offsets = [each if isinstance(each, Gap) else each.offset for each in first]
    assert offsets == [Gap(20, 25, GapReason.RETENTION), *range(25, COUNT + 1)]


def test_what_comes_while_a_read_follows_is_given_once(tier: Tier) -> None:
    root = tier.catalog.get("__whole_1")
    assert root is not None
    stream = remote(tier).stream("whole")
    found = stream.messages(COUNT - 1, follow=True, poll_seconds=0)
    assert next(found).offset == COUNT - 1

    old = stream.reader.snapshot().root
    new = tier.upload("__whole_1", [chunk(COUNT, body(COUNT))], epoch=1, floor=0)
    grown = replace(old, entries=Entries.of([*old.entries, new]), next_offset=COUNT + 1)
    tier.commit("__whole_1", grown)

    assert next(found).offset == COUNT
    found.close()


def test_what_a_deleted_stream_had_lost_before_is_told_before_its_end(tier: Tier) -> None:
    """ "All that it had was read" would be wrong of what was cut off after it was read."""

    def cut_and_delete(stream: AsyncStream) -> None:
        old = stream.stream.reader.snapshot().root
        kept, ledger = Entries.of(list(old.entries)[:1]), old.ledger.claimed(2, 25)
        cut = replace(old, entries=kept, next_offset=25, epoch=2, ledger=ledger)
        tier.commit("__whole_1", cut)
        items = tier.catalog.items
        items["__whole_1"] = replace(items["__whole_1"], state=StreamState.DELETING)

    async def read(stream: AsyncStream, gaps: list[Gap]) -> None:
        async with aclosing(stream.events("first", follow=True, poll_seconds=0)) as found:
            async for each in found:
                if isinstance(each, Gap):
                    gaps.append(each)
                elif each.offset == COUNT - 1:
                    cut_and_delete(stream)

    async def use(stream: AsyncStream) -> list[Gap]:
        gaps: list[Gap] = []
        with pytest.raises(NotFoundError, match="was deleted"):
            await read(stream, gaps)
        return gaps

    assert run(tier, use, "whole") == [Gap(25, COUNT, GapReason.TRUNCATION)]


def test_an_end_before_the_beginning_is_refused_by_every_way_to_read(tier: Tier) -> None:
    stream = remote(tier).stream("whole")
    ways: list[Callable[[int, int], Iterator[object]]]
    ways = [stream.messages, stream.entries, stream.events, stream.chunks]
    for read in ways:
        with pytest.raises(InvalidInputError, match="end 5 lies before begin 10"):
            next(read(10, 5))


def test_a_read_that_follows_has_no_end(tier: Tier) -> None:
    with pytest.raises(InvalidInputError):
        remote(tier).stream("whole").messages(0, 5, follow=True)


def filtered(n: int, value: bytes) -> bytes:
    plain = chunk(n, body(n))
    bloom = encode_bloom([value])
    header = ChunkHeader(*(getattr(_header(plain), f) for f in ChunkHeader.__dataclass_fields__))
    return replace(header, bloom_size=len(bloom)).encode() + bloom + plain[48:]


def _header(data: bytes) -> ChunkHeader:
    from tests.support.tier import headers_of

    return headers_of([data])[0]


def test_entries_begin_and_end_where_messages_do(tier: Tier) -> None:
    """Who went on behind the last one was given the beginning of its chunk once more."""
    stream = remote(tier).stream("orders")

    for begin, end in ((0, 1), (5, 8), (6, 7), (19, 20), (31, 40)):
        assert [each.offset for each in stream.entries(begin, end)] == [*range(begin, end)]
    batches = remote(tier)
    tier.add_fixture("subgzip-4.3.6")
    of_batches = batches.stream("fx_subgzip-4_3_6")
    every = list(of_batches.entries())
    assert max(each.records for each in every) > 2
    for number in (1, len(every) // 2):
        inside = every[number].offset + every[number].records - 1
        assert [each.offset for each in of_batches.entries(inside)] == [
            each.offset for each in every[number:]
        ]


def test_no_entry_comes_twice_where_history_was_cut_off_below_it() -> None:
    tier, gaps = Tier(), list[Gap]()
    root = tier.add("s", [[chunk(0, *[b"old"] * 4)], [chunk(4, *[b"old"] * 4)]])
    settings = replace(SMALL, in_flight=1, refresh_seconds=0)
    opened = RemoteTier(tier.store, tier.catalog, PREFIX, settings=settings)
    entries = opened.stream("s").entries(on_gap=gaps.append)
    found = [next(entries).offset]

    anew = tier.upload("s", [chunk(1, *[b"new"] * 9, epoch=2)], epoch=2, floor=1)
    first = tier.upload("s", [chunk(0, b"old")], epoch=1, floor=0)
    cut = replace(
        root,
        next_offset=10,
        epoch=2,
        ledger=root.ledger.claimed(2, 1),
        entries=Entries.of([first, anew]),
    )
    tier.commit("s", cut)
    found += [each.offset for each in entries]

    assert found == [*range(8)]
    assert gaps == [Gap(1, 4, GapReason.TRUNCATION)]


def test_a_filter_passes_over_chunks_without_its_value() -> None:
    tier = Tier()
    tier.add("s", [[filtered(n, b"eu" if n % 2 else b"us") for n in range(10)]])

    found = remote(tier).stream("s").messages(only=Filter(["eu"]))

    assert [m.offset for m in found] == [1, 3, 5, 7, 9]


def test_arrow_has_the_rows_of_all_messages(tier: Tier) -> None:
    pytest.importorskip("pyarrow")
    stream, gaps = remote(tier).stream("orders"), list[Gap]()

    table = stream.to_arrow(3, 40, columns=["offset", "queue"], on_gap=gaps.append)

    assert table.column("offset").to_pylist() == [n for n in OFFSETS if 3 <= n < 40]
    assert set(table.column("queue").to_pylist()) == {"orders"}
    assert gaps == [Gap(20, 30)]
    with pytest.raises(InvalidInputError):
        stream.to_arrow(columns=["none"])


def test_a_gap_is_told_after_the_arrow_rows_that_stand_before_it(tier: Tier) -> None:
    """Who goes on behind the gap that he was told of would pass over rows that he never got."""
    pytest.importorskip("pyarrow")
    stream, told = remote(tier).stream("orders"), list[object]()

    for batch in stream.arrow_batches(columns=["offset"], on_gap=told.append):
        told.append(batch.column("offset").to_pylist())

    assert told == [list(range(20)), Gap(20, 30), list(range(30, COUNT))]


@pytest.mark.parametrize(
    ("name", "error", "count"), [("orders", LostRangeError, 20), ("whole", NotFoundError, 25)]
)
def test_arrow_gives_all_rows_before_what_stops_it(
    tier: Tier, name: str, error: type[ColdstreamError], count: int
) -> None:
    pytest.importorskip("pyarrow")
    root = tier.reader("__whole_1").snapshot().root
    del tier.store.objects[tier.key(root, "__whole_1", 1)]
    batches = remote(tier).stream(name).arrow_batches(columns=["offset"])

    assert next(batches).column("offset").to_pylist() == list(range(count))
    with pytest.raises(error):
        next(batches)


def test_nothing_is_opened_without_a_name(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("COLDSTREAM_BUCKET", "COLDSTREAM_TABLE"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(InvalidInputError, match="COLDSTREAM_BUCKET and no COLDSTREAM_TABLE"):
        open_tier()


# asyncio.


async def into(found: list[Any], items: AsyncIterator[Any]) -> None:
    async for each in items:
        found.append(each)  # noqa: PERF401  # what came before an error counts


async def collect(items: AsyncIterator[Any]) -> list[Any]:
    return [each async for each in items]


def run(tier: Tier, use: Callable[[AsyncStream], Any], name: str = "orders") -> Any:
    async def main() -> Any:
        async with AsyncRemoteTier(remote(tier)) as opened:
            assert sorted(await opened.names()) == ["//orders", "//whole"]
            return await use(await opened.stream(name))

    return asyncio.run(main())


def test_asyncio_reads_the_same(tier: Tier) -> None:
    async def use(stream: AsyncStream) -> None:
        gaps: list[Gap] = []
        assert stream.directory == "__orders_1"
        assert await stream.offsets() == (0, COUNT)
        assert await stream.locate("last") == COUNT - 1
        messages = await collect(stream.messages(on_gap=gaps.append))
        assert [m.offset for m in messages] == OFFSETS
        entries = await collect(stream.entries(30))
        assert [e.offset for e in entries] == [*range(30, COUNT)]
        assert len(await collect(stream.chunks(30))) == COUNT - 30
        events = await collect(stream.events(19, 31))
        assert [e for e in events if isinstance(e, Gap)] == gaps == [Gap(20, 30)]
        with pytest.raises(LostRangeError):
            await collect(stream.messages())

    run(tier, use)


def test_asyncio_tells_of_what_is_missing_where_a_read_begins(cut: Tier) -> None:
    missed = Gap(10, 25, GapReason.RETENTION)

    async def use(stream: AsyncStream) -> None:
        gaps: list[Gap] = []
        for each in (stream.messages, stream.chunks, stream.entries):
            assert len(await collect(each(10, on_gap=gaps.append))) == COUNT - 25
            with pytest.raises(LostRangeError):
                await collect(each(10))
        assert (await stream.to_arrow(10, on_gap=gaps.append)).num_rows == COUNT - 25
        assert gaps == [missed] * 4
        assert (await collect(stream.events(10)))[0] == missed

    run(cut, use, "whole")


def test_what_is_sound_comes_before_the_error_behind_it(tier: Tier) -> None:
    root = remote(tier).stream("whole").reader.snapshot().root
    tier.flip(tier.key(root, "__whole_1", 1), 400)

    async def use(stream: AsyncStream) -> list[Message]:
        found: list[Message] = []
        with pytest.raises(CorruptDataError):
            await into(found, stream.messages())
        return found

    found = run(tier, use, "whole")

    blocking: list[Message] = []
    with pytest.raises(CorruptDataError):
        blocking.extend(remote(tier).stream("whole").messages())
    assert [m.offset for m in found] == [m.offset for m in blocking]
    assert len(found) > 25


def test_a_loop_that_is_left_gives_its_memory_back(tier: Tier) -> None:
    budget = reader.MemoryBudget()
    opened = RemoteTier(tier.store, tier.catalog, PREFIX, settings=SMALL, budget=budget)

    async def main() -> None:
        async with AsyncRemoteTier(opened) as there:
            stream = await there.stream("whole")
            async with aclosing(stream.messages(follow=True, poll_seconds=0.001)) as found:
                async for each in found:
                    if each.offset == 5:
                        break
            async with asyncio.timeout(60):
                while budget.held:
                    await asyncio.sleep(0.001)

    asyncio.run(main())


def test_a_tier_that_was_closed_leaves_its_cache_to_the_next(tmp_path: Path) -> None:
    """As long as the old one was alive in the same process, another cache had the directory."""
    (tmp_path / "tier").mkdir()
    where: Any = {"endpoint": f"file://{tmp_path}/tier", "cache_dir": tmp_path / "cache"}

    async def main() -> None:
        async with open_async_tier(**where) as one:
            with pytest.raises(InvalidInputError, match="another cache"):
                open_async_tier(**where)
        async with open_async_tier(**where) as other:
            assert other is not one

    asyncio.run(main())
    tier = open_tier(**where)
    tier.close()
    open_tier(**where).close()


class Gated:
    """A bucket that is silent once a number of its objects were asked for, until it is let go."""

    def __init__(self, store: Any, objects: int) -> None:
        self._store, self._objects = store, objects
        self.asked: set[str] = set()
        self.reached, self.opened = threading.Event(), threading.Event()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def get(self, key: str, start: int, end: int) -> Any:
        self.asked.add(key)
        if len(self.asked) >= self._objects:
            self.reached.set()
            assert self.opened.wait(60)
        return self._store.get(key, start, end)


def test_an_arrow_table_for_which_nobody_waits_any_more_is_read_no_further() -> None:
    """It was read to its end in a thread, into memory, and the process ended no sooner."""
    pytest.importorskip("pyarrow")
    tier, fragments, budget = Tier(), 40, reader.MemoryBudget()
    tier.add("s", [[chunk(n, b"x" * 2**20)] for n in range(fragments)])
    store = Gated(tier.store, 10)
    opened = RemoteTier(store, tier.catalog, PREFIX, settings=SMALL, budget=budget)

    async def main() -> None:
        async with AsyncRemoteTier(opened) as there:
            stream = await there.stream("s")
            reading = asyncio.create_task(
                stream.to_arrow(columns=["offset", "body"], body_format="bytes")
            )
            assert await asyncio.to_thread(store.reached.wait, 60)
            reading.cancel()
            with pytest.raises(asyncio.CancelledError):
                await reading
            store.opened.set()
            async with asyncio.timeout(60):
                while budget.held:
                    await asyncio.sleep(0.001)

    asyncio.run(main())
    assert len(store.asked) < fragments


def test_an_answer_that_nobody_gave_may_be_asked_for_again(tier: Tier) -> None:
    class Broken:
        def __getattr__(self, name: str) -> Any:
            def fail(*_: Any, **__: Any) -> Any:
                raise UnavailableError("no answer")

            return fail

    opened = RemoteTier(Broken(), tier.catalog, PREFIX)  # type: ignore[arg-type]

    with pytest.raises(ColdstreamError) as error:
        list(opened.stream("whole").messages())

    assert error.value.may_retry


def test_what_is_read_after_the_end_of_its_tier_says_so(tier: Tier) -> None:
    async def main() -> None:
        async with AsyncRemoteTier(remote(tier)) as opened:
            stream = await opened.stream("orders")
            begun = stream.messages(follow=True, poll_seconds=0.001)
            await anext(begun)
        with pytest.raises(InvalidInputError, match="the tier was closed"):
            async for _ in begun:
                pass
        for each in (stream.offsets, stream.to_arrow, opened.names):
            with pytest.raises(InvalidInputError, match="the tier was closed"):
                await each()

    asyncio.run(main())


def test_a_read_that_waits_for_a_thread_is_told_too_that_its_tier_was_closed(
    tier: Tier, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It ended as if its task had been cancelled, and whoever had started it took it for that."""
    monkeypatch.setattr("coldstream.reader.aio._THREADS", 1)

    async def first(stream: AsyncStream) -> Message:
        return await anext(stream.messages())

    async def main() -> None:
        holds, may_go = threading.Event(), threading.Event()
        opened = AsyncRemoteTier(remote(tier))
        stream = await opened.stream("orders")

        def hold() -> None:
            holds.set()
            may_go.wait(60)

        monkeypatch.setattr(stream.stream, "offsets", hold)
        holding = asyncio.create_task(stream.offsets())
        await asyncio.to_thread(holds.wait, 60)
        reads = [asyncio.create_task(first(stream)) for _ in range(2)]
        await asyncio.sleep(0)  # both are begun
        reads[1].cancel()
        await opened.close()
        may_go.set()
        await holding
        ended = await asyncio.gather(*reads, return_exceptions=True)
        assert [type(each) for each in ended] == [ClosedError, asyncio.CancelledError]

    asyncio.run(main())


@pytest.mark.parametrize("value", ["eu", b"eu"])
def test_a_filter_of_one_word_is_not_taken_for_its_letters(value: Any) -> None:
    with pytest.raises(InvalidInputError, match="a list of values"):
        Filter(value)
