"""Five watermarks of a stream, what is behind the last, and when local retention wins."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coldstream.agent.broker.committed import Known
from coldstream.agent.disk.log import StreamLog
from coldstream.agent.settings import AgentSettings
from coldstream.agent.telling.watermarks import Sightings, Watermarks, WatermarkWatch, headroom
from coldstream.osiris.chunk import ChunkType
from coldstream_devkit.generator import append_chunks, build_chunk, write_stream

STREAM = "__orders_1745252105682952932"
#: When the generator's first chunk was written.
WRITTEN_MS = 1_790_000_000_000


class Told:
    def __init__(self, limit: int, known: Known) -> None:
        self.value, self.answer = limit, known

    def limit(self, stream: str) -> int:
        return self.value

    def known(self, stream: str) -> Known:
        return self.answer


class Scene:
    def __init__(self, path: Path, limit: int, known: Known, **settings: Any) -> None:
        self.committed: Any = Told(limit, known)
        self.marks = Watermarks()
        self.watch = WatermarkWatch(
            StreamLog(path), self.committed, AgentSettings(**settings), self.marks
        )
        self.now = 100.0

    def look(
        self,
        after: float = 0,
        *,
        cut: int = 0,
        flying: Any = (),
        published: int | None = 0,
        epoch: int = 1,
    ) -> Any:
        self.now += after
        now_ms = WRITTEN_MS + int(self.now * 1000)
        return self.watch.look(
            self.now, now_ms, cut=cut, flying=flying, published=published, epoch=epoch
        )

    @property
    def offsets(self) -> list[int]:
        return [mark.offset for _, mark in self.marks.marks()]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    write_stream(tmp_path / STREAM, messages=100, chunk_messages=10)
    return tmp_path / STREAM


def test_each_mark_is_where_its_stage_has_come_to_and_says_since_when(path: Path) -> None:
    scene = Scene(path, 90, Known(local=True))

    scene.look(cut=80, flying=[60, 40], published=20)
    assert scene.offsets == [90, 80, 40, 20, 20]
    first = scene.marks.published.at_ms

    scene.look(5, cut=80, flying=[60], published=40)
    assert scene.offsets == [90, 80, 60, 40, 40]
    assert scene.marks.published.at_ms == first + 5000
    assert scene.marks.committed.at_ms == first


def test_a_broker_that_cannot_say_leaves_the_committed_mark_where_it_was(path: Path) -> None:
    scene = Scene(path, 90, Known(local=True))
    scene.look(published=20)

    scene.committed.value = 0  # the connection broke
    scene.look(1, published=20)

    assert scene.offsets[0] == 90
    assert scene.marks.lag_seconds > 0


def test_what_an_operator_calls_committed_ends_where_the_log_does(path: Path) -> None:
    scene = Scene(path, 2**62, Known())

    scene.look()
    assert scene.offsets[0] == 100

    append_chunks(path, [build_chunk(100, 1, WRITTEN_MS, [b"x"] * 5)])
    scene.look()
    assert scene.offsets[0] == 105


def test_lag_counts_from_the_first_sight_and_not_by_the_brokers_clock(path: Path) -> None:
    scene = Scene(path, 50, Known(local=True))
    scene.look(published=50)
    assert (scene.marks.lag_seconds, scene.marks.lag_bytes) == (0, 0)

    scene.committed.value = 100
    scene.look(1, published=50)
    scene.look(30, published=50)
    assert scene.marks.lag_seconds == 30

    scene.look(1, published=100)
    assert (scene.marks.lag_seconds, scene.marks.lag_bytes) == (0, 0)


def test_what_was_there_before_the_first_look_is_as_old_as_its_chunks_say(path: Path) -> None:
    scene = Scene(path, 100, Known(local=True))

    scene.look(published=50)

    written = StreamLog(path).timestamp_at(50)
    assert written is not None
    now_ms = WRITTEN_MS + int(scene.now * 1000)
    assert scene.marks.lag_seconds == pytest.approx((now_ms - written) / 1000)


@pytest.mark.parametrize("first", [0, None])
def test_what_has_waited_since_the_first_look_is_not_counted_twice(
    path: Path, first: int | None
) -> None:
    """The manifest was empty at that look, or had not been read."""
    scene = Scene(path, 100, Known(local=True))
    scene.look(published=first)

    scene.look(600, published=50)

    written = StreamLog(path).timestamp_at(50)
    assert written is not None
    now_ms = WRITTEN_MS + int(scene.now * 1000)
    assert scene.marks.lag_seconds == pytest.approx((now_ms - written) / 1000)


def test_lag_in_bytes_is_what_the_files_have_behind_the_published_offset(path: Path) -> None:
    log = StreamLog(path)
    sizes = [log.bytes_from(offset) for offset in range(0, 101, 10)]

    total = sum(each.stat().st_size for each in path.glob("*.segment"))
    assert total - 8 * len(list(path.glob("*.segment"))) <= sizes[0] <= total
    assert sizes == sorted(sizes, reverse=True)
    assert sizes[-1] == 0

    scene = Scene(path, 100, Known(local=True))
    scene.look(published=50)
    assert scene.marks.lag_bytes == sizes[5]


def test_the_end_of_the_log_is_read_off_its_last_record(path: Path) -> None:
    assert StreamLog(path).end() == 100
    append_chunks(path, [build_chunk(100, 1, WRITTEN_MS, [b"x"] * 7)])
    assert StreamLog(path).end() == 107


def test_the_messages_of_a_log_end_before_the_tracking_chunks_behind_them(path: Path) -> None:
    log = StreamLog(path)
    assert log.messages_end(0) == 100
    tracked = [
        build_chunk(100 + number, 1, WRITTEN_MS, [b"\0\0\0"], chunk_type=ChunkType.TRACKING_DELTA)
        for number in range(150)
    ]
    append_chunks(path, tracked)

    assert log.end() == 250
    assert log.messages_end(0) == 100
    assert log.messages_end(100) == 0


def test_data_that_nobody_proves_counts_as_lag_and_says_for_how_long(path: Path) -> None:
    scene = Scene(path, 0, Known(local=True, whole=False, trouble="no permission"))

    scene.look()
    scene.look(90)

    assert (scene.marks.unproved_seconds, scene.marks.lag_seconds) == (90, 90)
    assert scene.marks.lag_bytes > 0
    assert (scene.marks.local_end, scene.offsets[0]) == (100, 0)

    scene.committed.value, scene.committed.answer = 100, Known(local=True)
    scene.look(1)
    assert (scene.marks.unproved_seconds, scene.marks.local_end) == (0, 0)


def test_a_tail_above_what_is_proved_counts_from_when_it_was_first_seen(path: Path) -> None:
    scene = Scene(path, 100, Known(local=True))
    scene.look(published=100)
    append_chunks(path, [build_chunk(100, 1, WRITTEN_MS, [b"x"] * 5)])
    scene.committed.answer = Known(local=True, whole=False)

    scene.look(10, published=100)
    scene.look(70, published=100)

    assert scene.marks.unproved_seconds == scene.marks.lag_seconds == 70
    assert scene.watch.oldest_at is None, "what is committed is published"


@pytest.mark.parametrize("published", [0, 100])
def test_neither_a_tracking_chunk_at_the_end_nor_a_level_stand_by_counts_as_unproved(
    path: Path, published: int
) -> None:
    append_chunks(
        path,
        [build_chunk(100, 1, WRITTEN_MS, [b"\0\0\0"], chunk_type=ChunkType.TRACKING_DELTA)],
    )
    limit = 100 - published
    scene = Scene(path, limit, Known(local=True, whole=False, writer=False, trouble="silence"))

    scene.look(published=published)
    scene.look(500, published=published)

    assert (scene.marks.unproved_seconds, scene.marks.local_end) == (0, 0)


def test_what_an_operator_calls_committed_is_never_unproved(path: Path) -> None:
    scene = Scene(path, 50, Known())
    scene.look()
    scene.look(500)
    assert scene.marks.unproved_seconds == 0


def test_a_short_headroom_is_told_once_an_hour_while_the_stream_is_behind(path: Path) -> None:
    scene = Scene(path, 60, Known(local=True, max_age_ms=1_000_000))
    scene.look(published=60)
    scene.committed.value = 100

    told = [scene.look(50, published=60) for _ in range(100)]

    words = [each for each in told if each]
    assert len(words) == 2, "5,000 s have an hour once more"
    assert "local retention takes what is not uploaded" in words[0]
    assert f"(stream {STREAM}, offset 60)" in words[0]
    assert scene.marks.headroom_seconds == 0


def test_a_stream_that_keeps_up_with_a_short_retention_is_not_told_of(path: Path) -> None:
    scene = Scene(path, 60, Known(local=True, max_age_ms=3_000_000))
    scene.look(published=60)
    scene.committed.value = 100

    assert [scene.look(20, published=60) for _ in range(5)] == [None] * 5
    assert scene.marks.headroom_seconds is not None


@pytest.mark.parametrize(
    ("lag", "size", "limits", "left"),
    [
        (100, 1000, (None, None), None),
        (100, 1000, (5000, None), 400),
        (100, 1000, (5000, 250_000), 150),
        (100, 9000, (5000, None), 0),
        (0, 1000, (5000, None), 4),
        (100, 0, (5000, None), None),
    ],
)
def test_headroom_is_the_time_until_retention_reaches_what_waits(
    lag: float, size: int, limits: tuple[int | None, int | None], left: float | None
) -> None:
    found = headroom(lag_seconds=lag, lag_bytes=size, max_bytes=limits[0], max_age_ms=limits[1])
    assert found == left


@given(
    st.lists(st.tuples(st.integers(0, 400), st.integers(0, 400), st.booleans()), max_size=300),
)
def test_sightings_never_say_that_data_has_waited_for_less_than_it_has(
    steps: list[tuple[int, int, bool]],
) -> None:
    """Against every offset's own first sight."""
    seen, first, end = Sightings(), {}, 0
    published = 0
    for now, (grow, reach, cut_off) in enumerate(steps):
        before, end = end, max(published, end - grow) if cut_off else end + grow
        for offset in range(before, end):
            first[offset] = float(now)
        for offset in range(end, before):
            del first[offset]
        seen.see(end, float(now))
        published = min(end, max(published, reach))
        seen.reach(published)
        waits = [first[offset] for offset in range(published, end)]
        assert (seen.oldest_at is None) == (not waits)
        assert not waits or (seen.oldest_at is not None and seen.oldest_at <= min(waits))


def test_what_is_of_a_newer_epoch_waits_although_the_manifest_ends_above_it(path: Path) -> None:
    """After a loss of power the manifest may have what no member has; what came then it lacks."""
    scene = Scene(path, 100, Known(local=True, epoch=5))
    scene.look(published=105, epoch=3)
    assert scene.watch.oldest_at == scene.now
    scene.look(7, published=105, epoch=5)
    assert scene.watch.oldest_at is None, "a claim of that epoch has compared it"
