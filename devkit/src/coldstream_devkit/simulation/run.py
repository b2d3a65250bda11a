"""Many seeds on all cores: `python -m coldstream_devkit.simulation.run --seeds 10000`.

The last line is `seeds N violations N histories/s N`; the exit code is 1 if there is a violation,
or if many histories have not met what they must (`coverage`).
Every failing seed is told with what broke; the first ones are shrunk and their traces printed. A
seed is played again by `--trace SEED`.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import hashlib
import json
import os
import signal
import statistics
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from multiprocessing import get_context
from pathlib import Path

from coldstream_devkit.simulation import history
from coldstream_devkit.simulation.choices import Choices
from coldstream_devkit.simulation.coverage import covered, missed
from coldstream_devkit.simulation.history import ACTIONS, set_up
from coldstream_devkit.simulation.mutants import MUTANTS, without
from coldstream_devkit.simulation.oracle import BrokenError
from coldstream_devkit.simulation.scene import Scene
from coldstream_devkit.simulation.shrink import shrink

_BATCH = 100
_SEEDS = 2000
#: The seed that has caught each mutant once. It is played first, so that CI looks for few of them
#: anew; a change of what a history chooses makes them stale: `make mutants RECORD=1`.
CAUGHT = Path(__file__).with_name("caught.json")
_SHRUNK = 3  # so many failures are shrunk and shown in full


@dataclass(frozen=True, slots=True)
class Failure:
    """A seed whose history broke something.

    Attributes:
        seed: of it.
        kind: names of the invariants, or of the error.
        message: what broke, in words.
    """

    seed: int
    kind: str
    message: str


@dataclass(slots=True)
class Tally:
    """What some seeds came to.

    Attributes:
        seeds: how many.
        failures: those that broke something.
        events: how often each kind of event occurred.
        shapes: digests of the different mixtures of events that histories had.
        steps: of each history.
        seconds: of one core.
    """

    seeds: int = 0
    failures: list[Failure] = field(default_factory=list)
    events: Counter[str] = field(default_factory=Counter)
    shapes: set[bytes] = field(default_factory=set)
    steps: list[int] = field(default_factory=list)
    seconds: float = 0

    def add(self, other: Tally) -> None:
        """Count what another one has."""
        self.seeds += other.seeds
        self.failures += other.failures
        self.events += other.events
        self.shapes |= other.shapes
        self.steps += other.steps
        self.seconds += other.seconds


def play(
    choices: Choices, *, lines: list[str] | None = None, actions: int = ACTIONS
) -> tuple[Scene, Failure | None]:
    """Play one history; where it has ended, and its failure, with seed 0, if it has one."""
    scene = set_up(choices, lines.append if lines is not None else None)
    try:
        history.play(choices, scene, actions=actions)
    except BrokenError as exc:
        kinds = sorted({each.invariant.value for each in exc.violations})
        return scene, Failure(0, "+".join(kinds), str(exc))
    except Exception as exc:  # noqa: BLE001 - whatever it is, this seed has found it
        return scene, Failure(0, type(exc).__name__, f"{type(exc).__name__}: {exc}")
    return scene, None


def play_seeds(seeds: range, mutant: str = "", *, actions: int = ACTIONS) -> Tally:
    """Play some seeds, one after the other, with the guard of `mutant` taken out."""
    tally = Tally()
    began = time.process_time()
    with _no_collector(), without(mutant) if mutant else contextlib.nullcontext():
        for seed in seeds:
            scene, failure = play(Choices(seed), actions=actions)
            tally.seeds += 1
            if failure is not None:
                tally.failures.append(Failure(seed, failure.kind, failure.message))
            tally.events += scene.buckets
            tally.shapes.add(_shape(scene.buckets))
            tally.steps.append(scene.scheduler.steps)
    tally.seconds = time.process_time() - began
    return tally


@contextlib.contextmanager
def _no_collector() -> Iterator[None]:
    """Greenlets and frames are cycles; they are collected once a batch, not all the time."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
        gc.collect()


def _shape(events: Counter[str]) -> bytes:
    """Which events there were, and whether once, a few times or often."""
    rough = sorted((name, min(count.bit_length(), 4)) for name, count in events.items())
    return hashlib.blake2b(repr(rough).encode(), digest_size=8).digest()


def _batch(task: tuple[int, int, str, int]) -> Tally:
    first, next_offset, mutant, actions = task
    return play_seeds(range(first, next_offset), mutant, actions=actions)


def play_many(
    first: int,
    seeds: int,
    *,
    processes: int,
    mutant: str = "",
    actions: int = ACTIONS,
    until_failure: bool = False,
) -> Iterator[Tally]:
    """Play seeds on some processes; a tally for each batch, as they are done."""
    tasks = [
        (begin, min(begin + _BATCH, first + seeds), mutant, actions)
        for begin in range(first, first + seeds, _BATCH)
    ]
    if processes == 1:
        for task in tasks:
            tally = _batch(task)
            yield tally
            if until_failure and tally.failures:
                return
        return
    gc.freeze()
    # Ctrl-C goes to the whole group of processes; the one that began it all ends the others.
    # Nor may it be lost, or end one of them, while they begin: it waits until all are there.
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    made = get_context("fork").Pool(processes, _ignore_interrupts)
    with made as pool:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
        for tally in pool.imap_unordered(_batch, tasks):
            yield tally
            if until_failure and tally.failures:
                return


def _ignore_interrupts() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def caught(
    mutant: str, first: int, most: int, *, processes: int, known: int | None = None
) -> tuple[int, Failure | None]:
    """After how many seeds a mutant is caught, and how; None if it is not within `most`.

    Args:
        mutant: name.
        first: seed.
        most: seeds.
        processes: that play them.
        known: a seed that has caught it once; it is played first.
    """
    seeds = 0
    actions = MUTANTS[mutant].actions
    if known is not None and first <= known < first + most:
        tally = play_seeds(range(known, known + 1), mutant, actions=actions)
        if tally.failures:
            return known - first + 1, tally.failures[0]
    for tally in play_many(
        first, most, processes=processes, mutant=mutant, actions=actions, until_failure=True
    ):
        if tally.failures:
            failure = min(tally.failures, key=lambda each: each.seed)
            return failure.seed - first + 1, failure
        seeds += tally.seeds
    return seeds, None


def shrunk(seed: int, mutant: str = "", *, actions: int = ACTIONS) -> tuple[list[int], list[str]]:
    """The choices of a failing seed made small, and the trace of what is left."""
    with without(mutant) if mutant else contextlib.nullcontext():
        choices = Choices(seed)
        _, failure = play(choices, actions=actions)
        if failure is None:
            return [], []

        def fails(candidate: Sequence[int]) -> str | None:
            found = play(Choices(0, candidate), actions=actions)[1]
            return None if found is None else found.kind

        small = shrink(choices.taken, failure.kind, fails)
        lines: list[str] = []
        play(Choices(0, small), lines=lines, actions=actions)
    return small, lines


def main(arguments: Sequence[str] | None = None) -> int:
    """The command."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--seeds", type=int, help=f"how many histories; {_SEEDS} by default")
    options.add_argument("--first", type=int, default=0, help="the first seed")
    options.add_argument(
        "--actions", type=int, default=ACTIONS, help="of a history, before quiescence"
    )
    options.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    options.add_argument("--mutant", default="", choices=["", *MUTANTS], help="take a guard out")
    options.add_argument(
        "--mutants", action="store_true", help="after how many seeds each is caught"
    )
    options.add_argument(
        "--record", action="store_true", help=f"with --mutants: write the seeds to {CAUGHT.name}"
    )
    options.add_argument("--trace", type=int, help="play this seed alone and print what happens")
    options.add_argument("--no-shrink", action="store_true", help="only name failing seeds")
    options.add_argument("--json", action="store_true", help="the result as a JSON object")
    given = options.parse_args(arguments)
    _check(options, given)
    try:
        return _run(given)
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130


def _check(options: argparse.ArgumentParser, given: argparse.Namespace) -> None:
    """End with a usage error where options ask for nothing, or do not go together."""
    for name, least in (("seeds", 1), ("processes", 1), ("actions", 0), ("first", 0), ("trace", 0)):
        value = getattr(given, name)
        if value is not None and value < least:
            options.error(f"--{name} must be at least {least}, not {value}")
    given.seeds = _SEEDS if (asked := given.seeds) is None else asked
    if given.record and not given.mutants:
        options.error("--record goes with --mutants")
    alone = "trace" if given.trace is not None else "mutants" if given.mutants else ""
    others = {
        "--json": given.json,
        "--no-shrink": given.no_shrink,
        "--seeds": asked is not None,
        "--mutants": given.mutants and alone != "mutants",
        "--mutant": bool(given.mutant) and alone == "mutants",
    }
    for name, there in others.items():
        if alone and there:
            options.error(f"{name} does not go with --{alone}")


def _run(given: argparse.Namespace) -> int:
    if given.trace is not None:
        return _traced(given.trace, given.mutant, given.actions)
    if given.mutants:
        return _all_mutants(given.first, given.processes, record=given.record)
    total = Tally()
    began = told = time.perf_counter()
    for tally in play_many(
        given.first,
        given.seeds,
        processes=given.processes,
        mutant=given.mutant,
        actions=given.actions,
    ):
        total.add(tally)
        for each in tally.failures if not given.json else ():
            print(f"seed {each.seed}: {each.message}", flush=True)
        if time.perf_counter() - told > 10 and not given.json:
            told = time.perf_counter()
            print(
                f"{total.seeds} of {given.seeds} seeds, {len(total.failures)} violations",
                flush=True,
            )
    seconds = time.perf_counter() - began
    _report(total, seconds, given)
    whole = given.actions >= ACTIONS and not given.mutant
    return 1 if total.failures or (whole and missed(total.events, total.seeds)) else 0


def _traced(seed: int, mutant: str, actions: int) -> int:
    lines: list[str] = []
    with without(mutant) if mutant else contextlib.nullcontext():
        scene, failure = play(Choices(seed), lines=lines, actions=actions)
    digest = hashlib.sha256("\n".join(lines).encode()).hexdigest()
    lines.append(failure.message if failure is not None else "no violation")
    lines.append(f"seed {seed} steps {scene.scheduler.steps} trace {digest}")
    print("\n".join(lines))
    return 1 if failure is not None else 0


#: What a mutant raises that does not fit the product any more: nothing was caught then.
_MISFITS = frozenset({"TypeError", "AttributeError", "NameError"})


def _all_mutants(first: int, processes: int, *, record: bool) -> int:
    """A line for each mutant; those that nothing needs alone (`seeds` 0) must not be caught."""
    wrong = 0
    known: dict[str, int] = {} if record else json.loads(CAUGHT.read_text())
    found: dict[str, int] = {}
    for name, mutant in MUTANTS.items():
        if mutant.seeds is None:
            print(f"mutant {name:<18} left to known histories and regressions in tests")
            continue
        seeds, failure = caught(
            name, first, mutant.seeds or 1000, processes=processes, known=known.get(name)
        )
        if failure is not None:
            found[name] = failure.seed
        right = (failure is not None) == (mutant.seeds > 0)
        right = right and (failure is None or failure.kind not in _MISFITS)
        wrong += not right
        verdict = f"caught by seed {failure.seed}: {failure.kind}" if failure else "not caught"
        limit = f"<= {mutant.seeds}" if mutant.seeds else "never"
        limit += f", of {mutant.actions} actions" if mutant.actions != ACTIONS else ""
        word = "" if right else "WRONG "
        print(f"mutant {name:<18} {seeds:>6} seeds ({limit}) {word}{verdict}", flush=True)
    print(f"mutants {len(MUTANTS)} wrong {wrong}")
    if record:
        CAUGHT.write_text(json.dumps(found, indent=1, sort_keys=True) + "\n")
    return 1 if wrong else 0


def _report(total: Tally, seconds: float, given: argparse.Namespace) -> None:
    per_second = total.seeds / seconds
    per_core = total.seeds / total.seconds if total.seconds else 0.0
    if given.json:
        document = {
            "seeds": total.seeds,
            "first": given.first,
            "violations": [
                {"seed": each.seed, "kind": each.kind, "message": each.message}
                for each in total.failures
            ],
            "histories_per_second": round(per_second, 1),
            "histories_per_second_and_core": round(per_core, 1),
            "median_steps": statistics.median(total.steps),
            "shapes": len(total.shapes),
            "events": dict(total.events.most_common()),
            "coverage": covered(total.events),
            "missed": missed(total.events, total.seeds),
        }
        json.dump(document, sys.stdout, indent=2)
        print()
        return
    failures = sorted(total.failures, key=lambda each: each.seed)
    kinds = Counter(each.kind for each in failures)
    for kind, count in kinds.most_common():
        one = next(each for each in failures if each.kind == kind)
        print(f"{count} x {kind}, first seed {one.seed}: {one.message}")
    if not given.no_shrink:
        for kind in list(kinds)[:_SHRUNK]:
            seed = next(each.seed for each in failures if each.kind == kind)
            small, lines = shrunk(seed, given.mutant, actions=given.actions)
            print(f"--- seed {seed}, shrunk to {len(small)} choices: {small}")
            print("\n".join(lines))
    words = ", ".join(f"{name} {count}" for name, count in total.events.most_common())
    print(f"events: {words}")
    words = ", ".join(f"{name} {count}" for name, count in covered(total.events).items())
    print(f"coverage: {words}")
    for name in missed(total.events, total.seeds):
        print(f"NOT MET by {total.seeds} histories: {name}")
    print(
        f"{len(total.shapes)} different mixtures of events; a history has"
        f" {statistics.median(total.steps):.0f} steps (median), at most {max(total.steps)};"
        f" {per_core:.0f} histories/s and core"
    )
    print(f"seeds {total.seeds} violations {len(failures)} histories/s {per_second:.0f}")


if __name__ == "__main__":
    sys.exit(main())
