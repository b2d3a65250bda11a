"""A stream that makes no progress although something waits says so, again and again."""

from __future__ import annotations

import shutil
from typing import Any

from coldstream.agent.telling.progress import Notices
from coldstream.errors import UnavailableError
from coldstream_devkit.generator import append_chunks, build_chunk, write_stream

from .conftest import Site
from .disturbed import Faults, Run, durable
from .machine import EPOCH_MS, Machine

STREAM = "__orders_1745252105682952932"


def told(run: Run) -> list[str]:
    return [
        each for row in run.agent.progress() for each in row.notices if "no progress for" in each
    ]


def run_for(site: Site, looks: int, **more: Any) -> Run:
    """So many looks, ten seconds apart."""
    more["settings"] = {"poll_seconds": 10, **more.get("settings", {})}
    run = Run(site, most_looks=looks, **more)
    run.done = lambda rows: False  # type: ignore[method-assign]
    run.go()
    return run


def test_a_stream_that_stands_still_says_so_every_few_minutes_with_why_and_how_much(
    site: Site,
) -> None:
    write_stream(site.data_dir / STREAM, messages=30, chunk_messages=10)
    faults = Faults(1, 10**9, lambda: UnavailableError("the table does not answer"))

    run = run_for(site, 360, faults=faults, breaks=("catalog",))

    assert 9 <= len(told(run)) <= 13
    for part in ("the table does not answer", "30 offsets", STREAM, "58 minutes"):
        assert part in told(run)[-1]
    assert told(run)[-1].count("(stream ") == 1, "where it is, is said once"
    standing = run.agent.progress()[0].standstill
    assert standing is not None
    assert standing.offsets == 30
    assert standing.seconds > 3000


def test_uploads_that_never_end_are_told(site: Site) -> None:
    write_stream(site.data_dir / STREAM, messages=30, chunk_messages=10)
    machine = Machine(held=True)
    run = run_for(site, 60, machine=machine)

    assert "uploads are under way" in told(run)[0]


def test_a_manifest_that_never_follows_is_told_more_than_once(site: Site) -> None:
    write_stream(site.data_dir / STREAM, messages=30, chunk_messages=10)
    run = run_for(site, 120, never=True)

    assert len(told(run)) >= 3
    assert "no commit has ever come" in told(run)[-1]


def test_a_chunk_whose_time_is_far_ahead_of_the_clock_waits_no_longer_than_another(
    site: Site,
) -> None:
    write_stream(
        site.data_dir / STREAM,
        messages=10,
        chunk_messages=10,
        start_timestamp=EPOCH_MS + 86_400_000,
    )

    run_for(site, 10, settings={"flush_ms": 60_000})

    assert durable(site, STREAM)


def test_a_stream_that_goes_on_or_has_nothing_to_do_is_never_told(site: Site) -> None:
    written = write_stream(site.data_dir / STREAM, messages=30, chunk_messages=10)
    first = written.next_offset

    def grow() -> None:
        nonlocal first
        chunk = build_chunk(first, 1, EPOCH_MS + 1000 * first, [b"x"])
        append_chunks(site.data_dir / STREAM, [chunk])
        first += 1

    run = run_for(
        site, 3000, happens=dict.fromkeys(range(10, 1000, 60), grow),
        settings={"flush_ms": 600_000, "target_size": 10**6},
    )  # fmt: skip

    assert durable(site, STREAM)
    assert told(run) == []


def test_the_word_is_taken_back_once_the_stream_goes_on(site: Site) -> None:
    write_stream(site.data_dir / STREAM, messages=30, chunk_messages=10)
    faults = Faults(1, 20, lambda: UnavailableError("the table does not answer"))

    run = run_for(site, 150, faults=faults, breaks=("catalog",))

    assert told(run)
    assert run.agent.progress()[0].standstill is None


def test_notices_are_bounded_and_those_that_are_new_are_known() -> None:
    notices = Notices()
    for number in range(1000):
        notices.append(f"notice {number}")
        notices.append(f"notice {number}")

    assert len(notices) == 200
    assert notices.since(998) == ["notice 998", "notice 999"]
    assert notices.since(0) == list(notices)
    assert notices.since(1000) == []


def test_a_directory_that_is_gone_is_followed_no_longer_and_its_holes_stay_told(
    site: Site,
) -> None:
    write_stream(site.data_dir / STREAM, messages=30, chunk_messages=10)
    write_stream(site.data_dir / "__other_1", messages=30, chunk_messages=10)
    run = Run(site, most_looks=40)

    def gone() -> None:
        run.agent._followers[STREAM].progress.holes.append((3, 5))
        shutil.rmtree(site.data_dir / STREAM)
        shutil.rmtree(site.data_dir / "__other_1")

    run.happens[20] = gone
    run.done = lambda rows: False  # type: ignore[method-assign]
    rows = run.go()

    assert run.agent._followers == {}
    assert [(row.stream, row.holes, row.error) for row in rows] == [
        (STREAM, [(3, 5)], None),
        ("__other_1", [], None),
    ]


def test_a_directory_that_is_gone_is_followed_until_its_uploads_have_ended(site: Site) -> None:
    write_stream(site.data_dir / STREAM, messages=30, chunk_messages=10)
    run = Run(site, most_looks=40)
    run.machine.held = True
    run.happens = {
        5: lambda: shutil.rmtree(site.data_dir / STREAM),
        20: lambda: [run.agent._followers[STREAM], setattr(run.machine, "held", False)],
    }
    run.done = lambda rows: False  # type: ignore[method-assign]
    rows = run.go()

    assert run.agent._followers == {}
    assert run.agent._work.room == 22
    assert "as much as this agent had seen of it" in rows[0].notices[-1]


def test_a_directory_that_comes_back_is_followed_again(site: Site) -> None:
    write_stream(site.data_dir / STREAM, messages=30, chunk_messages=10)
    away = site.data_dir.parent / "away"
    run = Run(site, most_looks=80)
    run.happens = {
        5: lambda: (site.data_dir / STREAM).rename(away),
        20: lambda: away.rename(site.data_dir / STREAM),
    }
    rows = run.go()

    assert [row.stream for row in rows] == [STREAM]
    assert durable(site, STREAM)


def test_the_rows_of_directories_that_are_gone_are_bounded(site: Site) -> None:
    run = Run(site)
    for number in range(1100):
        name = f"__gone_{number}"
        run.agent._followers[name] = run.agent._follower(name)
        run.agent._followers[name].progress.notices.append("something")
        run.agent._part(name)

    assert len(run.agent.progress()) == 1000
