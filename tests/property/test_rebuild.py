"""The rebuild of a manifest from LIST: against `resolve_run`, `parse_data_key` and `rebalance`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import count

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coldstream.errors import (
    ConflictError,
    InternalError,
    InvalidInputError,
)
from coldstream.fragment import IndexRecord, Placement, Trailer, build_trailer, encode_index
from coldstream.manifest.entries import Entries, Entry, EntryKind
from coldstream.manifest.ledger import Ledger
from coldstream.manifest.node import Node
from coldstream.manifest.root import LastChunk, Root, parse_root
from coldstream.manifest.tree import fragments_reaching, leaf_at, leaves
from coldstream.names import DataKey, parse_data_key
from coldstream.plans.key_columns import (
    UNKNOWN_MAX_TIMESTAMP,
    UNKNOWN_MIN_TIMESTAMP,
    KeyReader,
)
from coldstream.plans.rebalance import rebalance
from coldstream.plans.rebuild import KnownManifest, Rebuild, Rebuilt, ledger_of_keys
from coldstream.plans.resolve import Listed, Verified, resolve_run
from coldstream.plans.retention import RetentionLimits, plan_retention
from coldstream.ports import ObjectInfo
from tests.support.examples import examples

STREAM, PREFIX, M = "__orders_1", "rabbitmq/", 4
OPEN = Ledger.of([(1, 0)])


def row(
    first: int, next_offset: int, *, epoch: int = 1, uid: int = 0, hole: bool = False
) -> Listed:
    key = DataKey(STREAM, first, next_offset, epoch, uid, "hole" if hole else "fragment")
    return Listed(key, key.path(PREFIX), 0 if hole else 100 + uid)


def pages_of(listed: Sequence[Listed], length: int = 3) -> list[list[ObjectInfo]]:
    """What LIST would answer."""
    rows = sorted((ObjectInfo(each.path, each.size, 0) for each in listed), key=lambda r: r.key)
    return [rows[n : n + length] for n in range(0, len(rows), length)]


def made(rebuild: Rebuild, pages: list[list[ObjectInfo]]) -> tuple[Rebuilt, dict[int, Node]]:
    nodes = {node.uid: node for node in rebuild.groups(pages)}
    return rebuild.rebuilt(version=7), nodes


def new(ledger: Ledger = OPEN, first_offset: int | None = 0, **more: object) -> Rebuild:
    return Rebuild(
        PREFIX,
        STREAM,
        KnownManifest(ledger, first_offset),
        branching=M,
        uids=count(1_000_000),
        **more,  # type: ignore[arg-type]
    )


def unverified(each: Listed) -> Entry:
    key = each.data_key
    low, high = UNKNOWN_MIN_TIMESTAMP, UNKNOWN_MAX_TIMESTAMP
    return Entry(
        key.first_offset, key.next_offset, low, high, EntryKind.FRAGMENT, each.size, 0,
        key.epoch, key.uid,
    )  # fmt: skip


def unverified_run(run: Sequence[Listed]) -> list[Entry]:
    """Entries of a run of which only keys are known; a hole has the greatest time before it."""
    found: list[Entry] = []
    for each in run:
        entry = unverified(each)
        if each.data_key.kind == "hole":
            data = any(each.kind is EntryKind.FRAGMENT for each in found)
            at = UNKNOWN_MAX_TIMESTAMP if data else 0
            entry = replace(entry, kind=EntryKind.HOLE, size=0, min_timestamp=at, max_timestamp=at)
        found.append(entry)
    return found


lengths = st.sampled_from([1, 1, 2, 2, 3, 4, 9])
listings = st.lists(
    st.builds(
        lambda first, length, epoch, uid, hole: row(
            first, first + length, epoch=epoch, uid=uid, hole=hole
        ),
        st.integers(0, 30),
        lengths,
        st.integers(1, 3),
        st.integers(0, 3),
        st.integers(0, 3).map(lambda number: number == 0),
    ),
    max_size=60,
    unique_by=lambda each: each.path,
)
ledgers = st.dictionaries(st.integers(1, 3), st.integers(0, 20), max_size=3).map(
    lambda claims: Ledger.of(sorted(claims.items()))
)


@examples(6)
@given(st.integers(0, 8), st.just(OPEN) | ledgers, listings, st.integers(1, 9), st.integers(0, 3))
def test_a_rebuild_chooses_the_run_that_resolve_run_chooses(
    at: int, ledger: Ledger, listed: list[Listed], length: int, without: int
) -> None:
    refused = {each.path for each in listed[:without]}
    right = resolve_run(at, ledger, listed, without=refused)

    rebuilt, nodes = made(
        new(ledger, at), pages_of([each for each in listed if each.path not in refused], length)
    )

    found = list(leaves(rebuilt.root, lambda entry: nodes[entry.uid]))
    assert found == unverified_run(right)
    data = [each for each in right if each.data_key.kind == "fragment"]
    assert (rebuilt.root.first_offset, rebuilt.unverified) == (at, len(data))
    assert parse_root(rebuilt.root.encode()) == rebuilt.root
    end = right[-1].data_key.next_offset if right else at
    beyond = [
        each.data_key.first_offset
        for each in listed
        if each.data_key.kind == "fragment"
        and each.path not in refused
        and each.data_key.first_offset > end
        and ledger.accepts(
            each.data_key.epoch, each.data_key.first_offset, each.data_key.next_offset
        )
    ]
    assert rebuilt.beyond == min(beyond, default=None)


@examples(2)
@given(st.lists(st.tuples(st.integers(1, 3), lengths, st.booleans()), min_size=1, max_size=300))
def test_long_chains_of_many_uploads_are_resolved_alike(
    pieces: list[tuple[int, int, bool]],
) -> None:
    listed: dict[str, Listed] = {}
    offset = 0
    for copies, length, cut in pieces:
        for uid in range(copies):
            each = row(offset, offset + length, uid=uid)
            listed[each.path] = each
        if cut and length > 1:
            for each in (row(offset, offset + 1), row(offset + 1, offset + length + 1)):
                listed[each.path] = each
        offset += length
    right = resolve_run(0, OPEN, listed.values())

    rebuilt, nodes = made(new(), pages_of(list(listed.values()), 20))

    assert list(leaves(rebuilt.root, lambda entry: nodes[entry.uid])) == [
        unverified(each) for each in right
    ]


@pytest.mark.parametrize("fragments", [0, 1, 2 * M - 1, 2 * M, 500, 2 * M**4])
def test_a_rebuilt_tree_is_the_one_that_appends_and_rebalances_make(fragments: int) -> None:
    listed = [row(5 + n * 2, 7 + n * 2, uid=n) for n in range(fragments)]
    uids = count(1_000_000)
    appended: dict[int, Node] = {}
    root = Root(5, 5, epoch=1, version=7, ledger=OPEN)
    for each in listed:
        root = root.appended([unverified(each)], LastChunk(each.data_key.next_offset - 1, 1))
        change = rebalance(root, M, uids)
        appended |= {node.uid: node for node in change.nodes}
        root = change.root

    rebuilt, nodes = made(new(first_offset=5), pages_of(listed, 100))

    assert nodes == appended
    assert rebuilt.root == replace(root, last_chunk=None)


def test_without_a_root_the_first_fragment_is_the_beginning() -> None:
    listed = [row(40, 50), row(50, 60)]

    rebuilt, _ = made(new(first_offset=None), pages_of(listed))
    nothing, _ = made(new(first_offset=None), [])

    assert (rebuilt.root.first_offset, rebuilt.root.next_offset) == (40, 60)
    assert nothing.root == Root(0, 0, epoch=1, version=7, ledger=OPEN)


def test_nothing_is_held_where_fragments_join_and_little_where_they_overlap() -> None:
    joined = [row(n * 10, n * 10 + 10) for n in range(500)]
    split = [row(1000, 1004, uid=3), row(1004, 1010, uid=3)]

    assert made(new(), pages_of(joined, 100))[0].window == 1  # the last of a page waits
    assert made(new(), pages_of(joined + split, 100))[0].window <= 3


def test_more_overlap_than_may_be_held_is_refused_and_not_guessed_at() -> None:
    never_meet = [row(0, 1)] + [row(n, n + 2) for n in range(100)]

    with pytest.raises(ConflictError):
        made(new(window=50), pages_of(never_meet))
    assert made(new(window=200), pages_of(never_meet))[0].root.next_offset == 101


def test_keys_that_are_not_sorted_are_refused() -> None:
    pages = pages_of([row(n, n + 1) for n in range(9)])

    with pytest.raises(InternalError):
        made(new(), [*pages[:2], pages[0]])


def test_a_lost_ledger_gives_each_range_to_the_newest_epoch_that_has_data_for_it() -> None:
    listed = [
        row(0, 10, epoch=4), row(10, 20, epoch=4), row(20, 30, epoch=4), row(30, 40, epoch=4),
        row(10, 25, epoch=5), row(25, 30, epoch=5),
        row(20, 40, epoch=6), row(0, 10, hole=True),
    ]  # fmt: skip
    pages = pages_of(listed)

    ledger = ledger_of_keys(pages, PREFIX, STREAM)
    rebuilt, nodes = made(new(ledger), pages)

    assert ledger == Ledger.of([(4, 0), (5, 10), (6, 20)])
    # Epoch 6 has begun at 20, so what epoch 5 wrote across 20 is no part of the stream.
    assert [e.first_offset for e in leaves(rebuilt.root, lambda e: nodes[e.uid])] == [0]
    assert rebuilt.beyond == 20


def test_a_look_up_by_time_never_passes_over_a_fragment_of_unknown_times() -> None:
    listed = [row(n * 10, n * 10 + 10) for n in range(40)]
    rebuilt, nodes = made(new(), pages_of(listed))

    def fetch(entry: Entry) -> Node:
        return nodes[entry.uid]

    for timestamp in (-(2**63), 0, 2**63 - 1):
        assert len(list(fragments_reaching(rebuilt.root, timestamp, fetch))) == 40
    assert leaf_at(rebuilt.root, 77, fetch) == unverified(listed[7])


def test_age_retires_no_fragment_of_unknown_times_and_size_does() -> None:
    rebuilt, nodes = made(new(), pages_of([row(n, n + 1) for n in range(40)]))

    def planned(rule: RetentionLimits) -> int:
        fetch = lambda entry: nodes[entry.uid]  # noqa: E731 - shortest here
        return plan_retention(rebuilt.root, rule, now_ms=2**62, fetch=fetch).fragments

    assert planned(RetentionLimits(max_age_ms=1)) == 0
    assert planned(RetentionLimits(max_bytes=1000)) == 30


def trailer(each: Listed, *, chunk_epoch: int = 1) -> Trailer:
    key = each.data_key
    stamps = [(key.first_offset, key.first_offset + 5), (key.next_offset - 1, key.first_offset - 5)]
    return build_trailer(
        placement=Placement(
            epoch=key.epoch, floor=0, segment_offset=0, sequence=0, segment_position=8
        ),
        index=encode_index(IndexRecord(*stamp, n * 50) for n, stamp in enumerate(stamps)),
        next_offset=key.next_offset,
        first_chunk_epoch=chunk_epoch,
        last_chunk_epoch=chunk_epoch,
        data_size=100,
        data_crc=0,
    )


def test_trailers_give_times_records_and_the_last_chunk() -> None:
    listed = [row(n * 10, n * 10 + 10) for n in range(30)]
    trailers = {each.path: trailer(each) for each in listed}
    listed = [replace(each, size=trailers[each.path].size) for each in listed]

    rebuilt, nodes = made(
        new(trailers=lambda run: [trailers[each.path] for each in run]), pages_of(listed)
    )

    entries = list(leaves(rebuilt.root, lambda entry: nodes[entry.uid]))
    assert entries == [Verified(each, trailers[each.path]).entry() for each in listed]
    assert rebuilt.unverified == 0
    assert rebuilt.root.last_chunk == LastChunk(299, 1)
    assert rebuilt.root.first_timestamp == -5
    assert parse_root(rebuilt.root.encode()) == rebuilt.root


def test_a_trailer_that_does_not_hold_is_told_and_another_upload_takes_its_place() -> None:
    good = [row(n * 10, n * 10 + 10, uid=1) for n in range(5)]
    bad = row(20, 30, uid=0)  # the smaller uid would be taken
    trailers = {each.path: trailer(each) for each in [*good, bad]}
    listed = [replace(each, size=trailers[each.path].size) for each in [*good, bad]]
    trailers[bad.path] = trailer(good[3])

    rebuilt, nodes = made(
        new(trailers=lambda run: [trailers[each.path] for each in run]), pages_of(listed)
    )

    assert [error.key for error in rebuilt.told.refused] == [bad.path]
    assert rebuilt.root.next_offset == 50
    assert {e.uid for e in leaves(rebuilt.root, lambda e: nodes[e.uid])} == {1}


GOOD = row(12, 345, epoch=7, uid=0xFEDCBA9876543210).path
characters = st.sampled_from([*"0123456789abcdefABCDEF-./ghtn\n\x00+_ é٣🙂"])


@examples(15)
@given(
    st.lists(
        st.one_of(
            st.just(GOOD),
            st.tuples(st.integers(0, len(GOOD) - 1), characters).map(
                lambda change: GOOD[: change[0]] + change[1] + GOOD[change[0] + 1 :]
            ),
            st.tuples(st.integers(0, len(GOOD)), st.text(characters, max_size=4)).map(
                lambda change: GOOD[: change[0]] + change[1] + GOOD[change[0] :]
            ),
            st.integers(0, len(GOOD)).map(lambda n: GOOD[:n] + GOOD[n + 1 :]),
            st.builds(
                lambda first, next_offset, epoch, uid, kind: (
                    f"{PREFIX}stream/{STREAM}/data/"
                    f"{first:020d}-{next_offset:020d}.{epoch:010d}.{uid:016x}.{kind}"
                ),
                st.integers(0, 10**20 - 1) | st.integers(2**64 - 3, 2**64 + 3),
                st.integers(0, 10**20 - 1) | st.integers(2**64 - 3, 2**64 + 3),
                st.integers(0, 10**10 - 1) | st.integers(2**32 - 2, 2**32 + 2),
                st.integers(0, 2**64 - 1),
                st.sampled_from(["fragment", "fragmen_", "hole"]),
            ),
            st.text(max_size=130),
            st.just(GOOD.replace(STREAM, "__orders_2")),
        ),
        max_size=6,
    )
)
def test_a_page_of_keys_is_read_as_each_key_alone_is(keys: list[str]) -> None:
    right = []
    for number, key in enumerate(keys):
        try:
            parsed = parse_data_key(key, PREFIX)
        except InvalidInputError:
            continue
        if parsed.kind == "fragment" and parsed.stream == STREAM:
            right.append(unverified(Listed(parsed, key, number)))

    found = KeyReader(PREFIX, STREAM).entries(keys, list(range(len(keys))))

    assert [Entries(each.tobytes())[0] for each in found] == right
