"""A chunk that stays damaged: it is tried again and again, and costs nothing meanwhile."""

from __future__ import annotations

from pathlib import Path

from coldstream.agent.disk.files import DISK
from coldstream.agent.disk.held import Held
from coldstream.errors import CorruptDataError
from coldstream_devkit.generator import write_stream
from tests.unit.agent.conftest import Site

from .test_holes import Others, Steps, retire, tree, write

STREAM = "__orders_1745252105682952932"


def flip(path: Path, at: int) -> bytes:
    """Flip a bit; what the file was."""
    good = path.read_bytes()
    path.write_bytes(good[:at] + bytes([good[at] ^ 1]) + good[at + 1 :])
    return good


def pending(site: Site) -> list[str]:
    return sorted(key for key in site.store.objects if "/data/" in key)


def test_one_shot_runs_upload_nothing_again_behind_a_chunk_that_stays_damaged(site: Site) -> None:
    write_stream(site.data_dir / STREAM, messages=400, chunk_messages=10)
    good = flip(path := site.data_dir / STREAM / "00000000000000000000.segment", 150_000)
    first = site.run()[STREAM]
    before = pending(site)

    again = [site.run()[STREAM] for _ in range(3)]

    assert first.error is not None
    assert len(before) > 3
    assert pending(site) == before
    assert [each.fragments for each in again] == [0, 0, 0]
    assert {each.next_offset for each in again} == {first.next_offset}

    path.write_bytes(good)
    mended = site.run()[STREAM]
    assert mended.error is None
    assert site.remote_chunks(STREAM) == site.local_chunks(STREAM)


def test_what_waited_behind_a_damaged_chunk_is_taken_and_not_uploaded_again(site: Site) -> None:
    write_stream(site.data_dir / STREAM, messages=400, chunk_messages=10)
    good = flip(path := site.data_dir / STREAM / "00000000000000000000.segment", 20_000)
    site.run(target_size=10_000)
    end = site.catalog.items[STREAM].next_offset
    waiting = [key for key in pending(site) if int(key.rsplit("/", 1)[1].split("-")[0]) > end]
    path.write_bytes(good)

    site.run(target_size=10_000)

    begins = [key.rsplit("/", 1)[1].split("-")[0] for key in pending(site)]
    assert waiting
    assert len(begins) == len(set(begins)), "no range begins twice"
    assert site.remote_chunks(STREAM) == site.local_chunks(STREAM)


def test_a_damaged_local_file_is_told_with_what_to_do_about_a_local_file(site: Site) -> None:
    write_stream(site.data_dir / STREAM, messages=100, chunk_messages=10)
    flip(site.data_dir / STREAM / "00000000000000000000.segment", 50_000)

    error = site.run()[STREAM].error

    assert isinstance(error, CorruptDataError)
    assert error.offset is not None
    assert "replica" in str(error)
    assert "member" in str(error.remedy)
    assert "verify" not in str(error.remedy)


def test_a_damaged_object_of_the_bucket_is_no_damaged_local_file(site: Site) -> None:
    write_stream(site.data_dir / STREAM, messages=100, chunk_messages=10)
    site.run()
    root = site.catalog.items[STREAM].root_key
    site.store.objects[root] = b"rotten"

    error = site.run()[STREAM].error

    assert isinstance(error, CorruptDataError)
    assert error.key == root
    assert error.remedy is None


def test_what_lies_behind_a_damaged_chunk_is_not_uploaded_again_at_every_try(site: Site) -> None:
    write_stream(site.data_dir / STREAM, messages=400, chunk_messages=10)
    path = site.data_dir / STREAM / "00000000000000000000.segment"
    good = path.read_bytes()
    path.write_bytes(good[:150_000] + bytes([good[150_000] ^ 1]) + good[150_001:])
    agent = site.agent(once=False, rescan_seconds=0.05, flush_ms=0)
    looks, uploaded = 0, []

    def look(_: object) -> None:
        nonlocal looks
        looks += 1
        if looks in (100, 200):  # and each is a try
            uploaded.append(pending(site))
        if looks == 200:
            path.write_bytes(good)
        if looks == 1000 or site.remote_chunks(STREAM) == site.local_chunks(STREAM):
            agent.stop()

    agent.report = look
    agent.run()

    before, after = uploaded
    assert len(before) > 3
    assert after == before
    assert site.remote_chunks(STREAM) == site.local_chunks(STREAM)


def test_damage_that_only_the_agent_holds_is_told_with_how_the_stream_goes_on(site: Site) -> None:
    """Its file is gone: neither a person nor the broker can mend it, and no replica has it."""
    held = Held(DISK, budget=2**30, most=100)
    write(site, 100)
    steps = Steps(site, members=Others(50), held=held, flush_ms=0, takeover_seconds=1)
    flip(site.data_dir / STREAM / "00000000000000000030.segment", 100)
    for _ in range(3):  # it is held, and what is cut waits
        jobs = steps.step(most=0)
    retire(site, 50)

    for _ in range(6):
        jobs = steps.step()
        for job in jobs:
            try:
                steps.upload(job)
            except CorruptDataError as error:
                steps.follower.failed(job.piece, error, steps.now)
    error = steps.follower.progress.error

    assert isinstance(error, CorruptDataError)
    assert error.offset == 30
    assert "removed the file since" in str(error)
    assert "restart this agent" in error.remedy
    again = Steps(site, members=Others(50), flush_ms=0, takeover_seconds=1)
    again.go_on(6)
    assert again.follower.progress.error is None
    assert again.follower.progress.holes == [(30, 40)]
    assert tree(site)[-1][1] == 100
