"""Oracles of the ledger and of run resolution: the rules of docs/architecture.md, word by word.

Nothing here calls the code under test: an oracle looks at every claim, and at every possible run.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from coldstream.names import MAX_OFFSET, DataKey
from coldstream.plans.resolve import Listed

#: (epoch, floor), by rising epoch.
Claims = Sequence[tuple[int, int]]


def ceiling(claims: Claims, epoch: int) -> int:
    """The minimum of the floors of all higher epochs."""
    return min((floor for each, floor in claims if each > epoch), default=MAX_OFFSET)


def may_write(claims: Claims, epoch: int, first: int, next_offset: int) -> bool:
    """Whether data of an epoch over [first, next_offset) is acceptable."""
    floors = [floor for each, floor in claims if each == epoch]
    return bool(floors) and floors[0] <= first and next_offset <= ceiling(claims, epoch)


def acceptable(claims: Claims, key: DataKey) -> bool:
    """Whether what a key names is acceptable."""
    return may_write(claims, key.epoch, key.first_offset, key.next_offset)


def every_run(at: int, candidates: Sequence[Listed]) -> Iterator[tuple[Listed, ...]]:
    """Every chain of candidates that starts at `at`, the empty one first."""
    yield ()
    for each in candidates:
        if each.data_key.first_offset == at:
            for rest in every_run(each.data_key.next_offset, candidates):
                yield (each, *rest)


def shortest(runs: Iterable[tuple[Listed, ...]]) -> tuple[Listed, ...]:
    """Fewest objects; then, from the end, the one that begins first, then the smaller uid."""
    return min(
        runs,
        key=lambda run: (
            len(run),
            [(each.data_key.first_offset, each.data_key.uid) for each in reversed(run)],
        ),
    )


def end_of(run: Sequence[Listed], start: int) -> int:
    """Where a run ends that begins at `start`."""
    return run[-1].data_key.next_offset if run else start


def best_run(
    at: int, claims: Claims, listed: Sequence[Listed], without: set[str]
) -> tuple[Listed, ...]:
    """The rules of `plans.resolve`, word by word, over every possible run."""
    good = [e for e in listed if e.path not in without and acceptable(claims, e.data_key)]
    data = [e for e in good if e.data_key.kind == "fragment"]
    holes = [e for e in good if e.data_key.kind == "hole"]
    runs = list(every_run(at, data))
    end = max(end_of(run, at) for run in runs)
    best = shortest(run for run in runs if end_of(run, at) == end)
    above = [e.data_key.first_offset for e in data if e.data_key.first_offset > end]
    over = [run for run in every_run(end, holes) if run and run[-1].data_key.next_offset in above]
    # No acceptable fragment begins inside.
    over = [run for run in over if run[-1].data_key.next_offset == min(above)]
    if not over:
        return best
    return (*best, *shortest(over), *best_run(min(above), claims, listed, without))


def waits(at: int, claims: Claims, listed: Sequence[Listed]) -> bool:
    """A hole begins where the run ends, and no acceptable fragment begins inside it."""
    good = [each.data_key for each in listed if acceptable(claims, each.data_key)]
    end = end_of(best_run(at, claims, listed, set()), at)
    begins = {key.first_offset for key in good if key.kind == "fragment"}
    return any(
        key.kind == "hole"
        and key.first_offset == end
        and not begins & set(range(end + 1, key.next_offset))
        for key in good
    )
