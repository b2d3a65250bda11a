"""Every history of a few tasks: all orders of their calls, by depth-first search.

What is searched is a graph. A state of the world is a bucket, a table, and for each task the point
that it has come to. An edge is a choice: which task's pending call is carried out next, and, while
answers may be lost, whether the answer of a commit comes back. A task cannot be copied in the
middle of a call. But tasks are deterministic and share nothing but the ports, so a point is its
answers so far, and what a task asks next is a function of them: it is found by executing the task
again from its beginning with these answers, once for each point.

Three things make that finite in practice. All are sound: every end, and every change of the item
(from which root to which), that any history has, is seen.

**The same state is continued once.** A state is told by a hash of the objects of the bucket with
their bytes, the item, how many answers were lost, and of each task a hash chain over its answers.
The chain says where a task is and what it will do with any further answer; hence two histories that
lead to equal states have equal continuations. Calls of different tasks that only read commute: both
orders lead to one state, and the same holds for any calls that commute. The changes of the item on
the way are equal too: a commit names the uid that it replaces, so each root names the one before
it, and who committed it has that in its chain.

**Quiet calls are no choices** (see `footprints`): a call that commutes with all that others ever do
is carried out at once.

**A point is executed once**, in however many states it occurs.

Nothing here is random and nothing reads a clock: the same scenario gives the same figures.

What is not seen: the clock stands still in a history; ids are each task's own numbers, so where the
smaller of two ids decides, one order of them is seen; and no call is refused.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from coldstream.errors import ColdstreamError
from coldstream.manifest.catalog import CatalogItem
from coldstream.ports import Unknown
from coldstream.remote.context import Context
from coldstream_devkit.simulation.footprints import Footprints, Heard, Learnt
from coldstream_devkit.simulation.points import Execution, Place, Point, digest, in_words, token

#: A choice: the number of a task, and whether its answer is lost.
Choice = tuple[int, bool]
#: What became of a task: what it returned, or the error that ended it.
Results = Mapping[str, object]


@dataclass(frozen=True, slots=True)
class Scenario:
    """What is explored.

    Attributes:
        stream: directory name.
        prefix: of all keys.
        begin: the bucket and the table at the beginning; a copy is used.
        tasks: what each does, by name; the world's store is also a `Deleter` and a `Composer`.
        changed: looks at the place after the item has changed or objects were deleted; is given the
            item as it was before; raises an AssertionError about what is wrong.
        ended: looks at the place when all tasks have ended, and may change it; gives the end in a
            word or two, for the figures; raises an AssertionError about what is wrong.
        lost_answers: how many commits may be carried out without an answer, in one history.
    """

    stream: str
    prefix: str
    begin: Place
    tasks: Mapping[str, Callable[[Context], object]]
    changed: Callable[[Place, CatalogItem | None], None]
    ended: Callable[[Place, Results], str]
    lost_answers: int = 0


@dataclass(slots=True)
class Explored:
    """Figures of an exploration.

    Attributes:
        histories: how many orders of the calls that are not quiet there are, from the beginning to
            an end.
        states: distinct ones in which there was a choice, or the end.
        edges: choices that were carried out.
        executions: how often a task was begun anew, to find out what it asks next.
        ends: distinct states in which all tasks have ended.
        outcomes: how many ends there are of each kind.
        changes: distinct changes of the item, by the keys of the roots.
        longest: calls of the longest history.
        learnt: how often the search began anew because a call was not quiet.
    """

    histories: int = 0
    states: int = 0
    edges: int = 0
    executions: int = 0
    ends: set[bytes] = field(default_factory=set)
    outcomes: Counter[str] = field(default_factory=Counter)
    changes: set[tuple[str, str]] = field(default_factory=set)
    longest: int = 0
    learnt: int = 0

    def __str__(self) -> str:
        """The figures in a line."""
        kinds = ", ".join(f"{count} x {kind}" for kind, count in sorted(self.outcomes.items()))
        return (
            f"{self.histories:.3g} histories of up to {self.longest} calls: {self.states} states,"
            f" {self.edges} edges, {self.executions} executions, {len(self.changes)} changes of the"
            f" item, {len(self.ends)} ends ({kinds})"
        )


class FoundError(AssertionError):
    """A history in which something does not hold.

    Args:
        problem: what.
        choices: lead there, one a call; see `replay`.
        trace: what was done, a line a call.
    """

    def __init__(self, problem: str, choices: Sequence[Choice], trace: Sequence[str]) -> None:
        self.choices = tuple(choices)
        super().__init__("\n".join([problem, f"choices: {list(choices)}", *trace]))


class TooManyError(AssertionError):
    """The scenario has more states than somebody wanted to wait for."""


def explore(
    scenario: Scenario,
    *,
    most_states: int = 1_000_000,
    everything_is_loud: bool = False,
    prune: bool = True,
) -> Explored:
    """Look at every history of a scenario.

    Args:
        scenario: what.
        most_states: give up after so many.
        everything_is_loud: make a choice of every call, also of the quiet ones.
        prune: continue a state only once; without, every order goes on to its end.

    Raises:
        FoundError: something does not hold; its text is the history.
        TooManyError: there are more states.
    """
    footprints = Footprints(len(scenario.tasks), everything_is_loud=everything_is_loud)
    while True:
        search = _Search(scenario, footprints)
        try:
            search.run(most_states, prune)
        except Learnt:
            footprints.forget_what_was_quiet()
        else:
            search.explored.learnt = footprints.times_learnt
            return search.explored
        finally:
            search.close()


def replay(scenario: Scenario, choices: Sequence[Choice]) -> list[str]:
    """One history of a scenario, call by call, and what is done in it.

    Args:
        scenario: what.
        choices: as a `FoundError` has them; after them come first ones.

    Raises:
        FoundError: something does not hold.
    """
    search = _Search(scenario, Footprints(len(scenario.tasks), everything_is_loud=True))
    try:
        state = search.begin()
        for choice in choices:
            state = search.take(state, choice)
        while options := search.options(state):
            state = search.take(state, options[0])
        search.end(state)
        return state.trace()
    finally:
        search.close()


@dataclass(frozen=True, slots=True)
class _State:
    """A state of the world, and one way that led to it."""

    place: Place
    points: tuple[Point, ...]
    heard: Heard
    lost: int = 0
    depth: int = 0  # choices
    calls: int = 0
    before: _State | None = None
    made: tuple[Choice, str] | None = None

    def choices(self) -> list[Choice]:
        """The way here, call by call."""
        return [choice for choice, _ in self._way()]

    def trace(self) -> list[str]:
        """The way here in words."""
        return [words for _, words in self._way()]

    def _way(self) -> list[tuple[Choice, str]]:
        found: list[tuple[Choice, str]] = []
        state: _State | None = self
        while state is not None:
            if state.made is not None:
                found.append(state.made)
            state = state.before
        return found[::-1]


class _Search:
    def __init__(self, scenario: Scenario, footprints: Footprints) -> None:
        self.scenario = scenario
        self.explored = Explored()
        self._names = list(scenario.tasks)
        self._acts = list(scenario.tasks.values())
        self._footprints = footprints
        # The execution that was used last of each task, and the point where it waits.
        self._running: dict[int, tuple[Point, Execution]] = {}
        self._digests: dict[bytes, bytes] = {}

    def run(self, most_states: int, prune: bool) -> None:
        """Look at everything."""
        explored = self.explored
        edges: list[tuple[int, int, int]] = []  # depth, and the numbers of two states
        numbers: dict[bytes, int] = {}
        ends: set[int] = set()
        first = self._hush(self.begin())
        waiting: list[tuple[_State, int, Choice]] = []

        def arrive(state: _State) -> int:
            digest = self._digest_of(state)
            if not prune:
                digest += len(numbers).to_bytes(8, "big")
            number = numbers.setdefault(digest, len(numbers))
            if number < explored.states:
                return number
            explored.states += 1
            explored.longest = max(explored.longest, state.calls)
            options = self.options(state)
            if not options:
                ends.add(number)
                explored.ends.add(digest[:16])
                explored.outcomes[self.end(state)] += 1
            waiting.extend((state, number, each) for each in reversed(options))
            return number

        arrive(first)
        while waiting:
            state, number, choice = waiting.pop()
            explored.edges += 1
            following = self._hush(self.take(state, choice))
            edges.append((state.depth, number, arrive(following)))
            if explored.states > most_states:
                raise TooManyError(f"{explored}; and {len(waiting)} choices are waiting")
        ways = Counter({0: 1})
        for _, one, other in sorted(edges):
            ways[other] += ways[one]
        explored.histories = sum(ways[number] for number in ends)

    def begin(self) -> _State:
        """All tasks at their first call."""
        points = []
        for number in range(len(self._names)):
            point = Point(number, b"", None, None)
            self._execute(point)
            points.append(point)
        heard = Heard((frozenset(),) * len(points))
        return _State(self.scenario.begin.copy(), tuple(points), heard)

    def options(self, state: _State) -> list[Choice]:
        """What may happen next."""
        found: list[Choice] = []
        for number, point in enumerate(state.points):
            if point.call is not None:
                found.append((number, False))
                if point.call.commits and state.lost < self.scenario.lost_answers:
                    found.append((number, True))
        return found

    def take(self, state: _State, choice: Choice) -> _State:
        """Make a task's call."""
        return self._make(state, choice, depth=state.depth + 1)

    def end(self, state: _State) -> str:
        """Look at the end; what kind it is."""
        results = {
            name: point.result for name, point in zip(self._names, state.points, strict=True)
        }
        try:
            return self.scenario.ended(state.place.copy(), results)
        except (AssertionError, ColdstreamError) as exc:
            raise _found(exc, state) from exc

    def close(self) -> None:
        """Leave all tasks where they are."""
        for _, execution in self._running.values():
            execution.close()
        self._running.clear()

    def _hush(self, state: _State) -> _State:
        """Make all calls that nobody can notice."""
        for number in range(len(state.points)):
            while (call := state.points[number].call) is not None:
                there = call.service == "store" and (
                    (call.gets or call.puts) and call.key in state.place.store.objects
                )
                if not self._footprints.quiet(call, is_there=there):
                    break
                state = self._make(state, (number, False), depth=state.depth)
        return state

    def _make(self, state: _State, choice: Choice, *, depth: int) -> _State:
        number, lost = choice
        point = state.points[number]
        call = point.call
        assert call is not None
        place = state.place.copy() if call.writes else state.place
        before = place.catalog.items.get(self.scenario.stream)
        answer: object
        try:
            service = place.store if call.service == "store" else place.catalog
            answer = getattr(service, call.method)(*call.args, **call.kwargs)
        except ColdstreamError as exc:
            answer = exc
        after = place.catalog.items.get(self.scenario.stream)
        self._footprints.made(call)
        heard = state.heard.after(call, answer, changed_item=after is not before)
        told = Unknown(None) if lost else answer
        words = f"{self._names[number]}: {call}{in_words(answer, before, after, lost)}"
        following = self._after(point, told)
        new = _State(
            place,
            (*state.points[:number], following, *state.points[number + 1 :]),
            heard,
            state.lost + lost,
            depth,
            state.calls + 1,
            state,
            (choice, words),
        )
        if after is not before and after is not None:
            self.explored.changes.add(("" if before is None else before.root_key, after.root_key))
        if after is not before or call.deletes:
            try:
                self.scenario.changed(place, before)
            except (AssertionError, ColdstreamError) as exc:
                raise _found(exc, new) from exc
        return new

    def _after(self, point: Point, answer: object) -> Point:
        """The point that an answer leads to."""
        history = digest(point.history + token(answer))
        known = point.following.get(history)
        if known is None:
            known = point.following[history] = Point(point.task, history, point, answer)
            self._execute(known)
        return known

    def _execute(self, point: Point) -> None:
        """Find out what the task asks at a point."""
        running, execution = self._running.get(point.task, (None, None))
        if execution is not None and running is point.before:
            point.call = execution.go_on(point.answer)
        else:
            if execution is not None:
                execution.close()
            self.explored.executions += 1
            execution = Execution(point.task, self._acts[point.task], self.scenario.prefix)
            point.call = execution.go_on()
            for answer in point.answers():
                point.call = execution.go_on(answer)
        point.result = execution.result
        self._running[point.task] = (point, execution)

    def _digest_of(self, state: _State) -> bytes:
        objects = state.place.store.objects
        parts = [
            key.encode() + b"\0" + self._digest_of_object(objects[key]) for key in sorted(objects)
        ]
        parts.append(repr((state.place.catalog.items, state.lost)).encode())
        parts += [each.history or b"\0" for each in state.points]
        return digest(b"\0".join(parts))

    def _digest_of_object(self, data: bytes) -> bytes:
        known = self._digests.get(data)
        if known is None:
            known = self._digests[data] = digest(data)
        return known


def _found(exc: Exception, state: _State) -> FoundError:
    return FoundError(f"{type(exc).__name__}: {exc}", state.choices(), state.trace())
