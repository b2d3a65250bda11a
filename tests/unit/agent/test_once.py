"""`--once` on a log that grows: what is committed at the start, and an end."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from coldstream_devkit.generator import append_chunks, build_chunk, write_stream

from .conftest import Site
from .disturbed import Faults, Run, no_answer
from .machine import EPOCH_MS

STREAM = "__orders_1745252105682952932"


def grower(site: Site, first: int, *, epoch: int = 1) -> Callable[[], None]:
    """A broker that writes three more chunks whenever it is asked."""
    at = first

    def grow() -> None:
        nonlocal at
        chunks = [build_chunk(at + n, epoch, EPOCH_MS + at + n, [b"x" * 500]) for n in range(3)]
        append_chunks(site.data_dir / STREAM, chunks)
        at += 3

    return grow


def fragments(site: Site) -> list[tuple[int, int]]:
    keys = [Path(key).name for key in site.store.objects if key.endswith(".fragment")]
    return sorted((int(key[:20]), int(key[21:41])) for key in keys)


def once(site: Site, **more: Any) -> Run:
    run = Run(
        site, settings={"once": True, "target_size": 3_000, **more.pop("settings", {})}, **more
    )
    run.done = lambda rows: False  # type: ignore[method-assign]
    return run


@pytest.mark.parametrize("epoch", [1, 2])
def test_a_log_that_grows_without_end_is_uploaded_up_to_where_it_was_at_the_start(
    site: Site, epoch: int
) -> None:
    written = write_stream(site.data_dir / STREAM, messages=100, chunk_messages=10)
    run = once(site)
    grow = grower(site, written.next_offset, epoch=epoch)
    run.happens = dict.fromkeys(range(1, 200), grow)

    (row,) = run.go()

    assert run.looks < 60, "it ends"
    assert not run.agent.interrupted
    assert (row.error, row.next_offset) == (None, 100)
    assert max(next_offset for _, next_offset in fragments(site)) == 100
    assert site.local_chunks(STREAM).startswith(site.remote_chunks(STREAM))


def test_no_more_fragments_are_cut_than_of_a_log_that_stands_still(
    site: Site, tmp_path: Path
) -> None:
    still = Site(tmp_path / "still")
    still.data_dir.mkdir()
    for where in (site, still):
        write_stream(where.data_dir / STREAM, messages=100, chunk_messages=10)
    once(still).go()

    run = once(site)
    grow = grower(site, 100)
    run.happens = dict.fromkeys(range(1, 200), grow)
    run.go()

    assert fragments(site) == fragments(still)


def test_the_end_is_noted_before_the_first_stream_is_opened(site: Site) -> None:
    """A thousand streams are opened one after the other; the last one has grown meanwhile."""
    for number in range(3):
        write_stream(site.data_dir / f"__s_{number}", messages=20, chunk_messages=10)
    run = once(site)
    call, grown = run.faults.call, []

    def grow(name: str) -> None:
        if name == "catalog.anchor" and not grown:
            grown.append(1)
            chunk = build_chunk(20, 1, EPOCH_MS, [b"late"])
            append_chunks(site.data_dir / "__s_2", [chunk])
        call(name)

    run.faults.call = grow  # type: ignore[method-assign]
    rows = run.go()

    assert grown
    assert [row.next_offset for row in rows] == [20, 20, 20]


def test_a_stream_that_appears_later_is_for_the_next_run(site: Site) -> None:
    write_stream(site.data_dir / STREAM, messages=100, chunk_messages=10)
    run = once(site)
    run.happens = {1: lambda: write_stream(site.data_dir / "__later_1", messages=10)}

    rows = run.go()

    assert [row.stream for row in rows] == [STREAM]
    assert "__later_1" not in site.catalog.items


def test_a_log_that_cannot_be_read_at_the_start_is_noted_when_it_can(site: Site) -> None:
    write_stream(site.data_dir / STREAM, messages=100, chunk_messages=10)
    run = once(site, faults=Faults(1, 1, lambda: OSError(5, "Input/output error")))

    (row,) = run.go()

    assert (row.error, row.next_offset) == (None, 100)


def test_a_run_whose_upload_fails_at_first_still_stops_at_the_end_that_it_noted(
    site: Site,
) -> None:
    write_stream(site.data_dir / STREAM, messages=100, chunk_messages=10)
    run = once(site, faults=Faults(3, 4, no_answer), breaks=("store.put",))
    grow = grower(site, 100)
    run.happens = dict.fromkeys(range(1, 200), grow)

    (row,) = run.go()

    assert (row.error, row.next_offset) == (None, 100)


def test_a_directory_that_vanishes_in_a_one_shot_run_is_no_success(site: Site) -> None:
    write_stream(site.data_dir / STREAM, messages=100, chunk_messages=10)
    write_stream(site.data_dir / "__other_1", messages=10)
    run = once(site, most_looks=80)
    run.machine.held = True
    run.happens = {
        2: lambda: (site.data_dir / STREAM).rename(site.data_dir.parent / "away"),
        3: lambda: setattr(run.machine, "held", False),
    }

    rows = {row.stream: row for row in run.go()}

    assert rows[STREAM].error is not None
    assert rows["__other_1"].error is None


def test_a_directory_that_vanishes_before_its_manifest_has_followed_is_no_success(
    site: Site,
) -> None:
    write_stream(site.data_dir / STREAM, messages=100, chunk_messages=10)
    write_stream(site.data_dir / "__other_1", messages=10)
    run = once(site, most_looks=200, never=True)
    run.happens = {
        20: lambda: (site.data_dir / STREAM).rename(site.data_dir.parent / "away"),
        21: lambda: setattr(run, "never", False),
    }

    rows = {row.stream: row for row in run.go()}

    assert STREAM in rows, "it is not forgotten"
    assert (rows[STREAM].error is not None) or rows[STREAM].next_offset == 100
