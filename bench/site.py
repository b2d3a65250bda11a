"""An embedded AWS of its own for a benchmark, with the app deployed, and streams for it."""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from coldstream import deployment
from coldstream.agent.broker.committed import AllCommitted
from coldstream.agent.run import Agent
from coldstream.agent.settings import AgentSettings
from coldstream.cli.connect import connect
from coldstream.remote.context import Context
from coldstream.usecases.claim_function import OwnRights
from coldstream_devkit.generator import Written, write_stream
from coldstream_devkit.local import environment

ROOT = Path(__file__).resolve().parents[1]
MESSAGES = 300_000
#: More than a GB, for what is read from end to end: its start, which `bench.seek` measures, is a
#: tenth of the time for a quarter of that.
LONG = 4 * MESSAGES
MESSAGE_SIZE = 1000


@contextmanager
def site() -> Iterator[Path]:
    """Start and deploy; the environment variables point every SDK there. Yields a work folder."""
    work = Path(tempfile.mkdtemp(prefix="coldstream-bench-"))
    state = work / "state"
    try:
        environment.up(ROOT, port=0, state_dir=state, progress=lambda text: print("  " + text))
        os.environ.update(environment.environment(ROOT, state_dir=state))
        yield work
    finally:
        environment.down(ROOT, state_dir=state)
        shutil.rmtree(work, ignore_errors=True)


def stream(data_dir: Path, name: str, *, messages: int = MESSAGES) -> Written:
    """A generated stream of 1 KB messages in chunks of 256 below `data_dir`."""
    return write_stream(
        data_dir / name, messages=messages, message_size=MESSAGE_SIZE, chunk_messages=256
    )


def tier(there: Context, data_dir: Path) -> None:
    """Upload everything below `data_dir`, as `coldstream agent run --once` does."""
    Agent(
        context=there,
        function=OwnRights(there, lambda attempt: None, lambda: time.time_ns() // 1_000_000),
        data_dir=data_dir,
        committed=AllCommitted(),
        settings=AgentSettings(once=True),
        requests=None,
        names={},
        pause=lambda attempt: time.sleep(0.02 * attempt),
    ).run()


def context(prefix: str | None = None) -> Context:
    """Bucket, table and ids from the environment; another prefix where no events are wanted."""
    return connect(
        bucket=os.environ[deployment.ENV_BUCKET],
        table=os.environ[deployment.ENV_TABLE],
        prefix=prefix or os.environ[deployment.ENV_PREFIX],
    ).context()
