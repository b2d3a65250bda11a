"""The agent as a whole, on real files and a remote tier in memory."""

from __future__ import annotations

import contextlib
import json
import shutil
import threading
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from coldstream.agent.broker.committed import CommittedFile
from coldstream.agent.disk.held import Held
from coldstream.agent.disk.history import CommittedHistory
from coldstream.agent.disk.log import StreamLog
from coldstream.agent.host import ThisMachine
from coldstream.agent.telling.progress import Progress
from coldstream.errors import (
    CorruptDataError,
    FencedError,
    InvalidInputError,
    LostRangeError,
    UnavailableError,
)
from coldstream.fragment import TRAILER_SIZE, parse_trailer
from coldstream.manifest.ledger import Ledger
from coldstream.plans.heartbeats import Heartbeat
from coldstream.plans.stream_words import WordsPage, unpack
from coldstream_devkit.generator import append_chunks, build_chunk, write_stream

from .conftest import Site

STREAM = "__orders_1745252105682952932"
FIXTURES = [
    "plain-3.10.8",
    "subgzip-3.10.8",
    "subgzip-4.3.6",
    "codecs-4.3.6",
    "dedup-3.10.8",
    "dedup-4.3.6",
    "filter-4.3.6",
    "epochs-4.3.6",
    "retention-3.10.8",
]


@pytest.mark.parametrize("fixture", FIXTURES)
def test_what_is_remote_is_the_segment_data_byte_for_byte(
    site: Site, data: Callable[[str], Path], fixture: str
) -> None:
    shutil.copytree(data(fixture), site.data_dir / STREAM)

    progress = site.run()[STREAM]

    assert progress.error is None
    assert site.remote_chunks(STREAM) == site.local_chunks(STREAM)


def test_a_fragment_never_crosses_a_segment_and_is_cut_at_the_target_size(site: Site) -> None:
    write_stream(
        site.data_dir / STREAM, messages=400, message_size=500, chunk_messages=8,
        segment_bytes=50_000,
    )  # fmt: skip

    site.run(target_size=20_000)

    trailers = [
        parse_trailer(body[-TRAILER_SIZE:])
        for key, body in sorted(site.store.objects.items())
        if key.endswith(".fragment")
    ]
    assert all(t.data_size <= 20_000 for t in trailers)
    assert {t.segment_offset for t in trailers} == {
        int(path.stem) for path in (site.data_dir / STREAM).glob("*.segment")
    }
    full = [t for t in trailers if t.sequence == 0]
    assert all(t.data_size > 15_000 for t in full)
    assert {t.segment_position for t in full} == {8}


def test_uncommitted_data_is_never_uploaded(
    site: Site, data: Callable[[str], Path], tmp_path: Path
) -> None:
    shutil.copytree(data("epochs-stale-4.3.6"), site.data_dir / STREAM)
    offsets = tmp_path / "offsets.json"
    offsets.write_text(json.dumps({STREAM: 707}))

    progress = site.run(committed=CommittedFile(offsets))[STREAM]

    assert progress.next_offset == 708
    assert site.local_chunks(STREAM).startswith(site.remote_chunks(STREAM))
    assert all(
        int(key.split("-")[1].split(".")[0]) <= 708
        for key in site.store.objects
        if key.endswith(".fragment")
    )


def test_a_chunk_that_is_only_half_committed_waits(site: Site, tmp_path: Path) -> None:
    write_stream(site.data_dir / STREAM, messages=30, chunk_messages=10)
    offsets = tmp_path / "offsets.json"
    offsets.write_text(json.dumps({STREAM: 18}))

    assert site.run(committed=CommittedFile(offsets))[STREAM].next_offset == 10


def test_the_very_first_offset_can_be_all_that_is_committed(site: Site, tmp_path: Path) -> None:
    write_stream(site.data_dir / STREAM, messages=3, chunk_messages=1)
    offsets = tmp_path / "offsets.json"
    offsets.write_text(json.dumps({STREAM: 0}))

    assert site.run(committed=CommittedFile(offsets))[STREAM].next_offset == 1


def test_a_stream_that_the_offsets_do_not_name_is_left_alone(site: Site, tmp_path: Path) -> None:
    write_stream(site.data_dir / STREAM, messages=30)
    offsets = tmp_path / "offsets.json"
    offsets.write_text("{}")

    site.run(committed=CommittedFile(offsets))

    assert not site.store.objects
    assert not site.catalog.items


def test_a_second_run_uploads_nothing(site: Site) -> None:
    write_stream(site.data_dir / STREAM, messages=300)
    site.run()
    before = dict(site.store.objects)

    progress = site.run()[STREAM]

    assert progress.fragments == 0
    assert site.store.objects == before


def test_data_that_came_since_is_appended_under_the_same_claim(site: Site) -> None:
    written = write_stream(site.data_dir / STREAM, messages=300, chunk_messages=50)
    site.run()
    append_chunks(
        site.data_dir / STREAM,
        [build_chunk(written.next_offset, 1, written.next_timestamp, [b"a", b"bc"])],
    )

    progress = site.run()[STREAM]

    assert (progress.next_offset, progress.fragments) == (302, 1)
    assert site.remote_chunks(STREAM) == site.local_chunks(STREAM)


def test_a_chunk_of_a_higher_epoch_leads_to_a_claim_whose_floor_is_above_all_before(
    site: Site,
) -> None:
    written = write_stream(site.data_dir / STREAM, messages=300, chunk_messages=50)
    site.run()
    chunk = build_chunk(written.next_offset, 4, written.next_timestamp, [b"new"])
    append_chunks(site.data_dir / STREAM, [chunk], roll=True)

    site.run()

    claims = site.catalog.items[STREAM].ledger.claims
    assert [(c.epoch, c.floor) for c in claims] == [(1, 0), (4, 300)]
    assert site.remote_chunks(STREAM) == site.local_chunks(STREAM)


def test_an_agent_that_follows_claims_again_when_the_epoch_rises_under_it(site: Site) -> None:
    written = write_stream(site.data_dir / STREAM, messages=100, chunk_messages=50)
    agent = site.agent(once=False, flush_ms=0, host=ThisMachine())
    thread = threading.Thread(target=agent.run)
    thread.start()
    try:
        _wait(lambda: _next_offset(site) == 100)
        append_chunks(
            site.data_dir / STREAM,
            [
                build_chunk(written.next_offset, 1, written.next_timestamp, [b"old"]),
                build_chunk(written.next_offset + 1, 3, written.next_timestamp + 1, [b"new"]),
            ],
        )
        _wait(lambda: _next_offset(site) == 102)
    finally:
        agent.stop()
        thread.join()

    assert [c.epoch for c in site.catalog.items[STREAM].ledger.claims] == [1, 3]
    assert site.remote_chunks(STREAM) == site.local_chunks(STREAM)


def test_a_chunk_waits_for_its_fragment_to_fill_until_the_flush_time(site: Site) -> None:
    write_stream(
        site.data_dir / STREAM, messages=10, chunk_messages=10, start_timestamp=4_000_000_000_000
    )
    agent = site.agent(once=False, flush_ms=3_600_000, host=ThisMachine())
    thread = threading.Thread(target=agent.run)
    thread.start()
    try:
        _wait(lambda: STREAM in site.catalog.items and site.catalog.items[STREAM].epoch == 1)
        _wait(lambda: bool(agent.progress()))
        assert not [key for key in site.store.objects if key.endswith(".fragment")]
    finally:
        agent.stop()
        thread.join()


def test_events_that_never_come_are_replaced_by_a_request(site: Site) -> None:
    write_stream(site.data_dir / STREAM, messages=100)

    site.run()

    assert site.asked == [STREAM]


def test_two_agents_on_one_directory_end_in_one_manifest(site: Site) -> None:
    for number in range(3):
        write_stream(site.data_dir / f"__s{number}_1", messages=500, chunk_messages=10, seed=number)
    agents = [site.agent(target_size=size, host=ThisMachine()) for size in (15_000, 21_000)]
    threads = [threading.Thread(target=agent.run) for agent in agents]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)

    for agent in agents:
        assert all(each.error is None for each in agent.progress())
    for number in range(3):
        assert site.remote_chunks(f"__s{number}_1") == site.local_chunks(f"__s{number}_1")


class Dies(BaseException):
    """kill -9, as seen from inside."""


class DyingStore:
    """Passes calls on until the n-th PUT, before or after which the process dies."""

    def __init__(self, store: Any, puts: int, *, after: bool) -> None:
        self._store, self._puts, self._after = store, puts, after

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def put(self, key: str, body: Any, *, write_id: str, crc: int | None = None) -> None:
        self._puts -= 1
        if self._puts < 0 or (self._puts == 0 and not self._after):
            raise Dies
        self._store.put(key, body, write_id=write_id, crc=crc)
        if self._puts == 0:
            raise Dies


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("puts", range(1, 9))
@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_an_agent_that_dies_at_any_put_loses_nothing(site: Site, puts: int, after: bool) -> None:
    write_stream(site.data_dir / STREAM, messages=120, chunk_messages=10)
    doomed = site.agent(store=DyingStore(site.store, puts, after=after))
    with contextlib.suppress(Dies):
        doomed.run()

    progress = site.run()[STREAM]

    assert progress.error is None
    assert site.remote_chunks(STREAM) == site.local_chunks(STREAM)


def test_a_flipped_bit_stops_the_stream_at_its_chunk_and_only_there(site: Site) -> None:
    write_stream(site.data_dir / STREAM, messages=100, chunk_messages=10)
    write_stream(site.data_dir / "__other_1", messages=100, chunk_messages=10)
    path = site.data_dir / STREAM / "00000000000000000000.segment"
    body = bytearray(path.read_bytes())
    body[len(body) * 11 // 20] ^= 4
    path.write_bytes(body)

    result = site.run()

    error = result[STREAM].error
    assert isinstance(error, CorruptDataError)
    assert (error.stream, error.offset, error.key) == (STREAM, 50, str(path))
    assert result[STREAM].next_offset == 50
    assert result["__other_1"].error is None
    assert result["__other_1"].next_offset == 100


def test_a_segment_that_was_mended_is_taken_up_again(site: Site) -> None:
    write_stream(site.data_dir / STREAM, messages=100, chunk_messages=10)
    path = site.data_dir / STREAM / "00000000000000000000.segment"
    good = path.read_bytes()
    path.write_bytes(good[:50_000] + bytes([good[50_000] ^ 1]) + good[50_001:])
    assert site.run()[STREAM].error is not None
    path.write_bytes(good)

    assert site.run()[STREAM].error is None
    assert site.remote_chunks(STREAM) == site.local_chunks(STREAM)


def test_an_index_that_points_past_its_segment_is_told_with_file_and_offset(site: Site) -> None:
    write_stream(site.data_dir / STREAM, messages=100, chunk_messages=10)
    path = site.data_dir / STREAM / "00000000000000000000.segment"
    path.write_bytes(path.read_bytes()[:-700])

    error = site.run()[STREAM].error

    assert isinstance(error, CorruptDataError)
    assert (error.stream, error.offset, error.key) == (STREAM, 90, str(path))


@pytest.mark.parametrize("lost", ["all", "last"])
def test_a_segment_without_its_index_is_an_error_and_not_an_empty_stream(
    site: Site, lost: str
) -> None:
    write_stream(site.data_dir / STREAM, messages=300, chunk_messages=10, segment_bytes=100_000)
    indexes = sorted((site.data_dir / STREAM).glob("*.index"))
    assert len(indexes) > 1
    for path in indexes if lost == "all" else indexes[-1:]:
        path.unlink()

    error = site.run()[STREAM].error

    assert isinstance(error, CorruptDataError)
    assert str(error.key).endswith(".segment")


def test_a_stray_file_or_directory_is_no_stream(site: Site) -> None:
    (site.data_dir / "not a stream.txt").write_text("hello")
    (site.data_dir / "lost+found").mkdir()
    write_stream(site.data_dir / STREAM, messages=10)
    (site.data_dir / STREAM / "notes.segment").write_text("hello")

    agent = site.agent()

    assert [each.stream for each in agent.run()] == [STREAM]
    assert agent.skipped == {"lost+found"}


def test_local_retention_that_beat_the_upload_is_an_error_and_not_a_silent_gap(site: Site) -> None:
    write_stream(site.data_dir / STREAM, messages=100, chunk_messages=10)
    site.run()
    shutil.rmtree(site.data_dir / STREAM)
    write_stream(site.data_dir / STREAM, messages=50, chunk_messages=10, start_offset=150)

    progress = site.run()[STREAM]

    assert isinstance(progress.error, LostRangeError)
    assert "100" in str(progress.error)
    assert site.catalog.items[STREAM].next_offset == 100


def test_a_log_of_another_history_truncates_loudly_and_goes_on(site: Site) -> None:
    write_stream(site.data_dir / STREAM, messages=100, chunk_messages=10)
    site.run()
    before = dict(site.store.objects)
    shutil.rmtree(site.data_dir / STREAM)
    write_stream(site.data_dir / STREAM, messages=100, chunk_messages=10, epochs=((1, 0), (2, 60)))

    progress = site.run()[STREAM]

    assert progress.error is None
    assert any("truncated the stream to 60" in notice for notice in progress.notices)
    assert site.remote_chunks(STREAM) == site.local_chunks(STREAM)
    assert site.catalog.items[STREAM].ledger == Ledger.of([(1, 0), (2, 60)])
    assert before.items() <= site.store.objects.items(), "nothing is deleted"


def test_a_log_that_shares_nothing_begins_the_stream_anew_and_goes_on(site: Site) -> None:
    write_stream(site.data_dir / STREAM, messages=100, chunk_messages=10)
    site.run()
    shutil.rmtree(site.data_dir / STREAM)
    write_stream(site.data_dir / STREAM, messages=60, chunk_messages=10, epochs=((2, 0),))

    progress = site.run()[STREAM]

    assert progress.error is None
    assert any("begins anew at 0" in notice for notice in progress.notices)
    assert site.remote_chunks(STREAM) == site.local_chunks(STREAM)
    assert site.catalog.items[STREAM].next_offset == 60


def test_chunks_between_two_offsets_are_those_that_overlap_and_are_committed(site: Site) -> None:
    write_stream(site.data_dir / STREAM, messages=100, chunk_messages=10)
    log = StreamLog(site.data_dir / STREAM)

    def found(first: int, next_offset: int, committed: int = 100) -> list[int]:
        chunks = log.chunks_between(first, next_offset, committed=committed)
        return [each.chunk_id for each in chunks]

    assert found(0, 2**64 - 1) == list(range(0, 100, 10))
    assert found(19, 21) == [10, 20]
    assert found(20, 30) == [20]
    assert found(85, 200) == [80, 90]
    assert found(85, 200, committed=99) == [80]
    assert found(100, 200) == []
    assert CommittedHistory(log, 100, epoch=1).first_offset() == 0


@pytest.mark.parametrize("fixture", ["epochs-4.3.6", "retention-3.10.8"])
def test_a_history_of_many_segments_is_one_list_of_chunks(
    site: Site, data: Any, fixture: str
) -> None:
    shutil.copytree(data(fixture), site.data_dir / STREAM)
    log = StreamLog(site.data_dir / STREAM)

    chunks = log.chunks_between(0, 2**64 - 1, committed=2**64 - 1)

    assert all(one.next_offset == other.chunk_id for one, other in pairwise(chunks))
    assert CommittedHistory(log, 2**64 - 1, chunks[-1].epoch).first_offset() == chunks[0].chunk_id
    for one, other in pairwise(chunks):
        assert log.chunks_between(other.chunk_id - 1, other.chunk_id + 1, committed=2**64 - 1) == [
            one,
            other,
        ]


def test_a_deposed_writer_is_fenced(site: Site) -> None:
    write_stream(site.data_dir / STREAM, messages=100, chunk_messages=10, epochs=((2, 0),))
    site.run()
    shutil.rmtree(site.data_dir / STREAM)
    write_stream(site.data_dir / STREAM, messages=200, chunk_messages=10, epochs=((1, 0),))

    progress = site.run()[STREAM]

    assert isinstance(progress.error, FencedError)
    assert site.catalog.items[STREAM].next_offset == 100


def test_a_log_that_is_merely_shorter_is_no_evidence(site: Site) -> None:
    written = write_stream(site.data_dir / STREAM, messages=100, chunk_messages=10)
    site.run()
    shutil.rmtree(site.data_dir / STREAM)
    write_stream(site.data_dir / STREAM, messages=60, chunk_messages=10)

    progress = site.run()[STREAM]

    assert progress.error is None
    assert site.catalog.items[STREAM].next_offset == written.next_offset


class FailingStore:
    """Gives no answer to the first PUTs of fragments, as a network that comes and goes."""

    def __init__(self, store: Any, failures: int) -> None:
        self._store, self._failures = store, failures

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def put(self, key: str, body: Any, *, write_id: str, crc: int | None = None) -> None:
        if key.endswith(".fragment") and self._failures > 0:
            self._failures -= 1
            raise UnavailableError("no answer", key=key)
        self._store.put(key, body, write_id=write_id, crc=crc)


def test_a_store_that_does_not_answer_at_first_delays_and_loses_nothing(site: Site) -> None:
    write_stream(site.data_dir / STREAM, messages=100, chunk_messages=10)

    progress = site.run(store=FailingStore(site.store, 3))[STREAM]

    assert progress.error is None
    assert site.remote_chunks(STREAM) == site.local_chunks(STREAM)


def test_a_store_that_never_answers_ends_one_shot_runs_with_an_error(site: Site) -> None:
    write_stream(site.data_dir / STREAM, messages=10)

    progress = site.run(store=FailingStore(site.store, 10**9))[STREAM]

    assert isinstance(progress.error, UnavailableError)


def test_a_one_shot_run_that_is_stopped_early_does_not_claim_to_be_done(site: Site) -> None:
    write_stream(site.data_dir / STREAM, messages=100, chunk_messages=10)
    agent = site.agent(store=FailingStore(site.store, 10**9))
    agent.report = lambda progress: agent.stop()

    agent.run()

    assert agent.interrupted


def test_a_one_shot_run_that_ends_by_itself_was_not_interrupted(site: Site) -> None:
    write_stream(site.data_dir / STREAM, messages=100, chunk_messages=10)
    agent = site.agent()

    agent.run()

    assert not agent.interrupted


def test_settings_out_of_range_are_refused(site: Site) -> None:
    with pytest.raises(InvalidInputError, match="memory budget"):
        site.agent(memory_budget=2**20, target_size=2**21)


@pytest.mark.parametrize("content", ["[]", "{", '{"a/b": 1}', '{"a": -2}', '{"a": true}'])
def test_a_bad_file_of_offsets_is_refused_with_its_name(tmp_path: Path, content: str) -> None:
    path = tmp_path / "offsets.json"
    path.write_text(content)

    with pytest.raises(InvalidInputError):
        CommittedFile(path)


def _next_offset(site: Site) -> int:
    item = site.catalog.get(STREAM)
    return item.next_offset if item else -1


def _wait(condition: Callable[[], bool]) -> None:
    import time

    deadline = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.01)


class Beats(list[Heartbeat]):
    """Heartbeats as they came; the second one is refused. And the pages of words, as they came."""

    def __init__(self) -> None:
        super().__init__()
        self.pages: list[WordsPage] = []

    def tell(self, page: WordsPage) -> None:
        self.pages.append(page)

    def beat(self, heartbeat: Heartbeat) -> Heartbeat | None:
        self.append(heartbeat)
        if len(self) == 2:
            raise UnavailableError("DynamoDB did not answer")
        return self[-2] if len(self) > 1 else None


def test_an_agent_says_every_minute_that_it_lives_whatever_becomes_of_its_words(
    site: Site,
) -> None:
    write_stream(site.data_dir / STREAM, messages=40, chunk_messages=10)
    agent = site.agent(once=False, flush_ms=0, node="rabbit@a", poll_seconds=1)
    agent.heartbeats = beats = Beats()
    warned: dict[int, list[str]] = {}

    def report(_: object) -> None:
        warned[len(beats)] = list(agent.warnings)
        if len(beats) == 4:
            agent.stop()

    agent.report = report

    agent.run()

    gaps = [later.at_ms - each.at_ms for each, later in pairwise(beats)]
    assert all(60_000 <= gap < 63_000 for gap in gaps)
    assert {(each.node, each.streams, each.interval_ms) for each in beats} == {
        ("rabbit@a", 1, 60_000)
    }
    assert warned == {0: [], 1: [], 2: ["no heartbeat: DynamoDB did not answer"], 3: [], 4: []}
    assert site.remote_chunks(STREAM) == site.local_chunks(STREAM)
    assert [each.pages for each in beats] == [1] * 4
    assert len({each.instance for each in beats}) == 1
    assert len(beats[0].instance) == 16
    assert len(beats.pages) == 2, "told when it has changed, and not again"
    (word,) = unpack(beats.pages[-1].data)
    assert (word.stream, word.offsets, word.lag_ms) == (STREAM, (40,) * 5, 0)


def test_a_table_that_hangs_when_it_is_told_keeps_no_stream_waiting(site: Site) -> None:
    """Each word may wait for two minutes, and so did all uploads."""
    write_stream(site.data_dir / STREAM, messages=40, chunk_messages=10)
    published, told = threading.Event(), threading.Event()

    class Hangs(Beats):
        def beat(self, heartbeat: Heartbeat) -> Heartbeat | None:
            told.set()
            assert published.wait(60)
            return super().beat(heartbeat)

    agent = site.agent(once=False, flush_ms=0, node="rabbit@a", host=ThisMachine())
    agent.heartbeats = beats = Hangs()

    def report(rows: list[Progress]) -> None:
        if told.is_set() and any(row.next_offset == 40 for row in rows):
            published.set()
            agent.stop()

    agent.report = report

    agent.run()

    assert len(beats) == 1


def test_an_agent_that_runs_once_says_nothing_of_itself(site: Site) -> None:
    write_stream(site.data_dir / STREAM, messages=40, chunk_messages=10)
    agent = site.agent()
    agent.heartbeats = beats = Beats()

    agent.run()

    assert beats == []


def test_a_file_of_offsets_that_is_written_just_now_does_not_end_the_agent(
    site: Site, tmp_path: Path
) -> None:
    """The loop asks for what is committed of a stream whose look waits for a store."""
    path = tmp_path / "offsets.json"
    path.write_text(json.dumps({STREAM: "all"}))
    write_stream(site.data_dir / STREAM, messages=20, chunk_messages=10)
    agent = site.agent(committed=CommittedFile(path), once=False)
    agent._pass()
    assert agent._turns.take(agent.host.monotonic(), 5), "its look goes on"
    path.write_text("{")
    write_stream(site.data_dir / STREAM, messages=10, chunk_messages=10, start_offset=20)

    agent._pass_at = float("-inf")
    agent._pass()

    assert agent.held.unlinked_bytes == 0


def test_of_a_stream_that_is_deleted_while_its_look_hangs_no_other_takes_the_files(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_stream(site.data_dir / STREAM, messages=20, chunk_messages=10)
    agent = site.agent(once=False)
    agent._pass()
    assert agent._turns.take(agent.host.monotonic(), 5), "its look goes on"
    gone: list[Path] = []
    monkeypatch.setattr(Held, "gone", lambda self, directory: gone.append(directory))

    shutil.rmtree(site.data_dir / STREAM)
    agent._discover(agent.host.monotonic())

    assert gone == [site.data_dir / STREAM]
    assert agent._followers[STREAM].progress.gone is None, "another thread has its follower"
