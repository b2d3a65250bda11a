"""What the agent takes for streams, and what it says of the rest."""

from __future__ import annotations

import json
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from coldstream.agent.committed import CommittedFile
from coldstream.agent.host import ThisMachine
from coldstream.errors import InvalidInputError
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
    deadline = time.monotonic() + 20
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
