"""A segment without its index: damage, or a directory that is being removed."""

from __future__ import annotations

import shutil
from collections.abc import Callable

import pytest

from coldstream.agent.disk.log import StreamLog
from coldstream.agent.faults import DamagedFileError
from coldstream.agent.telling.progress import Progress
from coldstream.errors import ColdstreamError
from coldstream_devkit.generator import write_stream

from .conftest import Site
from .machine import Machine

STREAM = "__orders_1745252105682952932"


@pytest.fixture
def half(site: Site) -> Site:
    """A directory from which the newest index is gone, and its segment not yet."""
    log = StreamLog(site.data_dir / STREAM)
    write_stream(log.directory, messages=60, chunk_messages=10, segment_bytes=600)
    log.index_path(log.segments()[-1]).unlink()
    return site


def errors(site: Site, seconds: float, then: Callable[[], object]) -> list[ColdstreamError]:
    """What an agent says of the stream; after five seconds something happens."""
    machine, found, left = Machine(), [], [then]
    agent = site.agent(host=machine, once=False, poll_seconds=1, rescan_seconds=2)

    def report(rows: list[Progress]) -> None:
        found.extend(row.error for row in rows if row.error is not None)
        if machine.now >= 5 and left:
            left.pop()()
        if machine.now >= seconds:
            agent.stop()

    agent.report = report
    agent.run()
    return found


def test_a_directory_that_is_half_removed_is_not_told_as_damage(half: Site) -> None:
    """The advice was to delete the replica, while it was being deleted."""
    found = errors(half, 60, lambda: shutil.rmtree(half.data_dir / STREAM))

    assert found
    assert not any(isinstance(each, DamagedFileError) for each in found)


def test_a_segment_that_stays_without_its_index_is_told_as_damage(half: Site) -> None:
    found = errors(half, 60, lambda: None)

    assert not isinstance(found[0], DamagedFileError)
    assert isinstance(found[-1], DamagedFileError)
    assert "a segment without its index" in str(found[-1])


def test_one_run_tells_a_segment_without_its_index_at_once(half: Site) -> None:
    assert isinstance(half.run()[STREAM].error, DamagedFileError)
