"""What the agent takes for streams, and what it says of the rest."""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from coldstream.agent.broker.committed import CommittedFile
from coldstream.agent.disk import directory
from coldstream.agent.disk.directory import Scanner, scan
from coldstream.agent.disk.files import DISK
from coldstream.agent.host import ThisMachine
from coldstream.errors import InvalidInputError
from coldstream.osiris.segment import segment_name
from coldstream_devkit.generator import write_stream

from .conftest import Site

STREAM = "__orders_1745252105682952932"


def offsets(path: Path, content: dict[str, Any]) -> CommittedFile:
    path.write_text(json.dumps(content))
    return CommittedFile(path)


def following(agent: Any) -> threading.Thread:
    thread = threading.Thread(target=agent.run)
    thread.start()
    return thread


def wait(condition: Any) -> None:
    deadline = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.01)


def test_a_data_directory_without_a_segment_file_is_an_error_of_a_one_shot_run(site: Site) -> None:
    (site.data_dir / "stream").mkdir()

    with pytest.raises(InvalidInputError, match="holds a segment file") as caught:
        site.run()

    assert caught.value.key == str(site.data_dir)


def test_a_data_directory_without_a_segment_file_is_a_warning_until_there_is_one(
    site: Site,
) -> None:
    agent = site.agent(once=False, host=ThisMachine())
    thread = following(agent)
    try:
        wait(lambda: any("holds a segment file" in each for each in agent.warnings))
        write_stream(site.data_dir / STREAM, messages=10)
        wait(lambda: STREAM in site.catalog.items)
        assert agent.warnings == []
    finally:
        agent.stop()
        thread.join()


def test_a_directory_one_level_too_high_gives_no_streams(site: Site) -> None:
    write_stream(site.data_dir / "stream" / STREAM, messages=10)
    (site.data_dir / "quorum" / "x").mkdir(parents=True)
    (site.data_dir / "quorum" / "00000001.wal").write_text("x")

    with pytest.raises(InvalidInputError):
        site.run()

    assert not site.catalog.items


def test_a_foreign_directory_beside_streams_is_no_stream_and_is_named(site: Site) -> None:
    write_stream(site.data_dir / STREAM, messages=10)
    (site.data_dir / "backup").mkdir()
    (site.data_dir / "backup" / "notes.segment").write_text("hello")
    agent = site.agent()

    assert [each.stream for each in agent.run()] == [STREAM]
    (warning,) = agent.warnings
    assert "backup" in warning
    assert set(site.catalog.items) == {STREAM}


def test_a_stream_that_the_offsets_do_not_name_is_told(site: Site, tmp_path: Path) -> None:
    write_stream(site.data_dir / STREAM, messages=30)
    write_stream(site.data_dir / "__other_1", messages=30)

    result = site.run(committed=offsets(tmp_path / "o.json", {STREAM: "all"}))

    assert result[STREAM].notices == []
    (notice,) = result["__other_1"].notices
    assert "__other_1" in notice
    assert "does not name" in notice


def test_an_offset_whose_stream_has_no_directory_is_told(site: Site, tmp_path: Path) -> None:
    write_stream(site.data_dir / STREAM, messages=30)
    agent = site.agent(committed=offsets(tmp_path / "o.json", {STREAM: "all", "__typo_1": 5}))

    agent.run()

    (warning,) = agent.warnings
    assert "__typo_1" in warning
    assert STREAM not in warning


def test_a_negative_offset_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match="from 0 on"):
        offsets(tmp_path / "o.json", {STREAM: -1})


def test_of_streams_that_are_new_the_one_written_to_last_comes_first(tmp_path: Path) -> None:
    for number, name in enumerate(("__a_1", "__c_1", "__b_1")):
        write_stream(tmp_path / name, messages=10)
        os.utime(tmp_path / name / segment_name(0), (1000 + number, 1000 + number))

    assert scan(tmp_path, ()).streams == ("__b_1", "__c_1", "__a_1")
    assert scan(tmp_path, ("__a_1",)).streams == ("__a_1", "__b_1", "__c_1")


def test_what_is_no_directory_hides_no_stream(tmp_path: Path) -> None:
    write_stream(tmp_path / STREAM, messages=10)
    (tmp_path / "file").write_text("")
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    (tmp_path / "nowhere").symlink_to(tmp_path / "missing")
    write_stream(tmp_path / "elsewhere" / "__linked_1", messages=10)
    (tmp_path / "__linked_1").symlink_to(tmp_path / "elsewhere" / "__linked_1")

    found = scan(tmp_path, ())

    assert set(found.streams) == {STREAM, "__linked_1"}
    assert found.bare == ("elsewhere",)
    assert found.strange == ()


def test_a_directory_that_cannot_be_looked_into_is_followed_so_that_it_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_stream(tmp_path / STREAM, messages=10)

    def refused(directory: Path) -> Sequence[str]:
        raise PermissionError(directory)

    monkeypatch.setattr(DISK, "names", refused)

    assert scan(tmp_path, ()).streams == (STREAM,)


def test_a_data_directory_in_which_nothing_came_or_went_is_not_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_stream(tmp_path / STREAM, messages=10)
    os.utime(tmp_path, (1000, 1000))
    scanner = Scanner()
    found = scanner.scan(tmp_path, ())
    monkeypatch.setattr(directory, "scan", None)  # whoever calls it fails

    assert scanner.scan(tmp_path, found.streams) == found


def test_a_stream_that_comes_or_goes_is_seen_by_the_next_scan(tmp_path: Path) -> None:
    scanner = Scanner()
    write_stream(tmp_path / STREAM, messages=10)
    assert scanner.scan(tmp_path, ()).streams == (STREAM,)
    write_stream(tmp_path / "__other_1", messages=10)
    assert scanner.scan(tmp_path, (STREAM,)).streams == (STREAM, "__other_1")
    (tmp_path / STREAM).rename(tmp_path.parent / STREAM)
    assert scanner.scan(tmp_path, (STREAM, "__other_1")).streams == ("__other_1",)


def test_what_comes_within_a_tick_of_the_file_systems_clock_is_seen(tmp_path: Path) -> None:
    scanner = Scanner()
    write_stream(tmp_path / STREAM, messages=10)
    now = time.time_ns()
    os.utime(tmp_path, ns=(now, now))
    scanner.scan(tmp_path, ())
    write_stream(tmp_path / "__other_1", messages=10)
    os.utime(tmp_path, ns=(now, now))

    assert set(scanner.scan(tmp_path, (STREAM,)).streams) == {STREAM, "__other_1"}


def test_a_bare_directory_that_becomes_a_stream_is_seen_although_the_one_above_stays(
    tmp_path: Path,
) -> None:
    scanner = Scanner()
    (tmp_path / STREAM).mkdir()
    os.utime(tmp_path, (1000, 1000))
    assert scanner.scan(tmp_path, ()).bare == (STREAM,)
    write_stream(tmp_path / STREAM, messages=10)

    assert scanner.scan(tmp_path, ()).streams == (STREAM,)


def test_what_no_time_shows_is_seen_after_a_while(tmp_path: Path) -> None:
    scanner = Scanner()
    write_stream(tmp_path / "elsewhere" / STREAM, messages=10)
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / STREAM).symlink_to(tmp_path / "elsewhere" / STREAM)
    os.utime(tmp_path / "data", (1000, 1000))
    assert scanner.scan(tmp_path / "data", ()).streams == (STREAM,)
    (tmp_path / "elsewhere" / STREAM).rename(tmp_path / "gone")

    found = [scanner.scan(tmp_path / "data", (STREAM,)).streams for _ in range(100)]

    assert found[-1] == ()


def test_a_data_directory_that_goes_away_is_told_at_once(tmp_path: Path) -> None:
    scanner = Scanner()
    write_stream(tmp_path / "data" / STREAM, messages=10)
    os.utime(tmp_path / "data", (1000, 1000))
    scanner.scan(tmp_path / "data", ())
    (tmp_path / "data").rename(tmp_path / "away")

    with pytest.raises(FileNotFoundError):
        scanner.scan(tmp_path / "data", (STREAM,))
