"""Tasks that stop at every call to the world, and one clock. Who goes on is a choice.

Tasks are greenlets, so the real code runs as it is: a call to a port switches to the scheduler in
the middle of whatever function made it.
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heapify, heappop, heappush

from greenlet import getcurrent, greenlet

from coldstream_devkit.simulation.choices import Choices

#: A history of more steps than this never rests.
MAX_STEPS = 30_000


class RestlessError(Exception):
    """Tasks that ask again and again without end."""


class Crash(BaseException):
    """The process is gone. No error of ours: nothing may catch it and go on."""


class Task:
    """Something that runs: a process of an agent, a Lambda, a step of a workflow.

    Args:
        name: for traces.
        run: what it does.
        owner: who dies with whom: `Scheduler.kill` takes all tasks of an owner.
    """

    __slots__ = ("began", "dead", "fiber", "name", "owner", "seen", "steps")

    def __init__(self, name: str, run: Callable[[], object], owner: object, began: int = 0) -> None:
        self.began = began
        self.name = name
        self.owner = owner
        self.fiber = greenlet(run)
        self.dead = False
        self.steps = 0
        self.seen: set[str] = set()  # keys that it has listed


class Scheduler:
    """Runs tasks one step at a time.

    Args:
        choices: decide who goes on.
        trace: told of what happens, or None.

    Attributes:
        now: ms since the Unix epoch, S3's and everybody's clock but the brokers'.
        task: the one that runs now.
    """

    def __init__(self, choices: Choices, trace: Callable[[str], None] | None = None) -> None:
        self.choices = choices
        self.trace = trace
        self.now = 1_800_000_000_000
        self.task: Task | None = None
        self.ready: list[Task] = []
        self.steps = 0
        self._first: object = None  # tasks of this owner go before all others
        self._sleeping: list[tuple[int, int, Task]] = []
        self._count = 0
        self._failed: BaseException | None = None

    def say(self, words: str) -> None:
        """Add a line to the trace."""
        if self.trace is not None:
            who = self.task.name if self.task is not None else "world"
            self.trace(f"{self.now % 10**9:>9} {who:<22} {words}")

    # --- called by tasks ---

    def pause(self) -> None:
        """Let others run; comes back, perhaps, or raises Crash."""
        task = self.task
        if task is None:
            return
        if task.dead:
            raise Crash
        self.ready.append(task)
        self._leave(task)

    def sleep(self, ms: int) -> None:
        """Let others run until `ms` later."""
        task = self.task
        if task is None:
            self.now += ms
            return
        if task.dead:
            raise Crash
        self._count += 1
        heappush(self._sleeping, (self.now + ms, self._count, task))
        self._leave(task)

    def give_way(self, owner: object, *, most: int = 300) -> None:
        """Let the tasks of another owner run until they end or sleep; what a conflict needs.

        Args:
            owner: of the tasks that go first.
            most: steps of theirs at most.
        """
        before, self._first = self._first, owner
        try:
            for _ in range(most):
                if not any(each.owner == owner for each in self.ready):
                    return
                self.pause()
        finally:
            self._first = before

    def _leave(self, task: Task) -> None:
        parent = getcurrent().parent
        assert parent is not None
        parent.switch()
        if task.dead:
            raise Crash

    # --- called by the world ---

    def spawn(self, name: str, run: Callable[[], object], owner: object = None) -> Task:
        """Start a task; it runs when it is chosen."""

        def guarded() -> None:
            try:
                run()
            except Crash:
                return
            except BaseException as exc:  # noqa: BLE001 - it is raised where it is looked at
                self._failed = exc

        task = Task(name, guarded, owner, self.steps)
        self.ready.append(task)
        return task

    def step(self) -> bool:
        """Run a ready task up to its next call; False if none is ready."""
        if not self.ready:
            return False
        ready = self.ready
        number = self._chosen()
        task = ready[number]
        ready[number] = ready[-1]
        ready.pop()
        self._run(task)
        return True

    def _chosen(self) -> int:
        if self._first is not None:
            for number, task in enumerate(self.ready):
                if task.owner == self._first:
                    return number
        return self.choices.below(len(self.ready))

    def wake(self, task: Task) -> None:
        """Let a task that sleeps go on now."""
        for at, (_, _, each) in enumerate(self._sleeping):
            if each is task:
                del self._sleeping[at]
                heapify(self._sleeping)
                self.ready.append(task)
                return

    def rouse(self, owner: object) -> None:
        """Let all tasks of an owner that sleep go on now."""
        for task in [each for _, _, each in self._sleeping if each.owner == owner]:
            self.wake(task)

    def _run(self, task: Task) -> None:
        self.steps += 1
        if self.steps > MAX_STEPS:
            raise RestlessError(f"{MAX_STEPS} steps, and no rest: {task.name} asks on")
        task.steps += 1
        before, self.task = self.task, task
        # Whoever runs a task is its parent: a task started from within another comes back here.
        task.fiber.parent = getcurrent()
        task.fiber.switch()
        self.task = before
        if self._failed is not None:
            failed, self._failed = self._failed, None
            raise failed

    def advance(self, ms: int) -> None:
        """Let time pass; wake whoever has slept long enough."""
        self.now += ms
        sleeping = self._sleeping
        while sleeping and sleeping[0][0] <= self.now:
            self.ready.append(heappop(sleeping)[2])

    def freeze(self, owner: object, ms: int) -> None:
        """Stop all tasks of an owner where they are, and let them go on `ms` later."""
        frozen = [each for each in self.ready if each.owner == owner]
        frozen += [each for _, _, each in self._sleeping if each.owner == owner]
        self.ready = [each for each in self.ready if each.owner != owner]
        self._sleeping = [each for each in self._sleeping if each[2].owner != owner]
        for each in frozen:
            self._count += 1
            self._sleeping.append((self.now + ms, self._count, each))
        heapify(self._sleeping)

    def kill(self, owner: object) -> int:
        """End all tasks of an owner where they are; how many there were."""
        doomed = [each for each in self.ready if each.owner == owner]
        doomed += [each for _, _, each in self._sleeping if each.owner == owner]
        self.ready = [each for each in self.ready if each.owner != owner]
        self._sleeping = [each for each in self._sleeping if each[2].owner != owner]
        heapify(self._sleeping)
        for each in doomed:
            self._end(each)
        return len(doomed)

    def _end(self, task: Task) -> None:
        task.dead = True
        before, self.task = self.task, task
        task.fiber.parent = getcurrent()
        if task.fiber:
            task.fiber.throw(Crash)
        self.task = before

    def close(self) -> None:
        """End everything."""
        for task in [*self.ready, *(each for _, _, each in self._sleeping)]:
            self._end(task)
        self.ready, self._sleeping = [], []
