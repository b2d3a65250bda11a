"""Uploads by the real agent against plain PUTs of the same files, over one link, in turns."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import obstore

from bench.agent_process import AgentProcess
from bench.cloud import BUCKET, There
from bench.durable import Seen
from bench.limits import Limits
from coldstream.adapters.s3 import open_store
from coldstream.agent.disk.log import StreamLog
from coldstream.agent.sending.slices import check_chunks
from coldstream.agent.settings import AgentSettings
from coldstream.names import FRAGMENT_SUFFIX
from coldstream.osiris.segment import SEGMENT_HEADER_SIZE, segment_name
from coldstream.plans.cut import cut
from coldstream_devkit.generator import write_stream

_OBJECT = AgentSettings().target_size
PARALLEL = AgentSettings().uploads


@dataclass(slots=True)
class Uploads:
    """What they have come to: one value a round; seconds, CPU seconds, bytes.

    Attributes:
        size: of the files of one round.
        agent: from the agent's first request for the claim to its last PUT.
        plain: of plain PUTs.
        agent_cpu: of the agent's process in that time.
        plain_cpu: of the process with the plain PUTs.
        check_cpu: to read and check the same files, which the agent does in its own.
        start_cpu: of the agent's process before that time.
        memory: the most that an agent had resident.
    """

    size: int = 0
    agent: list[float] = field(default_factory=list)
    plain: list[float] = field(default_factory=list)
    agent_cpu: list[float] = field(default_factory=list)
    plain_cpu: list[float] = field(default_factory=list)
    check_cpu: list[float] = field(default_factory=list)
    start_cpu: list[float] = field(default_factory=list)
    memory: int = 0

    def per_gigabyte(self, seconds: Sequence[float]) -> float:
        """The median of CPU seconds, for each 10^9 bytes."""
        return sorted(seconds)[len(seconds) // 2] / (self.size / 1e9)


def uploads(work: Path, there: There, rounds: int, messages: int, limits: Limits) -> Uploads:
    """Rounds of both, of which every other one begins with the plain PUTs.

    Args:
        work: directory for streams and logs.
        there: the stand-in of AWS.
        rounds: how many.
        messages: of one kilobyte in each.
        limits: of the agent.
    """
    found = Uploads()
    os.environ.update(there.environment)
    for number in range(rounds):
        data_dir, stream = work / f"round{number}", f"__round{number}_1700000000000000000"
        write_stream(data_dir / stream, messages=messages)
        files = sorted((data_dir / stream).glob("*.segment"))
        found.size = sum(path.stat().st_size for path in files)
        if number % 2:
            _plain(files, number, found)
        _agent(data_dir, stream, messages, there, limits, found)
        if not number % 2:
            _plain(files, number, found)
        found.check_cpu.append(_checking(data_dir / stream))
        shutil.rmtree(data_dir)
    return found


def _plain(files: Sequence[Path], number: int, found: Uploads) -> None:
    """PUT all files' bytes in objects of 64 MiB, as many at a time as the agent."""
    store = open_store(BUCKET)
    slices = [
        (path, start)
        for path in files
        for start in range(SEGMENT_HEADER_SIZE, path.stat().st_size, _OBJECT)
    ]

    def put(job: tuple[Path, int]) -> None:
        path, start = job
        with path.open("rb", buffering=0) as file:
            data = os.pread(file.fileno(), _OBJECT, start)
        key = f"plain/{number}/{path.name}-{start}"
        obstore.put(store, key, data, mode="create", use_multipart=False)

    began, used = time.monotonic(), time.process_time()
    with ThreadPoolExecutor(PARALLEL) as pool:
        list(pool.map(put, slices))
    found.plain.append(time.monotonic() - began)
    found.plain_cpu.append(time.process_time() - used)


def _agent(
    data_dir: Path, stream: str, end: int, there: There, limits: Limits, found: Uploads
) -> None:
    """One agent's life."""
    seen = Seen(there)
    arguments = ["--committed", "all", "--flush-seconds", "1"]
    log = data_dir.with_suffix(".log")
    with AgentProcess(data_dir, arguments, there.environment, limits, log) as agent:
        seen.wait_for({stream: end}, agent, 600)
        began = min(at for at, asked in seen.asked if asked == stream)
        ended = max(at for at, key, _ in seen.puts if key.endswith(FRAGMENT_SUFFIX))
        found.agent.append(ended - began)
        found.agent_cpu.append(agent.cpu_at(ended) - agent.cpu_at(began))
        found.start_cpu.append(agent.cpu_at(began))
        found.memory = max(found.memory, agent.peak)


def _checking(directory: Path) -> float:
    """CPU seconds to read a stream from the page cache and check every chunk's CRC."""
    log, buffer = StreamLog(directory), memoryview(bytearray(_OBJECT + 2**20))
    buffer[:] = bytes(len(buffer))  # the agent's buffers are used again and again
    used = time.process_time()
    for first in log.segments():
        view = log.view(first, since=first, closed=True)
        assert view is not None
        for piece in cut(view, target_size=_OBJECT, committed=2**63, epoch=2**31, flush=True):
            data = buffer[: piece.size]
            with log.files.open(log.directory, segment_name(first)) as file:
                file.read_into(piece.start, data)
            check_chunks(log, piece, data)
    return time.process_time() - used
