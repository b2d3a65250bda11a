"""Which calls of a task nobody else can notice, nor be noticed by: they need no choice.

A call is *quiet* if it commutes with every call that any other task ever makes from here on. If
there is a quiet call, it is enough to go on with it and with nothing else: every history from here
has an equivalent one in which it comes first (a persistent set of one; Godefroid). That keeps all
ends, and all changes of the item with what they changed it from and to.

What others will do is not known before it is explored, so it is learnt: who lists which prefix, who
writes and who deletes which keys. A call is taken for quiet by what is known so far. When a task
then makes a call that does not commute with one that was taken for quiet, `Learnt` is raised and
the exploration begins anew, knowing more. One that ends without has looked at every call there is:
were there a history with a call that does not commute with a quiet one, then, up to the first such
call, it would commute into one that was explored, and there the call would have been seen.

Only one pair of calls is seen in one order only: the PUT of an object and a GET of it. Keys have
ids that nobody can guess, so who GETs has been told of the key by something that came after the
PUT. `Heard` follows who can have been told of what, and a GET of a key that was not told of is an
error of the exploration.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from coldstream.errors import InternalError

#: Methods of the ports by what they touch.
_GETS = frozenset({"get", "get_all", "get_suffix"})
_PUTS = frozenset({"put", "compose"})
_READS = _GETS | {"list", "table_id", "page", "streams"}


class Learnt(Exception):  # noqa: N818 - no error: explore again
    """Something is not quiet that was taken for quiet."""


@dataclass(frozen=True, slots=True)
class Call:
    """A call of a port that a task is about to make.

    Attributes:
        task: its number.
        service: "store" or "catalog".
        method: of the port.
        args: positional ones.
        kwargs: the others.
    """

    task: int
    service: str
    method: str
    args: tuple[Any, ...]
    kwargs: dict[str, Any]

    @property
    def gets(self) -> bool:
        """Whether it reads an object."""
        return self.service == "store" and self.method in _GETS

    @property
    def puts(self) -> bool:
        """Whether it makes an object."""
        return self.service == "store" and self.method in _PUTS

    @property
    def lists(self) -> bool:
        """Whether it lists objects."""
        return self.service == "store" and self.method == "list"

    @property
    def deletes(self) -> bool:
        """Whether it deletes objects."""
        return self.service == "store" and self.method == "delete"

    @property
    def commits(self) -> bool:
        """Whether it is a conditional write of a new root."""
        return self.service == "catalog" and self.method == "commit"

    @property
    def writes(self) -> bool:
        """Whether it may change anything."""
        return self.method not in _READS

    @property
    def key(self) -> str:
        """Of the object, or the prefix that is listed."""
        return str(self.args[0])

    def __str__(self) -> str:
        """The call in a trace."""
        if self.deletes:
            return "delete " + " ".join(_short(key) for key in self.args[0])
        if self.service == "store":
            return f"{self.method} {_short(self.key)}"
        if self.commits:
            commit = self.args[0]
            what = "claim" if commit.claim else "commit"
            return f"{what} of version {commit.root.version} on {commit.read_version}"
        return self.method


def _short(key: str) -> str:
    return key.rstrip("/").rpartition("/")[2]


@dataclass(slots=True)
class _Of:
    """What one task has been seen to do, in any history; and what of it was taken for quiet."""

    lists: set[str] = field(default_factory=set)
    writes: set[str] = field(default_factory=set)
    deletes: set[str] = field(default_factory=set)
    quiet_gets: set[str] = field(default_factory=set)
    quiet_puts: set[str] = field(default_factory=set)
    quiet_lists: set[str] = field(default_factory=set)


class Footprints:
    """What every task does, as far as is known.

    Args:
        tasks: how many there are.
        everything_is_loud: take no call for quiet, so that every order of calls is explored.
    """

    def __init__(self, tasks: int, *, everything_is_loud: bool = False) -> None:
        self._of = [_Of() for _ in range(tasks)]
        self._loud = everything_is_loud
        self.times_learnt = 0

    def forget_what_was_quiet(self) -> None:
        """Before an exploration begins anew."""
        self.times_learnt += 1
        for each in self._of:
            each.quiet_gets.clear()
            each.quiet_puts.clear()
            each.quiet_lists.clear()

    def _others(self, task: int) -> list[_Of]:
        return [each for number, each in enumerate(self._of) if number != task]

    def quiet(self, call: Call, *, is_there: bool) -> bool:
        """Whether the call commutes with all that others are known to do.

        Args:
            call: about to be made.
            is_there: whether the object that it reads is there.
        """
        if self._loud:
            return False
        if call.service == "catalog":
            return call.method == "table_id"  # which no task of ours changes
        mine, others = self._of[call.task], self._others(call.task)
        if call.gets and is_there:
            if any(call.key in each.deletes for each in others):
                return False
            mine.quiet_gets.add(call.key)
            return True
        if call.puts and not is_there:
            listed = any(call.key.startswith(prefix) for each in others for prefix in each.lists)
            if listed or any(call.key in each.deletes for each in others):
                return False
            mine.quiet_puts.add(call.key)
            return True
        if call.lists:
            changes = (key for each in others for key in each.writes | each.deletes)
            if any(key.startswith(call.key) for key in changes):
                return False
            mine.quiet_lists.add(call.key)
            return True
        return False

    def made(self, call: Call) -> None:
        """Learn from a call that was made.

        Raises:
            Learnt: another task's call was taken for quiet, and it is not.
        """
        if call.service == "catalog":
            return
        mine, others = self._of[call.task], self._others(call.task)
        if call.lists and call.key not in mine.lists:
            mine.lists.add(call.key)
            _deny(key.startswith(call.key) for each in others for key in each.quiet_puts)
        elif call.puts and call.key not in mine.writes:
            mine.writes.add(call.key)
            _deny(call.key.startswith(under) for each in others for under in each.quiet_lists)
        elif call.deletes:
            keys = set(call.args[0]) - mine.deletes
            mine.deletes |= keys
            _deny(key in each.quiet_gets | each.quiet_puts for each in others for key in keys)
            _deny(
                key.startswith(under)
                for each in others
                for under in each.quiet_lists
                for key in keys
            )


def _deny(conflicts: Any) -> None:
    if any(conflicts):
        raise Learnt


@dataclass(frozen=True, slots=True)
class Heard:
    """Who can know of which new objects: a value, one for each state of the world.

    Attributes:
        tasks: of each task, the keys that it can know.
        item: the keys that whoever reads the item can know.
        puts: of each new key, those that whoever reads or lists the object can know.
    """

    tasks: tuple[frozenset[str], ...]
    item: frozenset[str] = frozenset()
    puts: Mapping[str, frozenset[str]] = field(default_factory=dict)

    def after(self, call: Call, answer: object, *, changed_item: bool) -> Heard:
        """The same after a call with this answer (an error if there was one).

        Raises:
            InternalError: an object was read that its reader cannot have known of.
        """
        knows = mine = self.tasks[call.task]
        item, puts = self.item, self.puts
        if call.service == "catalog":
            if call.method != "table_id":
                knows |= item
            if changed_item:
                item = knows
        elif call.puts:
            if call.key in puts and call.key not in mine:
                raise InternalError("two tasks write one key", key=call.key)
            knows |= {call.key}
            puts = {**puts, call.key: knows}
        elif call.lists and isinstance(answer, list):
            for row in answer:
                knows |= puts.get(row.key, frozenset())
        elif call.gets and call.key in puts:
            if call.key not in knows:
                raise InternalError("a task reads what nobody told it of", key=call.key)
            knows |= puts[call.key]
        if knows is mine and item is self.item:
            return self
        tasks = (*self.tasks[: call.task], knows, *self.tasks[call.task + 1 :])
        return Heard(tasks, item, puts)
