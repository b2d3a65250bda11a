"""What is asked before an object counts as garbage: quarantine, rivals and the last chunk."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from coldstream.manifest.entries import Entries, EntryKind
from coldstream.manifest.ledger import Ledger
from coldstream.manifest.quarantine import QuarantineRecord, Timeline
from coldstream.manifest.root import Root
from coldstream.names import quarantine_path, root_path
from coldstream.plans.collect import ObjectKind
from coldstream.ports import ObjectInfo
from coldstream.remote.roots import Snapshot, load
from coldstream.usecases import classify as module
from coldstream.usecases.classify import Classifier
from coldstream.usecases.commit_runs import commit_runs
from coldstream.usecases.references import MAX_RIVALS, rivals
from tests.support.remote import PREFIX, STREAM, Remote, chain, no_pause, piece


@pytest.fixture
def remote() -> Remote:
    remote = Remote().claimed()
    remote.upload(*chain(6))
    commit_runs(remote.context, STREAM, pause=no_pause)
    return remote


@pytest.fixture
def classifier(remote: Remote) -> Classifier:
    return Classifier(remote.context, load(remote.context, STREAM))


def quarantine(*, listed: tuple[str, ...] = (), roots: tuple[Any, ...] = ()) -> Any:
    return SimpleNamespace(
        record=QuarantineRecord(),
        listed=set(listed),
        names=lambda key: False,
        root_keys=set(),
        record_keys=set(),
        roots=roots,
    )


def row(path: str) -> ObjectInfo:
    return ObjectInfo(path, 1, 0)


def test_what_a_quarantine_record_lists_is_kept_also_where_it_is_a_copy(
    remote: Remote, classifier: Classifier
) -> None:
    # An adoption asks for all that the record names.
    (copy,) = remote.upload(piece(0, 10, uid=900))
    assert classifier.kind(row(copy)).garbage

    classifier._quarantine = quarantine(listed=(copy,))

    assert classifier.kind(row(copy)) is ObjectKind.QUARANTINED


def test_a_record_that_no_root_names_is_kept_while_nobody_knows_the_roots(
    classifier: Classifier,
) -> None:
    path = quarantine_path(PREFIX, STREAM, 1, 5)

    assert classifier.kind(row(path)) is ObjectKind.OLD_QUARANTINE
    classifier._rivals = None
    assert classifier.kind(row(path)) is ObjectKind.PENDING


def test_a_leaf_that_reaches_over_the_first_offset_is_referenced(
    remote: Remote, classifier: Classifier
) -> None:
    loaded = load(remote.context, STREAM)
    classifier._root = replace(loaded.root, first_offset=15)
    dead, alive = (piece(n, n + 10) for n in (0, 10))

    assert classifier.kind(row(alive.path(PREFIX))) is ObjectKind.REFERENCED
    assert classifier.kind(row(dead.path(PREFIX))) is ObjectKind.RETIRED


@pytest.fixture
def refused(remote: Remote, classifier: Classifier) -> str:
    """A fragment [20, 30) that the ledger refuses, and whose last chunk the manifest lacks."""
    loaded = load(remote.context, STREAM)
    (path,) = remote.upload(piece(20, 30, epoch=1, uid=901))
    classifier._root = replace(loaded.root, ledger=Ledger.of([(1, 0), (2, 10)]), epoch=2)
    return path


def only_in_a_timeline(classifier: Classifier) -> Callable[..., bool]:
    """The manifest lacks the chunk, and whatever else is asked has it."""
    return lambda context, stream, root, path: root is not classifier._root


def timeline_root(remote: Remote, **changes: Any) -> Root:
    return replace(load(remote.context, STREAM).root, **changes)


@pytest.mark.parametrize(
    ("floor", "expected"),
    [(10, ObjectKind.FENCED), (29, ObjectKind.FENCED), (30, ObjectKind.UNIQUE)],
)
def test_a_lost_timeline_speaks_only_of_what_it_was_cut_off_with(
    remote: Remote, classifier: Classifier, refused: str, floor: int, expected: ObjectKind,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setattr(module, "holds_last_chunk", only_in_a_timeline(classifier))
    timeline = Timeline(epoch=2, floor=floor, next_offset=60)
    classifier._quarantine = quarantine(roots=((timeline, timeline_root(remote)),))

    assert classifier.kind(row(refused)) is expected


def test_a_lost_timeline_with_a_hole_holds_no_chunk_of_it(
    remote: Remote, classifier: Classifier, refused: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "holds_last_chunk", only_in_a_timeline(classifier))
    root = timeline_root(remote)
    entries = [
        replace(each, kind=EntryKind.HOLE, size=0, records=0) if each.first_offset == 20 else each
        for each in root.entries
    ]
    classifier._quarantine = quarantine(
        roots=(
            (
                Timeline(epoch=2, floor=10, next_offset=60),
                replace(root, entries=Entries.of(entries)),
            ),
        )
    )

    assert classifier.kind(row(refused)) is ObjectKind.UNIQUE


def test_a_chunk_that_was_held_is_looked_for_again_where_the_tree_has_another_fragment(
    remote: Remote, classifier: Classifier, refused: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded = Snapshot(classifier._item, classifier._root)
    leaf = next(each for each in loaded.root.entries if each.first_offset == 20)
    answers = iter([True, False])
    asked = []

    def holds(*_: Any) -> bool:
        asked.append(1)
        return next(answers)

    monkeypatch.setattr(module, "holds_last_chunk", holds)
    assert classifier.kind(row(refused)) is ObjectKind.FENCED
    assert classifier.kind(row(refused)) is ObjectKind.FENCED
    assert len(asked) == 1  # nothing is read twice

    entries = [replace(each, uid=7) if each == leaf else each for each in loaded.root.entries]
    classifier._root = replace(loaded.root, entries=Entries.of(entries))

    assert classifier.kind(row(refused)) is ObjectKind.UNIQUE
    assert len(asked) == 2


def test_a_classifier_is_not_renewed_over_a_claim(remote: Remote, classifier: Classifier) -> None:
    loaded = load(remote.context, STREAM)
    claimed = replace(loaded.item, version=loaded.item.version + 1, epoch=2)

    assert classifier.renewed(Snapshot(loaded.item, loaded.root)) is not None
    assert classifier.renewed(Snapshot(claimed, loaded.root)) is None


@pytest.mark.parametrize("count", [0, 1, MAX_RIVALS, MAX_RIVALS + 1, MAX_RIVALS + 9])
def test_with_too_many_roots_that_may_be_adopted_only_roots_are_garbage(
    remote: Remote, count: int
) -> None:
    loaded = load(remote.context, STREAM)
    version = loaded.item.version + 1
    for uid in range(count):
        path = root_path(PREFIX, STREAM, 1, version, uid)
        remote.memory.put(path, replace(loaded.root, version=version).encode(), write_id="r")
    (copy,) = remote.upload(piece(0, 10, uid=900))
    classifier = Classifier(remote.context, loaded)
    old = root_path(PREFIX, STREAM, 1, 1, 1)

    assert classifier.blind == (count > MAX_RIVALS)
    assert classifier.kind(row(copy)) is (
        ObjectKind.PENDING if classifier.blind else ObjectKind.SUPERSEDED
    )
    assert classifier.kind(row(old)) is ObjectKind.OLD_ROOT


def test_without_time_to_list_the_roots_only_roots_are_garbage(remote: Remote) -> None:
    for number in range(5):
        path = root_path(PREFIX, STREAM, 1, 50 + number, number)
        remote.memory.put(path, b"not read", write_id="r")
    (copy,) = remote.upload(piece(0, 10, uid=900))
    context = replace(remote.new_context(), page_size=2)

    blind = Classifier(context, load(context, STREAM), time_left=lambda: False)

    assert blind.blind
    assert blind.kind(row(copy)) is ObjectKind.PENDING
    assert not Classifier(context, load(context, STREAM)).blind


def test_the_current_root_is_no_rival(remote: Remote) -> None:
    assert rivals(remote.context, load(remote.context, STREAM).item) == []
