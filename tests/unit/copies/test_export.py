"""Messages as files of other programs: all of them once, in files that are whole."""

from __future__ import annotations

import errno
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from coldstream.cli.export import ExportFormat, file_format, line
from coldstream.copies import export as copies
from coldstream.copies.export import STATE, Exported
from coldstream.copies.runs import HistoryChangedError
from coldstream.copies.workplace import ForeignFilesError
from coldstream.errors import ConflictError, CorruptDataError
from coldstream.manifest.entries import Entries
from coldstream.manifest.ledger import Ledger
from coldstream.manifest.root import Root
from coldstream.osiris.body import BodyFormat
from coldstream.reader import First, Gap, Offset, StreamReader
from coldstream.reader.follow import RangeRead
from tests.support.tier import FIXTURES, Tier, chunk

JSONL, PARQUET = ExportFormat.JSONL, ExportFormat.PARQUET


class KilledError(BaseException):
    """Stands for a process that ends at any moment."""


def export(
    reader: StreamReader,
    directory: Path,
    kind: ExportFormat = JSONL,
    *,
    first: int = 0,
    end: int | None = None,
    file_size: int = 20_000,
    gaps: list[Gap] | None = None,
    tell: Callable[[Exported], None] = lambda _: None,
    asked: dict[str, str] | None = None,
) -> Exported:
    read = reader.begin(Offset(first), None if end is None else Offset(end))
    return copies.export(
        reader,
        asked or {"format": kind.value},
        (read.position, read.end),
        directory,
        file_format(kind, reader.snapshot().item, BodyFormat.AUTO),
        file_size=file_size,
        on_gap=(gaps if gaps is not None else []).append,
        tell=tell,
    )


def files(directory: Path, suffix: str) -> list[Path]:
    return sorted(directory.glob(f"*/*.{suffix}"))


def lines(directory: Path) -> list[Any]:
    return [
        json.loads(line)
        for path in files(directory, "jsonl")
        for line in path.read_bytes().splitlines()
    ]


def offsets(directory: Path, kind: ExportFormat) -> list[int]:
    if kind is JSONL:
        return [line["offset"] for line in lines(directory)]
    tables = [pq.read_table(path) for path in files(directory, "parquet")]
    return [value for table in tables for value in table["offset"].to_pylist()]


@pytest.mark.parametrize("kind", [JSONL, PARQUET])
@pytest.mark.parametrize("name", ["plain-3.10.8", "subgzip-4.3.6", "dedup-4.3.6"])
def test_every_message_is_in_one_file_in_order(
    name: str, kind: ExportFormat, tmp_path: Path
) -> None:
    tier = Tier()
    reader = tier.reader(tier.add_fixture(name))

    done = export(reader, tmp_path, kind)

    assert offsets(tmp_path, kind) == [each.offset for each in reader.messages(First())]
    assert done.messages == FIXTURES[name]["messages"]
    made = files(tmp_path, kind.value)
    assert done.files == len(made) > (kind is JSONL)
    spans = [tuple(map(int, path.stem.split("-"))) for path in made]
    assert [end for _, end in spans[:-1]] == [begin for begin, _ in spans[1:]]
    assert done.bytes == sum(path.stat().st_size for path in made)


def test_a_line_is_what_read_prints_and_a_row_what_spark_has(tmp_path: Path) -> None:
    tier = Tier()
    reader = tier.reader(tier.add_fixture("plain-3.10.8"))
    export(reader, tmp_path / "j")
    export(reader, tmp_path / "p", PARQUET)

    assert lines(tmp_path / "j") == [
        json.loads(line(BodyFormat.AUTO, each)) for each in reader.messages(First())
    ]
    (path,) = files(tmp_path / "p", "parquet")
    table = pq.read_table(path)
    assert table.num_rows == 2000
    assert (table["stream"][0].as_py(), table["queue"][0].as_py()) == (reader.stream, "fx.plain")
    assert {"offset", "timestamp", "body", "properties", "error"} <= set(table.column_names)


@pytest.mark.parametrize("kind", [JSONL, PARQUET])
def test_an_export_that_was_killed_goes_on_where_its_files_end(
    kind: ExportFormat, tmp_path: Path
) -> None:
    tier = Tier()
    reader = tier.reader(tier.add_fixture("plain-3.10.8"))
    for ranges in range(1, 18, 4):
        left = iter(range(ranges))

        def tell(_: Exported) -> None:
            if next(left, None) is None:  # noqa: B023
                raise KilledError

        directory = tmp_path / str(ranges)
        with pytest.raises(KilledError):
            export(reader, directory, kind, tell=tell, file_size=9000)
        assert not list(directory.glob("*/*.part"))

        export(reader, directory, kind, file_size=9000)

        assert offsets(directory, kind) == list(range(2000))


def test_what_a_killed_process_left_is_no_part_of_the_export(tmp_path: Path) -> None:
    tier = Tier()
    stream = tier.add_fixture("plain-3.10.8")
    reader = tier.reader(stream)
    export(reader, tmp_path, end=500)
    (tmp_path / stream / f"{500:020d}.part").write_bytes(b"half a li")

    assert export(reader, tmp_path).resumed_at == 500
    assert offsets(tmp_path, JSONL) == list(range(2000))
    assert not list(tmp_path.glob("*/*.part"))


def test_what_has_come_since_is_added(tmp_path: Path) -> None:
    tier = Tier()
    root = tier.add("s", [[chunk(0, b"0", b"1")]])
    export(tier.reader("s"), tmp_path)
    assert export(tier.reader("s"), tmp_path).files == 0
    entry = tier.upload("s", [chunk(2, b"2")], epoch=1, floor=0)
    tier.commit("s", replace(root, next_offset=3, entries=Entries.of([*root.entries, entry])))

    export(tier.reader("s"), tmp_path)

    assert [path.stem[-1] for path in files(tmp_path, "jsonl")] == ["2", "3"]
    assert offsets(tmp_path, JSONL) == [0, 1, 2]


def test_what_was_exported_and_is_cut_off_since_is_told(tmp_path: Path) -> None:
    tier = Tier()
    root = tier.add("s", [[chunk(0, b"0")], [chunk(1, b"old")]])
    export(tier.reader("s"), tmp_path)
    fresh = tier.upload("s", [chunk(1, b"new", epoch=2), chunk(2, b"x", epoch=2)], epoch=2, floor=1)
    entries = Entries.of([root.entries[0], fresh])
    ledger = Ledger.of([(1, 0), (2, 1)])
    tier.commit("s", replace(root, next_offset=3, epoch=2, ledger=ledger, entries=entries))

    with pytest.raises(HistoryChangedError, match="from 1 on"):
        export(tier.reader("s"), tmp_path)

    export(tier.reader("s"), tmp_path / "anew")
    assert export(tier.reader("s"), tmp_path / "anew").files == 0


@pytest.mark.parametrize("late", [False, True])
def test_a_claim_at_the_very_moment_at_which_an_export_goes_on_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, late: bool
) -> None:
    """Two histories were in its files, and no later run could know.

    It may have been asleep for long before its first range, so that this is gone.
    """
    tier = Tier()
    root = tier.add("s", [[chunk(0, b"0")], [chunk(1, b"old")]])
    export(tier.reader("s"), tmp_path, end=2)
    grown = tier.upload("s", [chunk(2, b"old")], epoch=1, floor=0)
    tier.commit("s", replace(root, next_offset=3, entries=Entries.of([*root.entries, grown])))
    reader = tier.reader("s")

    def claimed(*bounds: Offset) -> RangeRead:
        """All that was asked before is of the old history, and what is read is of the new one."""
        read = StreamReader.begin(reader, *bounds)
        fresh = [chunk(n, b"new", epoch=2) for n in (1, 2)]
        entries = [root.entries[0], tier.upload("s", fresh, epoch=2, floor=1)]
        ledger = Ledger.of([(1, 0), (2, 1)])
        tier.commit(
            "s",
            replace(root, next_offset=3, epoch=2, ledger=ledger, entries=Entries.of(entries)),
        )
        if late:
            del tier.store.objects[tier.key(Root(2, 3, entries=Entries.of([grown])), "s", 0)]
        return read if late else StreamReader.begin(reader, *bounds)

    made = file_format(JSONL, reader.snapshot().item, BodyFormat.AUTO)
    monkeypatch.setattr(reader, "begin", claimed)
    with pytest.raises(HistoryChangedError, match="from 1 on"):
        copies.export(
            reader, {"format": "jsonl"}, (0, 3), tmp_path, made,
            file_size=20_000, on_gap=print, tell=lambda _: None,
        )  # fmt: skip
    assert offsets(tmp_path, JSONL) == [0, 1]


def test_a_hole_is_told_and_has_a_line_of_its_own(tmp_path: Path) -> None:
    tier, gaps = Tier(), list[Gap]()
    tier.add("s", [[chunk(0, b"0")], tier.hole(1, 5), [chunk(5, b"5")]])

    export(tier.reader("s"), tmp_path, gaps=gaps)

    first, gap, last = lines(tmp_path)
    assert (first["offset"], last["offset"]) == (0, 5)
    assert gap == {"gap": {"first": 1, "next": 5, "reason": "hole"}}
    assert gaps == [Gap(1, 5)]


def test_damage_stops_it_with_whole_files_before(tmp_path: Path) -> None:
    tier = Tier()
    stream = tier.add_fixture("plain-3.10.8")
    root = tier.reader(stream).snapshot().root
    tier.flip(tier.key(root, stream, 8), 200)

    with pytest.raises(CorruptDataError):
        export(tier.reader(stream), tmp_path)

    found = offsets(tmp_path, JSONL)
    assert found == list(range(len(found)))
    assert found
    assert not list(tmp_path.glob("*/*.part"))


@pytest.mark.parametrize("name", ["notes.txt", f"{0:020d}-{9:020d}.jsonl"])
def test_a_directory_of_somebody_else_is_left_alone(tmp_path: Path, name: str) -> None:
    tier = Tier()
    stream = tier.add_fixture("plain-3.10.8")
    (tmp_path / stream).mkdir()
    (tmp_path / stream / name).write_text("mine")

    with pytest.raises(ForeignFilesError):
        export(tier.reader(stream), tmp_path)
    assert [path.name for path in (tmp_path / stream).iterdir()] == [name]


def test_two_exports_do_not_mix_and_none_has_a_gap(tmp_path: Path) -> None:
    tier = Tier()
    stream = tier.add_fixture("plain-3.10.8")
    reader = tier.reader(stream)
    export(reader, tmp_path)
    with pytest.raises(ForeignFilesError, match="asked for otherwise"):
        export(reader, tmp_path, asked={"format": "parquet"})
    files(tmp_path, "jsonl")[1].unlink()
    with pytest.raises(ForeignFilesError, match="its files go up to"):
        export(reader, tmp_path)
    (tmp_path / stream / STATE).write_text("{}")
    with pytest.raises(ForeignFilesError):
        export(reader, tmp_path)


def test_two_processes_do_not_export_into_one_directory(tmp_path: Path) -> None:
    tier = Tier()
    reader = tier.reader(tier.add_fixture("plain-3.10.8"))

    def meanwhile(_: Exported) -> None:
        with pytest.raises(ConflictError, match="another process"):
            export(reader, tmp_path)

    export(reader, tmp_path, tell=meanwhile)


def test_a_file_that_cannot_be_finished_leaves_nothing_on_the_full_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A Parquet file is written when it is finished: its part stayed, and took what was left."""
    tier = Tier()
    tier.add("s", [[chunk(n, b"%d" % n)] for n in range(20)])
    close = pq.ParquetWriter.close

    def full(writer: pq.ParquetWriter) -> None:
        close(writer)
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(pq.ParquetWriter, "close", full)
    with pytest.raises(OSError, match="No space"):
        export(tier.reader("s"), tmp_path, PARQUET, file_size=10**9)

    assert [each.name for each in (tmp_path / "s").iterdir()] == [STATE]
