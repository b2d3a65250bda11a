from __future__ import annotations

from dataclasses import replace

import pytest

from coldstream.errors import NotFoundError, UnavailableError
from coldstream.fragment import HEADER, TRAILER_SIZE, parse_trailer
from coldstream.manifest.catalog import CatalogItem
from coldstream.manifest.entries import Entries
from coldstream.manifest.invariants import Invariant
from coldstream.manifest.ledger import Ledger
from coldstream.manifest.root import Root
from coldstream.osiris.chunk import CHUNK_HEADER_SIZE
from coldstream.reader import MemoryBudget
from coldstream.reader.report import CheckedRange, RangeStatus, VerifyReport, joined
from coldstream.reader.verify import verify_stream
from tests.support.tier import FIXTURES, PREFIX, SMALL, Tier, chunk


def verify(tier: Tier, stream: str = "s", *, deep: bool = True) -> VerifyReport:
    return verify_stream(
        tier.store, tier.catalog, PREFIX, stream, deep=deep, settings=SMALL, budget=MemoryBudget()
    )


def ranges(report: VerifyReport) -> list[tuple[int, int, str]]:
    return [(each.first_offset, each.next_offset, str(each.status)) for each in report.ranges]


def broken(report: VerifyReport) -> set[Invariant]:
    return {each.invariant for each in report.violations}


@pytest.fixture
def tier() -> Tier:
    return Tier()


@pytest.fixture
def root(tier: Tier) -> Root:
    """Three fragments of three chunks of two messages; offsets 0 to 17."""
    chunks = [chunk(n, b"a%d" % n, b"b" * 30, timestamp=n) for n in range(0, 18, 2)]
    return tier.add("s", [chunks[:3], chunks[3:6], chunks[6:]])


@pytest.mark.parametrize("name", FIXTURES)
def test_what_a_broker_wrote_is_sound(tier: Tier, name: str) -> None:
    stream = tier.add_fixture(name)

    report = verify(tier, stream)

    expected = FIXTURES[name]
    assert report.violations == ()
    assert ranges(report) == [(expected["first_offset"], expected["next_offset"], "PRESENT")]
    assert report.messages == expected["messages"]
    assert report.chunks == sum(expected["chunk_types"].values())


def test_a_shallow_check_reads_no_data(tier: Tier, root: Root) -> None:
    def get(key: str, start: int, end: int) -> bytes:
        raise AssertionError(key)

    tier.store.get = get

    report = verify(tier, deep=False)

    assert (report.sound, report.chunks) == (True, 0)
    assert [each.fragments for each in report.ranges] == [3]


def test_a_missing_object_is_named_with_its_range(tier: Tier, root: Root) -> None:
    key = tier.key(root, "s", 1)
    del tier.store.objects[key]

    for deep in (False, True):
        report = verify(tier, deep=deep)

        assert ranges(report) == [(0, 6, "PRESENT"), (6, 12, "MISSING"), (12, 18, "PRESENT")]
        assert [each.key for each in report.violations] == [key]
        assert broken(report) == {Invariant.DURABILITY}


def test_an_object_of_another_size_is_found_without_reading_it(tier: Tier, root: Root) -> None:
    tier.store.objects[tier.key(root, "s", 2)] += b"x"

    report = verify(tier, deep=False)

    assert ranges(report) == [(0, 12, "PRESENT"), (12, 18, "CORRUPT")]


def test_a_damaged_trailer_is_found_without_reading_the_data(tier: Tier, root: Root) -> None:
    tier.flip(tier.key(root, "s", 0), -50)

    assert ranges(verify(tier, deep=False)) == [(0, 6, "CORRUPT"), (6, 18, "PRESENT")]


def test_a_deep_check_finds_exactly_the_damaged_chunk(tier: Tier, root: Root) -> None:
    key = tier.key(root, "s", 1)
    second = len(HEADER) + len(chunk(6, b"a6", b"b" * 30)) + CHUNK_HEADER_SIZE + 9
    tier.flip(key, second)

    shallow, deep = verify(tier, deep=False), verify(tier)

    assert shallow.sound
    assert ranges(deep) == [(0, 8, "PRESENT"), (8, 10, "CORRUPT"), (10, 18, "PRESENT")]
    assert deep.chunks == 8


def test_no_flipped_byte_of_a_fragment_passes_a_deep_check(tier: Tier, root: Root) -> None:
    key = tier.key(root, "s", 1)
    for position in range(len(tier.store.objects[key])):
        tier.flip(key, position, position % 8)
        report = verify(tier)
        tier.flip(key, position, position % 8)

        assert not report.sound, position
        damaged = [each for each in report.ranges if each.status is RangeStatus.CORRUPT]
        assert damaged, position
        assert 6 <= damaged[0].first_offset < damaged[-1].next_offset <= 12


def test_a_trailer_of_another_time_does_not_fit_the_manifest(tier: Tier, root: Root) -> None:
    key = tier.key(root, "s", 1)
    data = tier.store.objects[key]
    lie = replace(parse_trailer(data), max_timestamp=99)
    tier.store.objects[key] = data[:-TRAILER_SIZE] + lie.encode()

    report = verify(tier, deep=False)

    assert "maximum timestamp 99" in report.violations[0].message


def test_a_trailer_of_another_floor_does_not_fit_the_ledger(tier: Tier, root: Root) -> None:
    tier.commit("s", replace(root, ledger=Ledger.of([(1, 3)])))

    report = verify(tier, deep=False)

    assert "the trailer says floor 0, the ledger says 3" in report.violations[-1].message


@pytest.mark.parametrize(
    ("bloom", "reserved", "words"),
    [(b"", 1, "reserved bytes"), (b"12", 0, "a filter of 2 bytes")],
)
def test_a_deep_check_finds_what_only_a_wrong_writer_makes(
    tier: Tier, bloom: bytes, reserved: int, words: str
) -> None:
    data = bytearray(chunk(0, b"0"))
    data[CHUNK_HEADER_SIZE - 4] = len(bloom)
    data[CHUNK_HEADER_SIZE - 1] = reserved
    data[CHUNK_HEADER_SIZE:CHUNK_HEADER_SIZE] = bloom
    tier.add("s", [[bytes(data), chunk(1, b"1")]])

    report = verify(tier)

    assert ranges(report) == [(0, 1, "CORRUPT"), (1, 2, "PRESENT")]
    assert words in report.violations[0].message


def test_a_fragment_that_the_ledger_refuses_is_found(tier: Tier, root: Root) -> None:
    tier.commit("s", replace(root, epoch=2, ledger=Ledger.of([(1, 0), (2, 9)])))

    report = verify(tier)

    fenced = report.violations_of(Invariant.FENCING)
    assert [(each.first_offset, each.next_offset) for each in fenced] == [(6, 12), (12, 18)]


def test_epochs_that_fall_from_one_fragment_to_the_next_are_found(tier: Tier) -> None:
    tier.add("s", [[chunk(0, b"0", epoch=3)], [chunk(1, b"1", epoch=2)]])

    assert broken(verify(tier)) == {Invariant.EPOCH_ORDER}


def test_an_item_that_says_something_else_than_its_root_is_found(tier: Tier, root: Root) -> None:
    item = tier.catalog.items["s"]
    tier.catalog.items["s"] = replace(item, total_size=item.total_size + 1, fragments=4)

    report = verify(tier)

    assert broken(report) == {Invariant.AGREEMENT}
    assert len(report.violations) == 2


@pytest.mark.parametrize(("status", "position"), [("MISSING", None), ("CORRUPT", 20)])
def test_without_its_root_a_stream_is_wholly_in_doubt(
    tier: Tier, root: Root, status: str, position: int | None
) -> None:
    key = tier.catalog.items["s"].root_key
    if position is None:
        del tier.store.objects[key]
    else:
        tier.flip(key, position)

    report = verify(tier)

    assert ranges(report) == [(0, 18, status)]
    assert report.violations[0].key == key


def test_a_hole_is_told_and_is_no_finding(tier: Tier) -> None:
    tier.add("s", [[chunk(0, b"0")], tier.hole(1, 5), [chunk(5, b"5")]])

    report = verify(tier)

    assert report.sound
    assert ranges(report) == [(0, 1, "PRESENT"), (1, 5, "LOST"), (5, 6, "PRESENT")]


def test_a_hole_whose_object_is_gone_is_a_finding_because_a_rebuild_needs_it(tier: Tier) -> None:
    hole = tier.hole(1, 5)
    tier.add("s", [[chunk(0, b"0")], hole, [chunk(5, b"5")]])
    key = hole.data_key("s").path(PREFIX)
    del tier.store.objects[key]

    report = verify(tier)

    assert ranges(report) == [(0, 1, "PRESENT"), (1, 5, "MISSING"), (5, 6, "PRESENT")]
    (violation,) = report.violations
    assert (violation.invariant, violation.key) == (Invariant.COVERAGE, key)
    assert "rebuild" in violation.message


def test_a_hole_that_was_filled_while_verifying_is_no_finding(tier: Tier) -> None:
    first, filled, last = [chunk(0, b"0")], [chunk(1, b"1", b"2")], [chunk(3, b"3")]
    hole = tier.hole(1, 3)
    root = tier.add("s", [first, hole, last])
    listing = tier.store.list

    def fill_then_list(prefix: str, *, start_after: str = "", limit: int = 1000) -> object:
        tier.store.list = listing
        entry = tier.upload("s", filled, epoch=1, floor=0)
        entries = Entries.of([root.entries[0], entry, root.entries[2]])
        tier.commit("s", replace(root, entries=entries))
        del tier.store.objects[hole.data_key("s").path(PREFIX)]
        return listing(prefix, start_after=start_after, limit=limit)

    tier.store.list = fill_then_list

    assert verify(tier).sound


def test_a_stream_without_a_root_is_sound(tier: Tier) -> None:
    tier.catalog.anchor(CatalogItem("s", tier.catalog.table_id(), first_offset=7))

    report = verify(tier)

    assert (report.sound, report.ranges) == (True, ())


def test_retention_while_verifying_is_no_finding(tier: Tier, root: Root) -> None:
    listing = tier.store.list

    def retain_then_list(prefix: str, *, start_after: str = "", limit: int = 1000) -> object:
        tier.store.list = listing
        newer = replace(root, first_offset=6, entries=Entries.of(list(root.entries)[1:]))
        tier.commit("s", newer)
        del tier.store.objects[tier.key(root, "s", 0)]
        return listing(prefix, start_after=start_after, limit=limit)

    tier.store.list = retain_then_list

    report = verify(tier)

    assert report.sound
    assert ranges(report) == [(6, 18, "PRESENT")]


def test_a_store_that_does_not_answer_is_no_finding(tier: Tier, root: Root) -> None:
    def fail(key: str, length: int) -> bytes:
        raise UnavailableError("down", key=key)

    tier.store.get_suffix = fail

    with pytest.raises(UnavailableError):
        verify(tier)


def test_an_unknown_stream_is_an_error(tier: Tier) -> None:
    with pytest.raises(NotFoundError, match="nobody"):
        verify(tier, "nobody")


def test_many_pages_of_a_listing_are_read(tier: Tier) -> None:
    tier.add("s", [[chunk(n, b"%d" % n)] for n in range(1205)])
    told: list[tuple[int, int]] = []

    report = verify_stream(
        tier.store,
        tier.catalog,
        PREFIX,
        "s",
        progress=lambda done, total: told.append((done, total)),
    )

    assert report.sound
    assert [each.fragments for each in report.ranges] == [1205]
    assert told[-1][0] == told[-1][1]
    assert told == sorted(told)


def test_only_ranges_without_a_problem_are_joined() -> None:
    good = [
        CheckedRange(n, n + 1, RangeStatus.PRESENT, size_bytes=5, key=f"k{n}") for n in range(4)
    ]
    bad = CheckedRange(4, 5, RangeStatus.CORRUPT, key="k4", problem="flipped")

    result = joined([*good, bad, replace(bad, first_offset=5, next_offset=6)])

    assert [(each.first_offset, each.next_offset) for each in result] == [(0, 4), (4, 5), (5, 6)]
    assert (result[0].fragments, result[0].size_bytes, result[0].key) == (4, 20, "")
