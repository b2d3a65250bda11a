"""Every small time line of an object: nothing goes that was not seen unreferenced long enough ago.

Scope: an object that is written, loses its reference, and lies there while `collect` runs at any of
six moments, half a grace time apart, and the state changes at one of them or never (640 time lines,
each with a clock of collect's own that is right, ahead or behind); what happens to the item at each
of the reads between the proof and the delete (125 sequences); every way to go over a listing in
steps; every set of up to three records; and every small record with one thing wrong in it.

Why it is enough: the proof needs three moments (written, seen, deleted), each a grace time after
the one before, and one state. Six moments of half a grace time have each of the two distances too
short, just right and longer, with the change of state before, between and behind them.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import combinations, product
from typing import Any

import pytest

from coldstream.adapters.memory import MemoryCatalog, MemoryObjectStore
from coldstream.errors import ConflictError, CorruptDataError, NotFoundError, UnavailableError
from coldstream.manifest.catalog import CatalogItem, StreamState
from coldstream.manifest.entries import Entries, Entry, EntryKind
from coldstream.manifest.ledger import Ledger
from coldstream.manifest.root import LastChunk, Root
from coldstream.names import DataKey, MarkKey, collect_path, root_path, stream_prefix
from coldstream.plans.collect import ObjectKind, Record, mature, replaced
from coldstream.remote.context import Context
from coldstream.usecases import collect as module
from coldstream.usecases import marks as records_module
from coldstream.usecases.collect import Collection, collect
from coldstream.usecases.marks import VERSION, ProofState, read_header, seen_in, write_record
from tests.exhaustive.small_trees import PREFIX, STREAM, masks

STEP = 1000
GRACE = 2 * STEP
#: The object in question, and the one that has taken its place in the manifest.
X, Y = 8, 9


def key_of(uid: int, first: int = 0) -> str:
    return DataKey(STREAM, first, first + 1, 1, uid).path(PREFIX)


class Items(MemoryCatalog):
    """A catalog in which something happens at each read."""

    def __init__(self) -> None:
        super().__init__()
        self.before: list[Callable[[], None]] = []
        self.live = False

    def get(self, stream: str) -> CatalogItem | None:
        if self.live and self.before:
            self.before.pop(0)()
        return super().get(stream)


@dataclass
class Place:
    """A bucket with S3's clock, and a stream of one fragment."""

    now: int = 0
    items: Items = field(default_factory=Items)

    def __post_init__(self) -> None:
        self.store = MemoryObjectStore(lambda: self.now)
        self._uids = iter(range(10**6, 10**7))
        self.version = 0
        self.epoch = 1
        self.claims = [(1, 0)]

    @property
    def context(self) -> Context:
        return Context(self.store, self.items, PREFIX, lambda: next(self._uids))

    def names(self, uid: int, *, first: int = 0, claim: bool = False, length: int = 1) -> None:
        """The item moves to a root that names another object."""
        self.version += 1
        if claim:
            self.epoch += 1
            self.claims.append((self.epoch, first + 1))
        entry = Entry(first, first + length, 0, 0, EntryKind.FRAGMENT, 1, 1, 1, uid)
        root = Root(
            first,
            first + length,
            epoch=self.epoch,
            version=self.version,
            ledger=Ledger.of(self.claims),
            entries=Entries.of([entry]),
            last_chunk=LastChunk(first, 1),
        )
        path = root_path(PREFIX, STREAM, self.epoch, self.version, self.version)
        self.store.put(path, root.encode(), write_id="w")
        before = self.items.items.get(STREAM, CatalogItem(STREAM, "memory"))
        self.items.items[STREAM] = replace(
            before,
            uid=self.version,
            root_key=path,
            epoch=self.epoch,
            version=self.version,
            first_offset=first,
            next_offset=first + length,
            fragments=1,
            ledger=root.ledger,
        )

    def change_state(self, **changes: Any) -> None:
        item = self.items.items[STREAM]
        self.items.items[STREAM] = replace(item, **changes)

    def collect(
        self,
        deleter: Any = None,
        *,
        skew: int = 0,
        held: Callable[[CatalogItem], bool] = lambda _: False,
        **more: Any,
    ) -> Collection:
        self.items.live = True
        try:
            return collect(
                self.context,
                deleter or self.store,
                STREAM,
                grace_ms=GRACE,
                run_ms=max(0, self.now + skew),
                now_ms=self.now + skew,
                held=held,
                **more,
            )
        finally:
            self.items.live = False


def subsets(moments: Sequence[int]) -> Iterator[tuple[int, ...]]:
    for size in range(len(moments) + 1):
        yield from combinations(moments, size)


@pytest.mark.parametrize("skew", [0, 3 * STEP, -STEP])
def test_an_object_goes_exactly_when_it_was_seen_a_grace_time_ago_and_was_old_already_then(
    skew: int,
) -> None:
    for written, free, changes, runs in product(
        (0, 1), (0, 3), (None, 2, 3, 4, 5), subsets((1, 2, 3, 4, 5))
    ):
        place = Place()
        place.names(X if free else Y)
        revision = 0
        seen: list[tuple[int, int]] = []
        for moment in range(6):
            place.now = moment * STEP
            if moment == written:
                place.store.put(key_of(X), b"x", write_id="w")
                place.store.put(key_of(Y), b"y", write_id="w")
            if free and moment == free:
                place.names(Y)
            if moment == changes:
                revision += 1
                # Undone by a restore of the table: the same number once more, another token.
                place.change_state(revision=revision % 2 * (moment % 2), state_token=revision)
            if moment not in runs or written > moment:
                continue
            mine = place.now + skew
            ripe = free <= moment and written * STEP <= mine - GRACE
            proved = ripe and any(
                at * STEP <= min(place.now, mine) - GRACE
                and (at - written) * STEP >= GRACE
                and state == revision
                for at, state in seen
            )
            objects = dict(place.store.objects)
            dry = place.collect(skew=skew, dry_run=True)
            assert place.store.objects == objects
            # A dry run writes nothing, so it has no time but its own.
            if skew <= 0:
                assert (dry.provable.objects > 0) or not proved
            report = place.collect(skew=skew)
            gone = key_of(X) not in place.store.objects
            assert gone == proved, (written, free, changes, runs, moment)
            assert key_of(Y) in place.store.objects
            assert report.deleted.get(ObjectKind.SUPERSEDED, module.Count()).objects == int(gone)
            if gone:
                break
            if ripe:
                seen.append((moment, revision))


def test_what_a_dry_run_calls_provable_is_what_a_run_deletes() -> None:
    for runs in subsets((1, 2, 3, 4, 5, 6)):
        place = Place()
        place.names(Y)
        place.store.put(key_of(X), b"x", write_id="w")
        for moment in runs:
            place.now = moment * STEP
            dry = place.collect(dry_run=True)
            assert not dry.deleted
            report = place.collect()
            records = report.deleted.pop(ObjectKind.OLD_RECORD, module.Count()).objects
            assert dry.provable.objects == sum(each.objects for each in report.deleted.values())
            waiting = dry.found.get(ObjectKind.SUPERSEDED, module.Count()).objects
            assert dry.waiting.objects == waiting - dry.provable.objects
            assert records <= len(runs)


@pytest.mark.parametrize("held", [True, False])
def test_a_legal_hold_keeps_what_retention_took_and_doubles(held: bool) -> None:
    place = Place()
    place.names(Y, first=1)
    for path in (key_of(X), key_of(X, 1), key_of(Y, 1)):
        place.store.put(path, b"x", write_id="w")
    for moment in (2, 4):
        place.now = moment * STEP
        report = place.collect(held=lambda _: held)
    assert (key_of(X) in place.store.objects) == held
    assert (key_of(X, 1) in place.store.objects) == held
    assert key_of(Y, 1) in place.store.objects
    assert report.held.objects == 2 * held


class Checked:
    """Deletes, and looks at the item in that very moment."""

    def __init__(self, place: Place) -> None:
        self.place = place

    def delete(self, keys: Sequence[str]) -> list[str]:
        item = self.place.items.items[STREAM]
        root = self.place.store.objects[item.root_key]
        if key_of(X) in keys:
            assert (X).to_bytes(8, "big") not in root
            assert (item.revision, item.state_token, item.state) == (0, 0, StreamState.LIVE)
        return self.place.store.delete(keys)


def test_whatever_happens_between_proof_and_delete_nothing_goes_that_is_named_again() -> None:
    kinds = ("nothing", "append", "claim", "named", "state")
    for happening in product(kinds, repeat=3):
        place = Place()
        place.names(Y)
        place.store.put(key_of(X), b"x", write_id="w")
        place.store.put(key_of(Y), b"x", write_id="w")
        place.now = 2 * STEP
        place.collect()
        place.now = 4 * STEP

        def happens(kind: str, place: Place = place) -> Callable[[], None]:
            moves: dict[str, Callable[[], None]] = {
                "nothing": lambda: None,
                "append": lambda: place.names(Y),
                "claim": lambda: place.names(Y, claim=True),
                "named": lambda: place.names(X, claim=True),
                "state": lambda: place.change_state(revision=2, state_token=5),
            }
            return moves[kind]

        place.items.before = [lambda: None, *(happens(kind) for kind in happening)]
        try:
            place.collect(Checked(place))
        except ConflictError:
            assert "state" in happening
        left = len(place.items.before)
        done = happening[: 3 - left]
        gone = key_of(X) not in place.store.objects
        if "named" not in done and "state" not in done:
            assert gone
        if "named" in done:
            # It may go only where a later root does not name it any more.
            later = done[max(n for n, each in enumerate(done) if each == "named") :]
            assert not gone or "claim" in later or "append" in later


@pytest.mark.parametrize("reads", [0, 1, 2])
def test_an_item_that_goes_while_the_proof_is_made_stops_the_delete(reads: int) -> None:
    place = Place()
    place.names(Y)
    place.store.put(key_of(X), b"x", write_id="w")
    place.now = 2 * STEP
    place.collect()
    place.now = 4 * STEP
    claim = partial(place.names, Y, claim=True)
    place.items.before = [*[claim] * reads, place.items.items.clear]
    with pytest.raises(NotFoundError):
        place.collect()
    assert key_of(X) in place.store.objects


@pytest.mark.parametrize("proofs", [1, 2, 3])
def test_a_proof_that_claims_undo_again_and_again_is_left_to_a_later_run(
    proofs: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_PROOFS", proofs)
    for claims in range(8):
        place = Place()
        place.names(Y)
        place.store.put(key_of(X), b"x", write_id="w")
        place.store.put(key_of(Y), b"x", write_id="w")
        place.now = 2 * STEP
        place.collect()
        place.now = 4 * STEP
        place.items.before = [lambda: None] + [partial(place.names, Y, claim=True)] * claims
        report = place.collect()
        # Of each proof's two reads the second one must find no claim.
        done = claims < 2 * proofs
        assert (key_of(X) not in place.store.objects) == done
        assert report.busy.objects == (0 if done else 1)


# --- steps and batches -----------------------------------------------------------------------


def crowded(objects: int) -> Place:
    """A stream with so many objects in the place of which others are, ripe and seen."""
    place = Place()
    place.names(Y)
    place.store.put(key_of(Y), b"y", write_id="w")
    for number in range(objects):
        place.store.put(key_of(100 + number), b"x", write_id="w")
        path = root_path(PREFIX, STREAM, 1, 0, 200 + number)
        place.store.put(path, b"r", write_id="w")
    place.now = 2 * STEP
    return place


@pytest.mark.parametrize("page", [1, 2, 3, 5])
def test_steps_of_every_length_see_every_object_once_and_delete_all_garbage(
    page: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    for rows, batch, long, objects in product((1, 2, 100), (1, 2, 1000), (0, 1000), range(4)):
        monkeypatch.setattr(module, "_ROWS_AT_ONCE", rows)
        monkeypatch.setattr(module, "_AT_ONCE", batch)
        monkeypatch.setattr(module, "MAX_CANDIDATES", long or page)
        place = crowded(objects)
        place.__class__ = Paged
        place.__dict__["page"] = page
        for moment in range(2, 12, 2):
            place.now = moment * STEP
            found = 0
            cursor: str | None = None
            while True:
                # Time for one page of the listing, one record, and one batch of deletes; with so
                # little, pages of one key do not show all roots.
                report = place.collect(
                    cursor=cursor, time_to_list=lambda: False, time_left=lambda: page == 1
                )
                found += report.found.get(ObjectKind.REFERENCED, module.Count()).objects
                cursor = report.cursor
                if cursor is None:
                    break
            if moment == 2:
                assert found == 2
        left = {each for each in place.store.objects if not each.endswith(".marks")}
        assert left == {key_of(Y), place.items.items[STREAM].root_key}


def test_a_step_without_time_tries_one_batch_and_the_next_goes_on_behind_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Counting:
        def __init__(self, store: MemoryObjectStore) -> None:
            self.store = store
            self.batches: list[Sequence[str]] = []

        def delete(self, keys: Sequence[str]) -> list[str]:
            self.batches.append(keys)
            return self.store.delete(keys)

    for batch, objects in product((1, 2, 3), (1, 2, 3)):
        monkeypatch.setattr(module, "_AT_ONCE", batch)
        place = crowded(objects)
        place.collect()
        place.now = 4 * STEP
        roots = sorted(each for each in place.store.objects if ".000000000000." in each)
        data = sorted(key_of(100 + number) for number in range(objects))
        # Nodes in batches of their own, and all in the order of the listing.
        expected = [some[n : n + batch] for some in (roots, data) for n in range(0, objects, batch)]
        cursor: str | None = None
        for each in expected:
            deleter = Counting(place.store)
            report = place.collect(
                deleter, cursor=cursor, time_to_list=lambda: True, time_left=lambda: False
            )
            assert deleter.batches == [each]
            cursor = report.cursor
            assert (cursor is None) == (each is expected[-1])


def test_a_run_through_a_long_stream_sees_every_object_once_wherever_it_begins(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "MAX_CANDIDATES", 2)
    begun = set()
    for page, run, whole in product((1, 2, 100), range(12), (True, False)):
        place = Paged()
        place.__dict__["page"] = page
        place.names(Y, length=4)
        for number in range(4):
            place.store.put(key_of(100 + number, number), b"x", write_id="w")
        place.change_state(fragments=3)
        place.now = run  # too early for anything to be garbage that is ripe
        found: dict[ObjectKind, int] = {}
        cursor: str | None = None
        while True:
            report = place.collect(cursor=cursor, time_to_list=lambda: whole)  # noqa: B023
            for kind, count in report.found.items():
                found[kind] = found.get(kind, 0) + count.objects
            cursor = report.cursor
            if cursor is None:
                break
            begun.add(cursor)
        assert found == {ObjectKind.REFERENCED: 1, ObjectKind.SUPERSEDED: 4}
    assert any(each.startswith("wrap@") for each in begun)


class Paged(Place):
    """A place whose LIST gives a few keys at once."""

    @property
    def context(self) -> Context:
        page: int = self.__dict__["page"]
        return replace(super().context, page_size=page)


def test_what_s3_does_not_delete_is_counted_and_tried_again() -> None:
    class Failing:
        def __init__(self, store: MemoryObjectStore, fails: Sequence[bool], error: bool) -> None:
            self.store, self.fails, self.error = store, fails, error

        def delete(self, keys: Sequence[str]) -> list[str]:
            data = [each for each in keys if "/data/" in each]
            if self.error and data:
                raise UnavailableError("no answer")
            return self.store.delete(
                [k for k in keys if k not in data or not self.fails[data.index(k)]]
            )

    for fails, error in product(masks(3), (False, True)):
        place = crowded(3)
        place.collect()
        place.now = 4 * STEP
        report = place.collect(Failing(place.store, fails, error))
        expected = 3 if error else sum(fails)
        assert report.refused.objects == expected
        assert (report.trouble is not None) == error
        assert report.deleted.get(ObjectKind.SUPERSEDED, module.Count()).objects == 3 - expected
        place.collect()
        left = [each for each in place.store.objects if "/data/" in each]
        assert left == [key_of(Y)]


# --- records ---------------------------------------------------------------------------------


def test_a_record_is_ripe_after_a_grace_time_and_goes_when_a_later_run_or_four_have_passed() -> (
    None
):
    moments = [(run, at) for run in (1, 2, 3) for at in (0, 1, 2)]
    for number in range(4):
        for chosen in combinations(moments, number):
            some = [
                Record(MarkKey(STREAM, run, n), f"r{n}", at * STEP)
                for n, (run, at) in enumerate(chosen)
            ]
            for now in (0, 1, 2, 3, 4, 8, 9, 10, 11):
                old = [each for each in some if now * STEP - each.modified_ms >= GRACE]
                assert mature(some, now_ms=now * STEP, grace_ms=GRACE) == old
                needless = [
                    each
                    for each in old
                    if any(one.key.created_ms > each.key.created_ms for one in old)
                    or now * STEP - each.modified_ms >= 4 * GRACE
                ]
                assert replaced(some, now_ms=now * STEP, grace_ms=GRACE) == needless


def record_of(document: object, lines: bytes, *, tail: bytes = b"") -> tuple[Context, Record]:
    place = Place()
    body = gzip.compress(json.dumps(document).encode() + b"\n", mtime=0)
    body += gzip.compress(lines, mtime=0) + tail
    path = collect_path(PREFIX, STREAM, 1, 7)
    place.store.put(path, body, write_id="w")
    return place.context, Record(MarkKey(STREAM, 1, 7), path, 0, len(body))


def said(**more: object) -> dict[str, object]:
    return {
        "version": VERSION,
        "stream": STREAM,
        "revision": 3,
        "state_token": "00000000000000ff",
        "state": "live",
        "first": "a",
        "last": "b",
        "count": 2,
        **more,
    }


def test_a_record_names_its_keys_only_if_they_rise_and_are_as_many_as_it_says() -> None:
    under = stream_prefix(PREFIX, STREAM)
    wanted = {under + each for each in ("a", "c")}
    for size in range(4):
        for lines, count, ended in product(
            product(("", "a", "b", "c"), repeat=size), (0, 1, 2, 3), (True, False)
        ):
            text = "".join(f"{line}\n" for line in lines)
            text = text if ended else text[:-1]
            context, record = record_of(said(count=count), text.encode())
            *read, rest = text.split("\n")
            rising = all(one < other for one, other in zip(("", *read), read, strict=False))
            whole = not rest and rising and count == len(read) > 0
            if whole:
                found = seen_in(context, STREAM, record, wanted)
                assert found == {under + line for line in read} & wanted
            else:
                with pytest.raises(CorruptDataError):
                    seen_in(context, STREAM, record, wanted)


def test_a_header_is_read_only_if_each_of_its_fields_is_one_that_a_record_has() -> None:
    good: dict[str, tuple[object, ...]] = {
        "version": (VERSION,),
        "stream": (STREAM,),
        "revision": (0, 3),
        "state_token": ("0", "ff"),
        "state": tuple(StreamState),
        "first": ("", "a"),
        "last": ("b", "c"),
        "count": (1, 2, 10**6),
    }
    bad: dict[str, tuple[object, ...]] = {
        "version": (VERSION - 1, VERSION + 1, None),
        "stream": ("__other_1", None),
        "revision": (None, "3", 0.5),
        "state_token": (None, 5, "x", ""),
        "state": (None, 1, "", "gone", [], {}),
        "first": (None, 1),
        "last": (None, 1),
        "count": (None, "2", 0, -1, 10**6 + 1, 0.5),
    }
    for name, values in good.items():
        for value in values:
            document = said(**{name: value})
            context, record = record_of(document, b"a\nb\n")
            header = read_header(context, STREAM, record)
            under = stream_prefix(PREFIX, STREAM)
            assert header.state == ProofState(
                int(str(document["revision"])),
                int(str(document["state_token"]), 16),
                StreamState(str(document["state"])),
            )
            assert (header.first, header.last) == (
                f"{under}{document['first']}",
                f"{under}{document['last']}",
            )
            assert header.count == document["count"]
    for name, values in bad.items():
        documents = [said(**{name: value}) for value in values]
        if name != "state":  # see the next test
            documents.append({key: value for key, value in said().items() if key != name})
        for document in documents:
            context, record = record_of(document, b"a\nb\n")
            with pytest.raises(CorruptDataError):
                read_header(context, STREAM, record)
            with pytest.raises(CorruptDataError):
                seen_in(context, STREAM, record, set())


def test_a_record_of_a_release_that_wrote_no_state_is_one_of_a_live_stream() -> None:
    document = said()
    del document["state"]
    context, record = record_of(document, b"a\nb\n")

    assert read_header(context, STREAM, record).state == ProofState(3, 0xFF, StreamState.LIVE)


def test_a_record_that_is_cut_anywhere_or_goes_on_proves_nothing() -> None:
    context, record = record_of(said(), b"a\nb\n")
    body = bytes(context.store.get_all(record.path, limit=10**6))
    for damaged in (*(body[:n] for n in range(len(body))), body + b"x", body + body):
        place = Place()
        place.store.put(record.path, damaged, write_id="w")
        with pytest.raises(CorruptDataError):
            seen_in(place.context, STREAM, replace(record, size=len(damaged)), {"a"})


def test_what_is_written_down_is_what_is_read() -> None:
    names = [f"{stream_prefix(PREFIX, STREAM)}{each}" for each in ("data/a", "data/b", "meta/c")]
    for chosen, asked in product(masks(3), masks(3)):
        keys = [name for name, taken in zip(names, chosen, strict=True) if taken]
        wanted = {name for name, taken in zip(names, asked, strict=True) if taken}
        if not keys:
            continue
        context = Place(now=7).context
        state = ProofState(3, 4, list(StreamState)[len(keys)])
        record = write_record(context, STREAM, run_ms=5, state=state, keys=keys[::-1])
        assert record.modified_ms == 7
        header = read_header(context, STREAM, record)
        assert (header.state, header.count) == (state, len(keys))
        assert (header.first, header.last) == (keys[0], keys[-1])
        assert seen_in(context, STREAM, record, wanted) == wanted & {*keys}


def test_a_record_is_read_the_same_in_pieces_of_every_size(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    names = [f"{stream_prefix(PREFIX, STREAM)}data/{n:03}" for n in range(30)]
    context = Place(now=7).context
    record = write_record(context, STREAM, run_ms=5, state=ProofState(3, 4), keys=names)
    for taken, given in product((1, 2, 3, 5, 64), repeat=2):
        monkeypatch.setattr(records_module, "_INPUT", taken)
        monkeypatch.setattr(records_module, "_BLOCK", given)
        assert seen_in(context, STREAM, record, {*names[::3], "x"}) == {*names[::3]}


@pytest.mark.parametrize("length", range(1022, 1028))
def test_a_key_is_at_most_as_long_as_s3_allows(length: int) -> None:
    under = stream_prefix(PREFIX, STREAM)
    for lines in ([b"a" * length], [b"a", b"b" * length], [b"a" * length, b"b"]):
        context, record = record_of(
            said(count=len(lines)), b"".join(each + b"\n" for each in lines)
        )
        wanted = {under + each.decode() for each in lines}
        if length <= 1024:
            assert seen_in(context, STREAM, record, wanted) == wanted
        else:
            with pytest.raises(CorruptDataError):
                seen_in(context, STREAM, record, wanted)


@pytest.mark.parametrize("size", [3, 4, 5])
def test_a_record_of_more_bytes_than_any_has_proves_nothing(
    size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(records_module, "MAX_RECORD", 4)
    context, record = record_of(said(count=1), b"a" * (size - 1) + b"\n")
    if size <= 4:
        assert seen_in(context, STREAM, record, set()) == set()
    else:
        with pytest.raises(CorruptDataError):
            seen_in(context, STREAM, record, set())
