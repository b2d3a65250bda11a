"""What keeps a table quick to read and as long as it should be: compaction and retention.

Retention is one `Append` that takes files away, and holds only if the table is as it was when it
was planned; a materialise that lands meanwhile wins, and it is planned again next time. Merged
files cost more, so they stay good as long as the files that they were made of are in the table.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from coldstream.errors import ColdstreamError, UnknownOutcomeError
from coldstream.jobs.materialise.compact import CompactPiece, CompactResult, plan_compaction
from coldstream.jobs.materialise.plan import task_windows
from coldstream.jobs.materialise.table import (
    Append,
    AppendOutcome,
    Loaded,
    StoredFile,
    Table,
    WrittenFile,
)
from coldstream.jobs.materialise.write import FileLayout

#: How often merged files are merged again, while they are still small.
_ROUNDS = 4
_ATTEMPTS = 10

#: Does tasks, all at once; results in the order of the pieces.
Compactor = Callable[[Sequence[CompactPiece], FileLayout], list[CompactResult]]


def plan_retention(
    files: Sequence[StoredFile], keep_seconds: int, now_ms: int
) -> tuple[StoredFile, ...]:
    """Files all of whose rows are older than `keep_seconds`; only whole files go.

    Args:
        files: of the table.
        keep_seconds: as in a rule.
        now_ms: ms since the Unix epoch.
    """
    oldest = now_ms - keep_seconds * 1000
    return tuple(file for file in files if file.last_ms is not None and file.last_ms < oldest)


@dataclass(frozen=True, slots=True)
class Kept:
    """What maintenance did to a table.

    Attributes:
        merged: files that became fewer, and `into` how many.
        into: new files.
        expired: files whose rows were older than the rule keeps.
        expired_rows: rows in them.
        overtaken: files that others took away, or deleted rows of, while they were merged: they
            are as these left them.
    """

    merged: int = 0
    into: int = 0
    expired: int = 0
    expired_rows: int = 0
    overtaken: int = 0


@dataclass(frozen=True, slots=True)
class Maintainer:
    """Maintains a table.

    Attributes:
        table: to maintain.
        first_schema: see `Table.load`.
        layout: how its files are written, as it was loaded.
        compactor: does the tasks.
        new_id: gives an id that is used once.
        pause: waits after attempt n of a commit.
        window_bytes: of files, that are merged before what was done is committed.
    """

    table: Table
    first_schema: pa.Schema
    layout: Callable[[Loaded], FileLayout]
    compactor: Compactor
    new_id: Callable[[], str]
    pause: Callable[[int], None] = lambda _: None
    window_bytes: int = 64 * 2**30

    def maintain(
        self,
        *,
        keep_seconds: int | None,
        now_ms: int,
        target_bytes: int,
        compact: bool = True,
        dry_run: bool = False,
    ) -> Kept:
        """Remove what is too old, then merge small files.

        Args:
            keep_seconds: as in a rule.
            now_ms: ms since the Unix epoch.
            target_bytes: what a file should have.
            compact: merge small files, too.
            dry_run: only say what would be done; the table is not even made.

        Raises:
            ColdstreamError: a group of files could not be merged; says which. They are as they
                were, and what else was merged is done.
            UnknownOutcomeError: nobody knows whether a change landed; the next run plans anew
                from what is there.
        """
        loaded = self.table.peek() if dry_run else self.table.load(self.first_schema)
        if loaded is None:
            return Kept()
        files = self.table.files(loaded)
        old = () if keep_seconds is None else plan_retention(files, keep_seconds, now_ms)
        kept = Kept(expired=len(old), expired_rows=sum(file.rows for file in old))
        if dry_run:
            gone = {file.path for file in old}
            left = [file for file in files if file.path not in gone]
            pieces = self._planned(loaded, left, target_bytes) if compact else []
            return replace(kept, merged=sum(len(p.files) for p in pieces), into=len(pieces))
        if old and not swap(self.table, loaded, old, (), self.new_id()):
            return Kept()
        for _ in range(_ROUNDS if compact else 0):
            before = kept.merged - kept.into
            kept = self._merged(kept, target_bytes)
            if kept.merged - kept.into == before:
                break
        return kept

    def _planned(
        self, loaded: Loaded, files: Sequence[StoredFile], target_bytes: int
    ) -> list[CompactPiece]:
        return plan_compaction(files, target_bytes, shared=self.layout(loaded).shared)

    def _merged(self, kept: Kept, target_bytes: int) -> Kept:
        """Merge what is small now; a commit for each window of it."""
        loaded = self.table.load(self.first_schema)
        pieces = self._planned(loaded, self.table.files(loaded), target_bytes)
        sized = ((piece, piece.size) for piece in pieces)
        failed: list[tuple[CompactPiece, ColdstreamError]] = []
        for window in task_windows(sized, self.window_bytes):
            layout = self.layout(loaded)
            results = self.compactor(window, layout)
            done = list(zip(window, results, strict=True))
            good = [(piece, each.files) for piece, each in done if each.error is None]
            landed = self._committed(good, frozenset(layout.schema.names))
            kept = replace(
                kept,
                merged=kept.merged + sum(len(piece.files) for piece, _ in landed),
                into=kept.into + sum(len(files) for _, files in landed),
                overtaken=kept.overtaken
                + sum(len(piece.files) for piece, _ in good)
                - sum(len(piece.files) for piece, _ in landed),
            )
            failed += [(piece, each.error) for piece, each in done if each.error is not None]
        if failed:
            raise _told(self.table.name, len(failed), len(pieces), *failed[0])
        return kept

    def _committed(self, good: Sequence[_Done], columns: Collection[str]) -> Sequence[_Done]:
        """Put merged files in the place of those that they were made of; which of them are.

        Those count whose files are all in the table now, with all their rows: files never change,
        so it does not matter what else has changed.
        """
        id_ = self.new_id()
        for attempt in range(1, _ATTEMPTS + 1):
            loaded = self.table.load(self.first_schema)
            if id_ in loaded.appended:  # it had landed; only the answer said otherwise
                return good
            if not set(columns) <= set(loaded.schema.names):
                return []  # a person took a column away, or calls it otherwise now: made anew
            there = {file.path for file in self.table.files(loaded) if not file.partly}
            good = [each for each in good if there.issuperset(f.path for f in each[0].files)]
            if not good:
                return good
            old = [file for piece, _ in good for file in piece.files]
            new = [file for _, files in good for file in files]
            if swap(self.table, loaded, old, new, id_):
                return good
            self.pause(attempt)
        return []


_Done = tuple[CompactPiece, tuple[WrittenFile, ...]]


def _told(
    table: str, failed: int, of: int, piece: CompactPiece, error: ColdstreamError
) -> ColdstreamError:
    """What is told of files that could not be merged."""
    words = (
        f"{table}: {failed} of {of} groups of files could not be merged and are as they were;"
        f" the first, {piece.told()}: {error.reason}"
    )
    told = type(error)(words, stream=piece.stream, offset=piece.first_offset, key=error.key)
    told.__cause__ = error
    return told


def swap(
    table: Table, loaded: Loaded, old: Sequence[StoredFile], new: Sequence[WrittenFile], id_: str
) -> bool:
    """Put new files in the place of old ones, or nothing; False if others changed the table.

    Raises:
        UnknownOutcomeError: nobody knows; it is planned again next time, from what is there.
    """
    append = Append(id_, new, removes=[each.path for each in old])
    try:
        return table.append(loaded, append) is AppendOutcome.LANDED
    except UnknownOutcomeError:
        if id_ not in table.load(loaded.schema).appended:
            raise
    return True
