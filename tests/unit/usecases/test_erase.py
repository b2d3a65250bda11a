"""What is erased is in no object any more, and everything else is as it was."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from coldstream.adapters.memory import MemoryPolicies
from coldstream.adapters.place import Place
from coldstream.adapters.place import Remote as PlacedRemote
from coldstream.errors import ConflictError, CorruptDataError, InvalidInputError, NotFoundError
from coldstream.fragment import HEADER, parse_trailer
from coldstream.jobs.materialise.spark_engine import stream_now
from coldstream.manifest.erasure import MAX_RANGES, MAX_REASON, ErasureRecord, parse_erasure
from coldstream.names import ErasureKey, parse_metadata_key
from coldstream.osiris.blank import Erased, blank_message, is_blank
from coldstream.plans.policy import PolicySet, Rule
from coldstream.reader.verify import verify_stream
from coldstream.remote.context import MAX_HOLD_MS
from coldstream.remote.erasures import erased_of
from coldstream.usecases.commit_runs import commit_runs
from coldstream.usecases.erase import erase
from coldstream.usecases.purge import MAX_PASSES
from tests.support.crashes import Crash, Wire
from tests.support.erasing import HOLD_MS, SECRET, ErasingSite, body, off
from tests.support.remote import PREFIX, STREAM, Remote, no_pause, piece


def test_erased_messages_are_blank_and_all_others_are_what_they_were() -> None:
    site = ErasingSite()
    before = site.messages()

    report = site.erase((5, 6), (10, 12))

    assert [each.first_offset for each in report.fragments] == [0, 10]
    assert site.messages() == [
        blank_message(len(each)) if offset in (5, 10, 11) else each
        for offset, each in enumerate(before)
    ]


def test_the_new_fragments_hold_by_every_check_and_have_the_size_of_the_old_ones() -> None:
    site = ErasingSite()
    sizes = {path: len(data) for path, data in site.memory.objects.items()}

    report = site.erase((5, 6))

    assert not verify_stream(site.memory, site.items, PREFIX, STREAM, deep=True).violations
    (old,), (new,) = report.fragments, report.written
    data = site.memory.objects[new.data_key(STREAM).path(PREFIX)]
    assert len(data) == sizes[old.data_key(STREAM).path(PREFIX)]
    assert parse_trailer(data).segment_position == 8
    assert (new.epoch, new.first_offset, new.next_offset) == (1, 0, 10)


def test_offsets_that_were_found_before_another_claim_are_not_erased() -> None:
    """After a fail-over other messages may stand at them, and a person confirms slowly."""
    site = ErasingSite()
    before = dict(site.memory.objects)

    with pytest.raises(ConflictError, match="epoch 1 has claimed the stream since"):
        site.erase((5, 6), epoch=0)

    assert site.memory.objects == before
    assert site.erase((5, 6), epoch=1).written


def test_a_record_says_what_was_erased_and_why_and_nothing_of_it() -> None:
    site = ErasingSite()

    report = site.erase((5, 6), reason="ticket 4711")

    assert isinstance(parse_metadata_key(report.record, PREFIX), ErasureKey)
    record = parse_erasure(site.memory.objects[report.record])
    assert record == ErasureRecord(Erased.of([(5, 6, 1)]), site.now_ms, "ticket 4711")
    assert erased_of(site.context, STREAM) == Erased.of([(5, 6, 1)])


def test_the_record_has_the_epoch_of_each_chunk_and_0_where_the_manifest_has_none() -> None:
    remote = Remote().claimed(epoch=2, first_offset=100)
    remote.upload(piece(100, 120, epoch=2, floor=100, chunk_epochs=[1, 2], body=body))
    commit_runs(remote.context, STREAM, pause=no_pause)

    report = erase(
        remote.context, STREAM, off((90, 95), (105, 115)), PolicySet(()), reason="", now_ms=1,
        branching=1024, pause=no_pause,
    )  # fmt: skip

    assert list(report.erased.rows) == [(90, 95, 0), (105, 110, 1), (110, 115, 2)]
    assert len(report.written) == 1


def test_no_epoch_is_recorded_that_only_a_damaged_header_says() -> None:
    """A later run would look for messages of that epoch, find none, and say that all is done."""
    remote = Remote().claimed(epoch=2, first_offset=100)
    (path,) = remote.upload(piece(100, 130, epoch=2, floor=100, chunk_epochs=[1, 1, 2], body=body))
    commit_runs(remote.context, STREAM, pause=no_pause)
    data = bytearray(remote.memory.objects[path])
    data[len(HEADER) + 23] = 2  # the last byte of the first chunk's epoch
    remote.memory.objects[path] = bytes(data)
    before = remote.tampered()

    with pytest.raises(CorruptDataError, match="repair it first"):
        erase(
            remote.context, STREAM, off((100, 105)), PolicySet(()), reason="", now_ms=1,
            branching=1024, pause=no_pause,
        )  # fmt: skip

    assert remote.tampered() == before


def test_a_dry_run_says_which_fragments_and_writes_nothing() -> None:
    site = ErasingSite()
    before = site.tampered()

    report = site.erase((5, 6), dry_run=True)

    assert [each.first_offset for each in report.fragments] == [0]
    assert site.tampered() == before


def test_erasing_twice_changes_nothing_the_second_time() -> None:
    site = ErasingSite()
    site.erase((5, 6))
    before = site.tampered()

    report = site.erase((5, 6))

    assert not report.fragments
    assert not report.record
    assert site.tampered() == before


def test_one_that_dies_at_any_call_is_finished_by_a_run_that_names_no_offsets() -> None:
    calls = 0
    while True:
        site, wire = ErasingSite(), Wire(calls)
        died = dies(lambda site=site, wire=wire: site.erase((5, 6), (20, 21), wire=wire))
        recorded = erased_of(site.new_context(), STREAM)

        site.erase()
        site.purge()

        assert [is_blank(each) for each in site.messages()].count(True) == recorded.offsets.count()
        if not died:
            break
        calls += 1
    assert calls > 8
    assert recorded.offsets == off((5, 6), (20, 21))


def test_a_purge_that_dies_at_any_call_is_finished_by_another() -> None:
    calls, erased = 0, [(each, each + 1) for each in range(0, 40, 5)]
    while True:
        site, wire = ErasingSite(), Wire(calls, carried_out=calls % 2 == 1)
        site.erase(*erased)
        died = dies(lambda site=site, wire=wire: site.purge(wire=wire))

        site.purge()

        assert not site.holds(SECRET)
        assert len(site.messages()) == 40
        if not died:
            break
        calls += 1
    assert calls > 8


def dies(act: Callable[[], object]) -> bool:
    try:
        act()
    except Crash:
        return True
    return False


def test_what_is_not_in_the_manifest_yet_is_refused_since_it_would_come_in_as_it_is() -> None:
    site = ErasingSite()
    before = site.tampered()

    with pytest.raises(InvalidInputError, match="ends before offset 40"):
        site.erase((39, 41))

    assert site.tampered() == before


def test_a_legal_hold_forbids_it() -> None:
    site = ErasingSite()
    held = PolicySet((Rule("court", directory=STREAM, hold=True),))

    with pytest.raises(ConflictError, match="legal hold by court"):
        site.erase((5, 6), policies=held)
    with pytest.raises(ConflictError, match="legal hold by court"):
        site.purge(policies=held)


def test_a_damaged_fragment_is_not_rewritten_since_its_checksum_would_hold_again() -> None:
    site = ErasingSite()
    path = piece(0, 10).path(PREFIX)
    data = bytearray(site.memory.objects[path])
    data[80] ^= 1
    site.memory.objects[path] = bytes(data)

    report = site.erase((5, 6), (15, 16))

    (error,) = report.damaged
    assert (error.offset, error.key) == (0, path)
    assert [each.first_offset for each in report.fragments] == [10]


def test_an_erasure_comes_to_its_end_on_a_link_that_writes_two_fragments_in_the_time_of_a_root(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("coldstream.usecases.erase._BYTES_AT_ONCE", 1000, raising=False)
    site = ErasingSite()
    assert 400 < len(site.memory.objects[piece(0, 10).path(PREFIX)]) < 1000
    put = site.memory.put

    def slowly(key: str, data: bytes, **named: Any) -> None:
        if key.endswith(".fragment"):
            site.now_ms += MAX_HOLD_MS // 2
        put(key, data, **named)

    monkeypatch.setattr(site.memory, "put", slowly)

    report = site.erase((5, 6), (15, 16), (25, 26), (35, 36))

    assert len(report.written) == 4
    assert [is_blank(each) for each in site.messages()].count(True) == 4


@pytest.mark.parametrize("dry_run", [False, True])
def test_an_erasure_that_nobody_could_read_beside_all_others_is_refused_and_stops_none_of_them(
    monkeypatch: pytest.MonkeyPatch, dry_run: bool
) -> None:
    monkeypatch.setattr("coldstream.remote.erasures.FULL", 3, raising=False)
    monkeypatch.setattr("coldstream.remote.erasures.MAX_RECORDS", 3)
    site = ErasingSite()
    for offset in (0, 5, 10):
        site.erase((offset, offset + 1))
    before = site.tampered()

    with pytest.raises(InvalidInputError, match="3 erasure records"):
        site.erase((15, 16), dry_run=dry_run)

    assert site.tampered() == before
    assert erased_of(site.new_context(), STREAM).offsets == off((0, 1), (5, 6), (10, 11))


def test_a_record_that_was_written_can_be_read_whatever_its_reason_says() -> None:
    rows = [(2 * each, 2 * each + 1, 1) for each in range(MAX_RANGES)]
    record = ErasureRecord(Erased.of(rows), 1, "[" * MAX_REASON)

    assert parse_erasure(record.encode()) == record


def test_another_writer_who_replaces_a_fragment_meanwhile_is_followed() -> None:
    site = ErasingSite()
    site.catalog.before["commit"] = lambda _: site.erase((6, 7))

    site.erase((5, 6))

    assert [is_blank(each) for each in site.messages()[4:8]] == [False, True, True, False]


def flip(site: ErasingSite, path: str) -> None:
    data = bytearray(site.memory.objects[path])
    data[80] ^= 1
    site.memory.objects[path] = bytes(data)


@pytest.mark.parametrize("repaired", [False, True])
def test_where_another_look_is_needed_only_what_is_damaged_then_is_told_and_once(
    repaired: bool,
) -> None:
    site, path = ErasingSite(), piece(0, 10).path(PREFIX)
    flip(site, path)

    def other(_: object) -> None:
        site.erase((16, 17))
        if repaired:
            flip(site, path)

    site.catalog.before["commit"] = other

    report = site.erase((5, 6), (15, 16))

    assert [error.offset for error in report.damaged] == ([] if repaired else [0])
    assert {each.first_offset for each in report.fragments} == ({0, 10} if repaired else {10})


@pytest.mark.parametrize("replaced", [True, False])
def test_an_object_that_is_gone_is_an_error_unless_another_writer_has_replaced_it(
    monkeypatch: pytest.MonkeyPatch, replaced: bool
) -> None:
    site = ErasingSite()
    path, put = piece(10, 20).path(PREFIX), site.memory.put

    def goes_meanwhile(key: str, data: bytes, **named: Any) -> None:
        put(key, data, **named)
        if key.endswith(".fragment"):
            monkeypatch.setattr(site.memory, "put", put)
            if replaced:
                site.erase((11, 12))
            del site.memory.objects[path]

    monkeypatch.setattr(site.memory, "put", goes_meanwhile)

    if not replaced:
        with pytest.raises(NotFoundError):
            site.erase((5, 6), (15, 16))
        return
    site.erase((5, 6), (15, 16))
    blank = [offset for offset, each in enumerate(site.messages()) if is_blank(each)]
    assert blank == [5, 11, 15]


def test_after_the_purge_no_object_and_no_version_holds_what_was_erased() -> None:
    site = ErasingSite()
    erased = [(each, each + 1) for each in range(0, 40, 5)]
    assert site.holds(SECRET)
    site.erase(*erased)
    assert site.holds(SECRET)

    steps = site.purge()

    assert not site.holds(SECRET)
    assert sum(each.versions for each in steps) == 4
    assert not steps[-1].kept
    assert not verify_stream(site.memory, site.items, PREFIX, STREAM, deep=True).violations


def test_what_collect_had_deleted_goes_with_its_versions() -> None:
    site = ErasingSite()
    (stray,) = site.upload(piece(0, 20, uid=99, body=lambda _: SECRET))
    site.memory.delete([stray])
    assert stray in site.holds(SECRET)
    site.erase((5, 6))

    site.purge()

    assert stray not in site.memory.deleted


def test_an_upload_of_the_range_that_comes_late_does_not_bring_it_back_and_goes_in_the_end() -> (
    None
):
    site = ErasingSite()
    site.erase((5, 6))
    before = site.messages()
    (late,) = site.upload(piece(0, 10, uid=99, body=body))

    commit_runs(site.new_context(), STREAM, pause=no_pause)
    steps = site.purge()

    assert site.messages() == before
    assert late not in site.memory.objects
    assert not steps[-1].kept


def test_an_upload_that_reaches_over_the_end_of_the_manifest_is_kept_and_told() -> None:
    site = ErasingSite()
    site.erase((35, 36))
    (ahead,) = site.upload(piece(30, 50, uid=99, body=body))
    site.now_ms += 10 * HOLD_MS

    steps = site.purge()

    assert "may be appended" in steps[-1].kept[ahead]
    assert ahead in site.memory.objects


def test_objects_without_an_erased_offset_are_never_touched() -> None:
    site = ErasingSite()
    (stray,) = site.upload(piece(20, 30, uid=99))
    site.erase((5, 6))

    site.purge()

    assert stray in site.memory.objects


def test_what_somebody_may_be_about_to_commit_is_left_until_he_has_given_up() -> None:
    site = ErasingSite()
    site.erase((5, 6))
    (young,) = site.upload(piece(0, 20, uid=99))

    first, *others = site.purge()

    assert first.waiting == 1
    assert "about to commit" in first.kept[young]
    assert sum(each.versions for each in others) == 1
    assert young not in site.memory.objects


def test_a_clock_that_stands_still_ends_the_passes_and_what_waits_is_told() -> None:
    site = ErasingSite()
    site.erase((5, 6))
    (young,) = site.upload(piece(0, 20, uid=99))

    steps = site.purge(settle_ms=0)

    assert len(steps) == MAX_PASSES
    assert young in steps[-1].kept
    assert young in site.memory.objects


def test_a_pass_that_runs_out_of_time_goes_on_where_it_was() -> None:
    site = ErasingSite(count=8)
    site.erase(*((each, each + 1) for each in range(0, 80, 5)))
    context = replace(site.new_context(), hold_ms=HOLD_MS, page_size=3)

    steps = site.purge(context=context, time_left=lambda: False, settle_ms=0)

    assert not site.holds(SECRET)
    assert sum(each.versions for each in steps) == 8
    assert len(steps) > 3


def test_a_commit_that_names_an_object_just_before_the_delete_saves_it() -> None:
    site = ErasingSite()
    site.erase((5, 6))
    old = {path for path in site.memory.objects if SECRET in site.memory.objects[path]}
    site.now_ms += 10 * HOLD_MS

    site.purge()

    root = site.root()
    named = {each.data_key(STREAM).path(PREFIX) for each in root.entries}
    assert named <= set(site.memory.objects)
    assert not (old - named) & set(site.memory.objects)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"[]",
        b'{"version": 0, "created_ms": 1, "reason": "", "offsets": [[1, 2, 3]]}',
        b'{"version": 1, "created_ms": -1, "reason": "", "offsets": [[1, 2, 3]]}',
        b'{"version": 1, "created_ms": 1, "reason": 5, "offsets": [[1, 2, 3]]}',
        b'{"version": 1, "created_ms": 1, "reason": "", "offsets": []}',
        b'{"version": 1, "created_ms": 1, "reason": "", "offsets": [[2, 1, 3]]}',
        b'{"version": 1, "created_ms": 1, "reason": "", "offsets": [[1, 2, 3, 4]]}',
        b'{"version": 1, "created_ms": 1, "reason": "", "offsets": [["1", 2, 3]]}',
        b'{"version": 1, "created_ms": 1, "reason": "", "offsets": [[1, 2]]}',
        b'{"version": 1, "created_ms": 1, "reason": "", "offsets": [[1, 2, -1]]}',
        b'{"version": 1, "created_ms": 1, "reason": "", "offsets": 7}',
        b'{"version": 1, "created_ms": 1, "reason": "", "offsets": [[1, 2, 3]], "more": 1}',
        b"[" * 200_000,
    ],
)
def test_a_damaged_record_is_an_error_and_never_an_empty_one(data: bytes) -> None:
    with pytest.raises(CorruptDataError):
        parse_erasure(data)


def test_a_record_that_would_be_too_long_is_refused() -> None:
    many = Erased.of((2 * n, 2 * n + 1, 1) for n in range(100_001))

    with pytest.raises(InvalidInputError, match="do it in parts"):
        ErasureRecord(many, 0).encode()


class Overtaken:
    """A store in whose first look at a trailer something else happens."""

    def __init__(self, target: Any, meanwhile: Callable[[], None]) -> None:
        self._target = target
        self._waiting = [meanwhile]

    def __getattr__(self, name: str) -> Any:
        return getattr(self._target, name)

    def get_suffix(self, key: str, length: int) -> bytes:
        if self._waiting:
            self._waiting.pop()()
        found: bytes = self._target.get_suffix(key, length)
        return found


def overtaken(site: ErasingSite) -> None:
    """Have another erasure replace fragments, and their old ones go, while one looks at epochs."""

    def meanwhile() -> None:
        report = site.erase((6, 7), (16, 17))
        assert report.fragments
        site.memory.delete([each.data_key(STREAM).path(PREFIX) for each in report.fragments])

    site.store.target = Overtaken(site.memory, meanwhile)


def test_an_erasure_beside_another_one_looks_at_the_newer_manifest_and_goes_on() -> None:
    site = ErasingSite()
    overtaken(site)

    site.erase((5, 6), (15, 16))

    assert erased_of(site.new_context(), STREAM).offsets == off((5, 7), (15, 17))
    assert all(is_blank(site.messages()[offset]) for offset in (5, 6, 15, 16))


def test_a_run_of_materialise_beside_an_erasure_takes_the_stream_in_by_the_newer_manifest() -> None:
    """It was left out as unread, and the run failed."""
    site = ErasingSite()
    site.erase((5, 6), (15, 16))
    overtaken(site)
    item = site.items.get(STREAM)
    assert item is not None

    now = stream_now(
        PlacedRemote(site.store, site.items, MemoryPolicies(), Place("", "", PREFIX)), item
    )

    assert now.erased == off((5, 7), (15, 17))


def test_a_fragment_that_the_newest_manifest_names_and_that_is_gone_is_told() -> None:
    site = ErasingSite()
    (path, *_) = [each for each in site.memory.objects if each.endswith(".fragment")]
    site.memory.delete([path])

    with pytest.raises(NotFoundError):
        site.erase((5, 6), (15, 16))
