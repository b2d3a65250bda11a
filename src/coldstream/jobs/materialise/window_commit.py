"""Commit a window: its dead letters into one table, its rows with the offsets into another.

No commit spans two tables. Dead letters go first: a message that is in neither table would be lost.
A run that dies in between leaves dead letters, which the next run replaces. A run that is only slow
must not replace them so: it may have read the same messages by another rule. So a window with dead
letters takes three commits:

    rows          draw a ticket for each stream of the window: its highest number yet
    dead letters  replace those of the window, if the table has seen no higher number
    rows          put in rows and offsets, if the tickets are still the last

With its ticket a window that makes rows anew says which: the next run does so if this one dies or
is overtaken (`TableState.owed`). A table of the latest forgets them then, for it reads in order.

Of several runs the last to draw wins, and none waits for a dead one. A window without dead letters
is one commit, on condition that the tickets are as they were before the run looked for dead letters
of others. (Kleppmann, "How to do distributed locking", 2016: where a lock may be
lost, the store has to compare a number.)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import pyarrow as pa

from coldstream.errors import ConflictError, CorruptDataError
from coldstream.jobs.materialise.commit import Decide, commit, untaken
from coldstream.jobs.materialise.ranges import Ranges
from coldstream.jobs.materialise.schema import dead_schema
from coldstream.jobs.materialise.state import MAX_TICKET, NO_TICKET, TableState, Ticket
from coldstream.jobs.materialise.table import Append, Loaded, Table, WrittenFile

Tickets = Mapping[str, Ticket]


@dataclass(frozen=True, slots=True)
class Tables:
    """The two tables of a rule."""

    rows: Table
    dead: Table


@dataclass(frozen=True, slots=True)
class WindowCommit:
    """Commits windows.

    Args:
        tables: of the rule.
        first_schema: of the rows' table: see `Table.load`.
        new_id: gives an id that is used once.
        pause: waits after attempt n of a commit.
    """

    tables: Tables
    first_schema: pa.Schema
    new_id: Callable[[], str]
    pause: Callable[[int], None]

    def put(
        self, change: Append, dead_files: Sequence[WrittenFile], complete: Decide | None = None
    ) -> Loaded:
        """Make a window part of both tables.

        Args:
            change: of the rows' table.
            dead_files: with the window's dead letters.
            complete: gives the change its files, each time the rows' table was loaded, where they
                depend on those that it has.

        Returns:
            The rows' table after it.

        Raises:
            ConflictError: another run was quicker; names the stream. At least one of several runs
                at once gets none.
            CorruptDataError: the state's tickets are used up.
            UnknownOutcomeError, UnavailableError: as `commit`.
        """
        known = self.tables.rows.load(self.first_schema).state.tickets
        tickets: Tickets = {stream: known.get(stream, NO_TICKET) for stream in change.covered}
        # Loaded after the tickets: who has drawn none yet can put nothing in unseen.
        dead = self.tables.dead.load(dead_schema()).state
        theirs = any(dead.of(stream) & ranges for stream, ranges in change.covered.items())
        if dead_files or theirs or any(each.open for each in tickets.values()):
            check = partial(untaken, self.tables.rows.name, append=change)
            tickets, state = self._drawn(change.covered, self._begun(change), check)
            change = replace(change, tickets=_closed(tickets))
            self._put_dead(change, dead_files, state)
        return self._put_rows(change, tickets, complete)

    def lose(self, change: Append, loaded: Loaded) -> Loaded:
        """Make part of both tables which offsets exist nowhere any more, and where streams begin.

        Args:
            change: of the rows' table, with `lost`, and of `replaces` what is among them.
            loaded: the rows' table, as the change was planned for.

        Returns:
            The rows' table after it.

        Raises:
            ConflictError, CorruptDataError, UnknownOutcomeError, UnavailableError: as `put`.
        """
        # What the table has, and owed, is not taken in once more.
        covered = {
            stream: ranges - (loaded.state.of(stream) - change.replaces.get(stream, Ranges()))
            for stream, ranges in change.lost.items()
        }
        change = replace(change, covered=covered)
        if not any(change.replaces.values()):
            return commit(
                self.tables.rows, change, first_schema=self.first_schema, pause=self.pause
            )
        # Another run may have made anew what was cut off, and retention may have come after it.
        gone = {stream: ranges for stream, ranges in change.replaces.items() if ranges}
        check = partial(_unchanged, self.tables.rows.name, gone, loaded.state)
        tickets, state = self._drawn(covered, Append(self.new_id()), check)
        change = replace(change, tickets=_closed(tickets))
        self._put_dead(replace(change, covered=gone), (), state)
        return self._put_rows(change, tickets)

    def _begun(self, change: Append) -> Append:
        """What the table knows of a window from its ticket on, but for the ticket."""
        if not change.in_order:
            return Append(self.new_id(), owes=change.replaces)
        # Where reading begins is said at once: `next` would be another offset later.
        begins = {stream: change.covered[stream].spans[0][0] for stream in change.forgets}
        return Append(self.new_id(), forgets=change.forgets, begins=begins, epochs=change.epochs)

    def _drawn(
        self, streams: Iterable[str], begun: Append, check: Callable[[Loaded], object]
    ) -> tuple[Tickets, TableState]:
        """The next tickets of streams, and the table's state, which knows them from now on."""
        drawn: dict[str, Ticket] = {}

        def draw(loaded: Loaded, append: Append) -> Append:
            check(loaded)
            # A table that was set back to an earlier moment has forgotten the last numbers.
            taken = self.tables.dead.load(dead_schema()).state.tickets
            for stream in streams:
                both = (known.get(stream, NO_TICKET) for known in (loaded.state.tickets, taken))
                number = 1 + max(each.number for each in both)
                if number > MAX_TICKET:  # one more, and nobody could read the state again
                    raise CorruptDataError("no ticket is left of a table's state", stream=stream)
                drawn[stream] = Ticket(number, open=True)
            return replace(append, tickets=drawn)

        after = commit(
            self.tables.rows, begun, first_schema=self.first_schema, pause=self.pause, decide=draw
        )
        return drawn, after.state

    def _put_dead(self, change: Append, files: Sequence[WrittenFile], known: TableState) -> None:
        """Also without files: from then on the table takes none of those who drew before.

        It covers what the rows' table has, too: ranges with windows between them, which had no dead
        letters, would become more and more.
        """
        covered = {stream: known.of(stream) | each for stream, each in change.covered.items()}
        append = Append(self.new_id(), files, covered, tickets=change.tickets)
        decide = partial(_newest, self.tables.dead.name, change.covered)
        commit(
            self.tables.dead, append, first_schema=dead_schema(), pause=self.pause, decide=decide
        )

    def _put_rows(self, change: Append, tickets: Tickets, complete: Decide | None = None) -> Loaded:
        decide = partial(_held, self.tables.rows.name, tickets, complete)
        return commit(
            self.tables.rows, change, first_schema=self.first_schema, pause=self.pause,
            decide=decide,
        )  # fmt: skip


def _closed(tickets: Tickets) -> Tickets:
    return {stream: replace(each, open=False) for stream, each in tickets.items()}


def _newest(name: str, window: Mapping[str, Ranges], loaded: Loaded, append: Append) -> Append:
    """The change, if the table has taken no higher ticket; it replaces what others have left."""
    for stream, mine in append.tickets.items():
        if loaded.state.tickets.get(stream, NO_TICKET).number > mine.number:
            raise _overtaken(name, stream)
    before = {stream: loaded.state.of(stream) & each for stream, each in window.items()}
    return replace(append, replaces={stream: each for stream, each in before.items() if each})


def _held(
    name: str, tickets: Tickets, complete: Decide | None, loaded: Loaded, append: Append
) -> Append:
    """The change, if the table has its offsets not yet, and the same tickets."""
    untaken(name, loaded, append)
    for stream, mine in tickets.items():
        if loaded.state.tickets.get(stream, NO_TICKET) != mine:
            raise _overtaken(name, stream)
    return append if complete is None else complete(loaded, append)


def _unchanged(name: str, gone: Mapping[str, Ranges], planned: TableState, loaded: Loaded) -> None:
    """What the table has of streams is what it had when it was decided what of it goes."""
    for stream in gone:
        before, now = ((s.of(stream), s.under.get(stream)) for s in (planned, loaded.state))
        if before != now:
            raise _overtaken(name, stream)


def _overtaken(name: str, stream: str) -> ConflictError:
    return ConflictError(
        f"another run is putting messages of this stream into {name} and has begun with it later;"
        " ours are dropped: run again",
        stream=stream,
    )
