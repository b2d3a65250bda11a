"""Agent upload of a 300 MB stream against plain parallel PUTs of the same bytes by obstore.

Both sides read the same files from the page cache and send 64 MiB objects to the same server, three
at a time, in turn, several rounds. The plain side checks nothing; ours checks every chunk's CRC,
builds index and trailer, claims, and is counted from its first look at the directory until its last
PUT is answered. Neither side's keys lead to events, because the handlers would run on the same two
cores, which they do not on AWS. obstore was the fastest client that could be had (of
boto3, the CRT, obstore).

Memory is that of `coldstream agent run --once` in a process of its own, with events and handlers.
"""

from __future__ import annotations

import os
import re
import statistics
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import obstore

from bench.report import megabytes_per_second, quick, ratio
from bench.site import MESSAGES, context, site, stream
from coldstream import deployment, names
from coldstream.adapters.s3 import open_store
from coldstream.agent.broker.committed import AllCommitted
from coldstream.agent.run import Agent
from coldstream.agent.settings import AgentSettings
from coldstream.fragment import Buffer
from coldstream.osiris.segment import SEGMENT_HEADER_SIZE
from coldstream.ports import ObjectStore
from coldstream.remote.context import Context
from coldstream.usecases.claim_function import OwnRights
from coldstream.usecases.commit_runs import commit_runs

ROUNDS = 7
OBJECT = 64 * 2**20
PARALLEL = AgentSettings().uploads


def plain(files: list[Path], round_number: int) -> float:
    """Seconds to PUT all files' bytes in objects of 64 MiB."""
    store = open_store(os.environ[deployment.ENV_BUCKET])
    slices = [
        (path, start)
        for path in files
        for start in range(SEGMENT_HEADER_SIZE, path.stat().st_size, OBJECT)
    ]

    def put(job: tuple[Path, int]) -> None:
        path, start = job
        with path.open("rb", buffering=0) as file:
            data = os.pread(file.fileno(), OBJECT, start)
        key = f"bench/plain/{round_number}/{path.name}-{start}"
        obstore.put(store, key, data, mode="create", use_multipart=False)

    began = time.perf_counter()
    with ThreadPoolExecutor(PARALLEL) as pool:
        list(pool.map(put, slices))
    return time.perf_counter() - began


class TimedStore:
    """Passes everything on, and remembers when the last fragment's PUT was answered."""

    def __init__(self, store: ObjectStore) -> None:
        self._store = store
        self.last_put = 0.0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def put(self, key: str, body: Buffer, *, write_id: str, crc: int | None = None) -> None:
        self._store.put(key, body, write_id=write_id, crc=crc)
        if key.endswith(names.FRAGMENT_SUFFIX):
            self.last_put = time.perf_counter()


class OwnCommits:
    """Commits in this process when asked: the benchmark's prefix sends no events."""

    def __init__(self, there: Context) -> None:
        self._there = there

    def ask(self, stream: str) -> None:
        commit_runs(self._there, stream, pause=lambda attempt: None)


def ours(data_dir: Path) -> float:
    """Seconds until the last PUT was answered."""
    real = context(prefix="bench/")
    store = TimedStore(real.store)
    agent = Agent(
        context=replace(real, store=store),
        function=OwnRights(real, lambda attempt: None, lambda: time.time_ns() // 1_000_000),
        data_dir=data_dir,
        committed=AllCommitted(),
        settings=AgentSettings(once=True, nudge_seconds=0.05),
        requests=OwnCommits(real),
        names={},
        pause=lambda attempt: None,
    )
    began = time.perf_counter()
    (progress,) = agent.run()
    if progress.error is not None:
        raise progress.error
    return store.last_put - began


def peak_memory(data_dir: Path, work: Path) -> int:
    """Peak resident bytes of `coldstream agent run --once` in a process of its own."""
    command = Path(sys.executable).with_name("coldstream")
    process = subprocess.Popen(
        [command, "agent", "run", "--data-dir", data_dir, "--committed", "all", "--once"], cwd=work
    )
    peak = 0
    status = Path(f"/proc/{process.pid}/status")
    while process.poll() is None:
        # VmHWM only rises; ru_maxrss would begin with the memory of this benchmark itself.
        found = re.search(r"VmHWM:\s+(\d+) kB", status.read_text())
        peak = int(found[1]) * 1024 if found else peak
        time.sleep(0.01)
    if process.returncode:
        raise SystemExit("the agent failed")
    return peak


def main() -> None:
    share, rounds = (20, 1) if quick(__doc__) else (1, ROUNDS)
    with site() as work:
        upload_s, plain_s = [], []
        size = 0
        for number in range(rounds):
            data_dir = work / f"round{number}"
            stream(data_dir, f"__bench_{number}", messages=MESSAGES // share)
            files = sorted((data_dir / f"__bench_{number}").glob("*.segment"))
            size = sum(path.stat().st_size for path in files)
            if number % 2:
                plain_s.append(plain(files, number))
            upload_s.append(ours(data_dir))
            if not number % 2:
                plain_s.append(plain(files, number))
        stream(work / "idle", "__idle_1", messages=1)
        idle = peak_memory(work / "idle", work)
        peaks = {}
        for messages in (each // share for each in (150_000, 300_000, 900_000)):
            data_dir = work / f"memory{messages}"
            stream(data_dir, f"__memory_{messages}", messages=messages)
            peaks[messages] = peak_memory(data_dir, work)
    print(f"{size / 1e6:.0f} MB, {PARALLEL} at a time, {rounds} rounds in turn, median (range)")
    print(f"  plain obstore PUT          {megabytes_per_second(size, plain_s)}")
    print(f"  agent, until the last PUT  {megabytes_per_second(size, upload_s)}")
    budget = AgentSettings().memory_budget
    print(f"peak resident memory; budget of buffers {budget / 1e6:.0f} MB")
    print(f"  stream of one message      {idle / 1e6:7.0f} MB")
    for messages, peak in peaks.items():
        print(f"  stream of {messages / 1000:4.0f} MB          {peak / 1e6:7.0f} MB")
    ratio("upload", statistics.median(plain_s) / statistics.median(upload_s), ">= 0.8")
    ratio("upload-memory", max(peaks.values()) / (idle + budget), "<= 1.0")


if __name__ == "__main__":
    main()
