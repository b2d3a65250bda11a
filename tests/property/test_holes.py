"""Holes, fragments, claims and commits in any order: data wins over every hole, and stays found."""

from __future__ import annotations

from functools import cache

from hypothesis import given
from hypothesis import strategies as st

from coldstream.manifest.entries import Entry, EntryKind
from coldstream.manifest.invariants import agreement, coverage, fencing
from coldstream.names import DataKey, parse_data_key
from coldstream.remote.roots import load
from coldstream.usecases.commit_runs import commit_runs
from coldstream.usecases.holes import declare, find_gap
from coldstream.usecases.rebuild import rebuild
from coldstream_devkit.fragments import SyntheticFragment
from tests.support.examples import examples
from tests.support.remote import PREFIX, STREAM, Remote, no_pause, piece


@cache
def made(first: int, length: int, uid: int, good: bool) -> SyntheticFragment:
    fragment = piece(first, first + length, uid=uid + 1)
    return fragment if good else fragment.lying(floor=3)


offsets, lengths = st.integers(0, 24), st.integers(1, 6)
steps = st.one_of(
    st.tuples(st.just("fragment"), offsets, lengths, st.integers(0, 9)),
    st.tuples(st.just("fragment"), offsets, lengths, st.integers(0, 9)),
    st.tuples(st.just("hole"), offsets, lengths, st.integers(0, 9)),
    st.tuples(st.just("gap"), offsets, lengths, st.just(0)),
    st.tuples(st.just("commit"), st.just(0), st.integers(1, 4), st.just(0)),
)


def data_in_holes(remote: Remote, entries: list[Entry]) -> list[DataKey]:
    """Good fragments in the bucket that begin inside a hole."""
    holes = [each for each in entries if each.kind is EntryKind.HOLE]
    found = []
    for path in remote.memory.objects:
        if path.endswith(".fragment"):
            key = parse_data_key(path, PREFIX)
            good = key.uid % 10 != 1
            if good and any(h.first_offset <= key.first_offset < h.next_offset for h in holes):
                found.append(key)
    return found


@examples(2.5)
@given(st.lists(steps, max_size=25))
def test_no_commit_takes_a_hole_over_good_data_and_a_rebuild_reaches_as_far(
    given_steps: list[tuple[str, int, int, int]],
) -> None:
    remote = Remote().claimed()
    before: list[Entry] = []
    for what, first, length, uid in given_steps:
        if what == "fragment":
            path = made(first, length, uid, uid != 0).path(PREFIX)
            if path not in remote.memory.objects:
                remote.upload(made(first, length, uid, uid != 0))
        elif what == "hole":
            key = DataKey(STREAM, first, first + length, 1, uid, "hole")
            remote.memory.objects.setdefault(key.path(PREFIX), b"")
        elif what == "gap":
            _, gap = find_gap(
                remote.context,
                STREAM,
                local_first=first + length,
                commit=lambda: commit_runs(remote.context, STREAM, pause=no_pause, thorough=True),
                pause=no_pause,
            )
            if gap is not None:
                declare(remote.context, STREAM, gap)
        known = set(data_in_holes(remote, before))
        commit_runs(
            remote.new_context(), STREAM, pause=no_pause, limit=length if what == "commit" else 500
        )
        loaded = load(remote.new_context(), STREAM)
        entries = list(loaded.root.entries)
        assert entries[: len(before)] == before
        # What was in the bucket when a hole was taken never begins inside it.
        assert set(data_in_holes(remote, entries)) <= known
        assert not entries or entries[-1].kind is EntryKind.FRAGMENT
        assert agreement(loaded.item, loaded.root) == coverage(loaded.root) == []
        assert fencing(loaded.root) == []
        before = entries
    if not any("/data/" in key for key in remote.memory.objects):
        return
    end = remote.root().next_offset

    assert rebuild(remote.new_context(), STREAM, branching=1024, dry_run=False).landed
    loaded = load(remote.new_context(), STREAM)
    assert loaded.root.next_offset >= end
    assert agreement(loaded.item, loaded.root) == coverage(loaded.root) == []

    # With nothing else in the bucket, the tree comes out as it is.
    before = list(loaded.root.entries)
    needed = {each.data_key(STREAM).path(PREFIX) for each in before}
    for path in [path for path in remote.memory.objects if "/data/" in path]:
        if path not in needed:
            del remote.memory.objects[path]
    rebuild(remote.new_context(), STREAM, branching=1024, dry_run=False)
    assert list(remote.root().entries) == before
