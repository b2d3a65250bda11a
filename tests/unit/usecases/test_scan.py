"""A scan of all streams: what one item that nobody can judge does to the others."""

from __future__ import annotations

from dataclasses import replace

import pytest

from coldstream.errors import CorruptDataError
from coldstream.manifest.catalog import QueueName, StreamState
from coldstream.plans.delete import OVERDUE_MS
from coldstream.plans.policy import PolicySet, Rule
from coldstream.plans.probe import probe_stream
from coldstream.remote.directories import behind, directories
from coldstream.usecases.scan import (
    FLOWING_MS,
    RECENT_MS,
    ScanFor,
    ScanPage,
    complete_path,
    scan,
    several,
)
from coldstream_devkit.odd_keys import odd_keys
from tests.support.remote import PREFIX, STREAM, Remote, piece

OTHER = "__invoices_1745252105682952999"
NO_RULES = PolicySet()
OLD = PolicySet((Rule("old", max_age_ms=1000),))


@pytest.mark.parametrize("workflow", [ScanFor.RETENTION, ScanFor.CONSOLIDATE])
def test_an_item_whose_name_no_rule_can_be_asked_about_stops_no_other_stream(
    workflow: ScanFor,
) -> None:
    remote = Remote().claimed().claimed(stream=OTHER)
    for stream, queue in ((STREAM, "q"), (OTHER, "q" * 256)):
        remote.items.items[stream] = replace(
            remote.items.items[stream],
            name=QueueName("c", "/", queue),
            next_offset=50,
            fragments=50,
            total_size=50,
        )

    page = scan(remote.new_context(), workflow, OLD, now_ms=10**13, target_size=2**20)

    assert page.streams == (STREAM,)
    assert page.seen == 2
    (damaged,) = page.damaged
    assert isinstance(damaged, CorruptDataError)
    assert (damaged.stream, "255" in str(damaged)) == (OTHER, True)


def reconciled(remote: Remote, *, pages: int, mark: bool = True) -> list[ScanPage]:
    """The pages of a scan for reconcile; more than `pages` of them are a failure."""
    found: list[ScanPage] = []
    cursor = None
    for _ in range(pages):
        page = scan(
            remote.new_context(),
            ScanFor.RECONCILE,
            PolicySet(),
            now_ms=10**13,
            target_size=1,
            cursor=cursor,
            mark=mark,
        )
        found.append(page)
        if page.cursor is None:
            return found
        assert page.cursor != cursor, "a scan that stands still"
        cursor = page.cursor
    raise AssertionError(f"no end after {pages} pages")


ODD_DIRECTORIES = [
    "/x",
    "./x",
    "../data/evil",
    "\x01/y",
    " /z",
    "%2e/z",
    "a b/z",
    "\U0010ffff/z",
    "é/",
]


@pytest.mark.parametrize("odd", [[each] for each in ODD_DIRECTORIES] + [ODD_DIRECTORIES])
def test_a_scan_ends_whatever_lies_where_the_directory_of_a_stream_should_be(
    odd: list[str],
) -> None:
    remote = Remote().claimed()
    lost = piece(0, 10, stream=OTHER).path(PREFIX)
    for key in (*(f"{PREFIX}stream/{each}" for each in odd), lost):
        remote.memory.put(key, b"x", write_id="w")

    pages = reconciled(remote, pages=10)

    assert [stream for page in pages for stream in page.streams] == [STREAM, OTHER]
    told = [key for page in pages for key in page.foreign_keys]
    assert 0 < len(told) <= sum(page.foreign for page in pages) <= len(odd)
    assert complete_path(PREFIX, remote.items.table_id()) not in remote.memory.objects


@pytest.mark.parametrize("seed", range(10))
def test_no_object_hides_a_stream_from_the_scan_of_the_bucket(seed: int) -> None:
    remote = Remote().claimed()
    lost = sorted({f"{STREAM[:cut]}{tail}" for cut in (1, 5, 9) for tail in ("-b", "0", "Z", "_")})
    for stream in lost:
        remote.memory.put(piece(0, 10, stream=stream).path(PREFIX), b"x", write_id="w")
        remote.memory.put(f"{PREFIX}stream/{stream[:-1]}", b"a file", write_id="w")
    for key in odd_keys(seed, PREFIX, STREAM, 300):
        remote.memory.put(key, b"x", write_id="w")

    pages = reconciled(remote, pages=20)

    assert sorted({stream for page in pages for stream in page.streams}) == sorted([STREAM, *lost])


def test_a_million_odd_objects_cost_a_scan_few_requests() -> None:
    remote = Remote().claimed()
    for number in range(5000):  # what is wrong with them comes early, or they are no directories
        remote.memory.put(f"{PREFIX}stream/!{number}/x", b"x", write_id="w")
        remote.memory.put(f"{PREFIX}stream/a{number}", b"x", write_id="w")
    remote.store.calls.clear()

    reconciled(remote, pages=2)

    assert remote.store.calls["list"] < 20


def test_a_directory_in_which_nothing_is_ours_is_no_stream_that_the_table_lacks() -> None:
    remote = Remote().claimed()
    for key in ("data//x", "data/y", "metadata/./z", "w"):
        remote.memory.put(f"{PREFIX}stream/{OTHER}/{key}", b"x", write_id="w")

    pages = reconciled(remote, pages=2)

    assert [page.streams for page in pages] == [(STREAM,), ()]
    assert complete_path(PREFIX, remote.items.table_id()) in remote.memory.objects


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        ("abc/data/x", "abc0"),
        ("abc", "abc"),
        ("/x", "0"),
        ("!1/x", "-"),
        ("a!1/x", "a-"),
        ("a.b/x", "a.b0"),
        ("a~/x", "b"),
        ("zz~", "zz~"),
        ("~", "~"),
        ("~/x", "~0"),
    ],
)
def test_a_search_for_directories_goes_on_behind_what_it_has_seen(key: str, expected: str) -> None:
    assert behind(key) == expected


def test_reconcile_looks_at_a_stream_that_has_just_stopped_and_at_others_in_their_turn() -> None:
    remote = Remote().claimed()
    now = 10**13
    ages = {
        "idle": RECENT_MS + 1,
        "stopped": RECENT_MS,
        "stops": FLOWING_MS,
        "flows": FLOWING_MS - 1,
        "ahead": -(10**9),  # a clock may say anything
    }
    item = remote.items.items.pop(STREAM)
    for name, age_ms in ages.items():
        remote.items.items[name] = replace(item, stream=name, last_timestamp=now - age_ms)

    def wanted(turn: str) -> set[str]:
        page = scan(
            remote.new_context(),
            ScanFor.RECONCILE,
            NO_RULES,
            now_ms=now,
            target_size=1,
            in_turn=lambda stream: stream == turn,
        )
        return set(page.streams)

    assert wanted("idle") == {"idle", "stopped", "stops"}
    assert wanted("flows") == {"flows", "stopped", "stops"}
    assert wanted("nobody") == {"stopped", "stops"}


@pytest.mark.parametrize("age_ms", [0, FLOWING_MS, RECENT_MS, RECENT_MS + 1])
def test_reconcile_does_not_commit_a_probe_that_waits_for_its_event(age_ms: int) -> None:
    # A doctor would say that events come, where the bucket tells nobody of its objects.
    remote = Remote().claimed()
    item = remote.items.items.pop(STREAM)
    probe = probe_stream("n.1", 1)
    remote.items.items[probe] = replace(item, stream=probe, last_timestamp=10**13 - age_ms)

    page = scan(remote.new_context(), ScanFor.RECONCILE, NO_RULES, now_ms=10**13, target_size=1)

    assert (page.streams, page.seen) == ((), 1)


def pages_of(*sizes: int) -> dict[str | None, ScanPage]:
    """Pages by their cursors, with so many streams each."""
    ends = [*map(str, range(1, len(sizes))), None]
    return {
        None if number == 0 else str(number): ScanPage(
            tuple(f"s{number}-{at}" for at in range(size)), 400, (), end
        )
        for number, (size, end) in enumerate(zip(sizes, ends, strict=True))
    }


def test_pages_with_little_to_do_come_together_and_none_is_left_out() -> None:
    found = pages_of(30, 0, 380, 5, 395, 0)

    first = several(found.__getitem__, None)
    rest = several(found.__getitem__, first.cursor)

    assert (len(first.streams), first.seen, first.cursor) == (410, 1200, "3")
    assert (len(rest.streams), rest.seen, rest.cursor) == (400, 800, "5")
    assert several(found.__getitem__, rest.cursor).cursor is None


def test_an_answer_has_a_bounded_number_of_pages_and_ends_when_time_is_up() -> None:
    found = pages_of(*[0] * 30)

    assert several(found.__getitem__, None).cursor == "25"
    assert several(found.__getitem__, None, time_left=lambda: False).cursor == "1"


def test_a_tombstone_whose_machine_has_failed_is_taken_up_again_by_reconcile() -> None:
    remote = Remote().claimed()
    until = 10**13 - OVERDUE_MS - 1
    remote.items.items[STREAM] = replace(
        remote.items.items[STREAM], state=StreamState.DELETING, revision=3, undelete_until=until
    )

    def wanted(now_ms: int = 10**13, policies: PolicySet = NO_RULES) -> tuple[str, ...]:
        context = remote.new_context()
        return scan(context, ScanFor.RECONCILE, policies, now_ms=now_ms, target_size=1).streams

    assert wanted() == (STREAM,)
    assert wanted(now_ms=10**13 - 2) == ()  # its machine may be about to begin
    assert wanted(policies=PolicySet((Rule("court", directory=STREAM, hold=True),))) == ()
    assert wanted(policies=PolicySet((Rule("court", queue="q", hold=True),))) == ()


@pytest.mark.parametrize("page", [1, 2, 3, 400])
@pytest.mark.parametrize("count", [0, 1, 2, 7])
def test_a_scan_for_collect_begins_anywhere_and_sees_each_stream_once(
    count: int, page: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("coldstream.usecases.scan.PAGE", page)
    remote = Remote()
    streams = [f"s{number}" for number in range(count)]
    for stream in streams:
        remote.anchor(stream=stream)
    begins = set()
    for now in range(40):
        found: list[str] = []
        cursor = None
        for _ in range(2 * count + 3):
            got = scan(
                remote.new_context(), ScanFor.COLLECT, NO_RULES, now_ms=now, target_size=1,
                cursor=cursor,
            )  # fmt: skip
            found += got.streams
            cursor = got.cursor
            if cursor is None:
                break
        assert cursor is None
        assert sorted(found) == streams
        begins |= set(found[:1])

    assert begins == set(streams)


def test_a_stream_that_an_earlier_page_missed_keeps_the_mark_away(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("coldstream.usecases.scan._STREAMS_AT_ONCE", 1)
    remote = Remote().claimed()
    remote.memory.put(piece(0, 10, stream="A").path(PREFIX), b"x", write_id="w")

    pages = reconciled(remote, pages=10)

    assert ("A",) in [page.streams for page in pages]
    assert pages[-1].streams == ()
    assert complete_path(PREFIX, remote.items.table_id()) not in remote.memory.objects


@pytest.mark.parametrize("state", list(StreamState))
def test_an_item_of_another_table_is_for_reconcile_whatever_its_state(state: StreamState) -> None:
    """Of this table what takes commits is, and what a rebuild that died has stopped: it is told."""
    remote = Remote().claimed()
    item = replace(remote.items.items[STREAM], state=state)
    for table_id, expected in (
        ("restored", (STREAM,)),
        (item.table_id, (STREAM,) if state in ("live", "rebuilding") else ()),
    ):
        remote.items.items[STREAM] = replace(item, table_id=table_id, undelete_until=10**13)
        page = scan(remote.new_context(), ScanFor.RECONCILE, NO_RULES, now_ms=10**13, target_size=1)
        assert page.streams == expected


@pytest.mark.parametrize("state", list(StreamState))
def test_collect_is_for_streams_that_are_live_or_gone_for_good(state: StreamState) -> None:
    remote = Remote().claimed()
    remote.items.items[STREAM] = replace(remote.items.items[STREAM], state=state)

    found: list[str] = []
    cursor = None
    for _ in range(3):
        page = scan(
            remote.new_context(), ScanFor.COLLECT, NO_RULES, now_ms=1, target_size=1, cursor=cursor
        )
        found += page.streams
        cursor = page.cursor

    assert found == ([STREAM] if state in ("live", "deleted") else [])


@pytest.mark.parametrize("held", [True, False])
def test_retention_is_not_for_a_stream_under_legal_hold(held: bool) -> None:
    remote = Remote().claimed()
    remote.items.items[STREAM] = replace(
        remote.items.items[STREAM], fragments=9, total_size=900, next_offset=90
    )
    rules = PolicySet((Rule("old", max_age_ms=1000), Rule("court", priority=-1, hold=held)))

    page = scan(remote.new_context(), ScanFor.RETENTION, rules, now_ms=10**13, target_size=1)

    assert page.streams == (() if held else (STREAM,))


def test_a_scan_of_the_bucket_stops_with_the_time_and_goes_on() -> None:
    remote = Remote().claimed()
    lost = [f"s{number}" for number in range(5)]
    for stream in lost:
        remote.memory.put(piece(0, 10, stream=stream).path(PREFIX), b"x", write_id="w")
    found: list[str] = []
    cursor: str | None = "bucket:"
    for _ in range(20):
        page = scan(
            remote.new_context(), ScanFor.RECONCILE, NO_RULES, now_ms=1, target_size=1,
            cursor=cursor, time_left=lambda: False,
        )  # fmt: skip
        assert len(page.streams) <= 1
        found += page.streams
        cursor = page.cursor
        if cursor is None:
            break

    assert cursor is None
    assert found == lost


def looked(remote: Remote, *, look: bool, pages: int = 10) -> list[ScanPage]:
    """The pages of a scan of a table that was once found to lack no stream."""
    found: list[ScanPage] = []
    cursor: str | None = None
    for _ in range(pages):
        page = scan(
            remote.new_context(), ScanFor.RECONCILE, NO_RULES, now_ms=10**13, target_size=1,
            cursor=cursor, mark=True, look=look and cursor is None,
        )  # fmt: skip
        found.append(page)
        cursor = page.cursor
        if cursor is None:
            return found
    raise AssertionError("no end")


@pytest.mark.parametrize("state", list(StreamState))
def test_an_item_that_is_lost_is_noticed_although_the_table_was_once_complete(
    state: StreamState,
) -> None:
    remote = Remote().claimed().claimed(stream=OTHER)
    remote.memory.put(piece(0, 10, stream=OTHER).path(PREFIX), b"x", write_id="w")
    reconciled(remote, pages=3)
    assert complete_path(PREFIX, remote.items.table_id()) in remote.memory.objects
    remote.items.items[STREAM] = replace(
        remote.items.items[STREAM], state=state, undelete_until=10**13
    )
    del remote.items.items[OTHER]

    pages = looked(remote, look=True)

    assert [page.lost for page in pages] == [0, 1]
    assert pages[-1].streams == (OTHER,)
    assert sum(page.lost for page in looked(remote, look=False)) == 0


def test_a_look_at_a_sound_bucket_costs_one_list_and_puts_nothing() -> None:
    remote = Remote()
    for number in range(20):
        remote.claimed(stream=f"s{number}")
        remote.memory.put(piece(0, 10, stream=f"s{number}").path(PREFIX), b"x", write_id="w")
    reconciled(remote, pages=3)
    remote.store.calls.clear()

    looked(remote, look=True)

    assert remote.store.calls["level"] == 2  # the second says that there is no more
    assert remote.store.calls["put"] == 0
    assert remote.store.calls["list"] == 1  # the mark of the table


def test_our_own_mark_is_no_stream_and_nothing_foreign() -> None:
    remote = Remote().claimed()
    reconciled(remote, pages=3)

    pages = looked(remote, look=True)

    assert sum(page.foreign for page in pages) == 0
    assert list(directories(remote.memory, PREFIX)) == [STREAM]
