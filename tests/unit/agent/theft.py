"""A thief of an agent's credentials, and the writer whom he troubles."""

from __future__ import annotations

import shutil
from typing import Any

from coldstream.agent.stream.commits import Commits
from coldstream.manifest.catalog import QueueName
from coldstream.plans.claim import KnownHistory, LocalChunk
from coldstream.reader.verify import verify_stream
from coldstream.remote.roots import load
from coldstream.usecases.claim_function import OwnRights
from coldstream.usecases.commit_runs import commit_runs
from coldstream.usecases.undo import Undone, plan_undo, undo
from coldstream_devkit.fragments import build_fragment
from coldstream_devkit.generator import write_stream

from .conftest import Site, no_pause

STREAM = "__orders_1"


class Thief:
    """Whoever has the rights of an agent: to PUT fragments, and to ask the function."""

    def __init__(self, site: Site) -> None:
        self.site = site
        self.uid = 2**63

    def claim(self, epoch: int, *chunks: tuple[int, int, int]) -> None:
        """Claim with a made-up log of these chunks."""
        context = self.site.context()
        log = KnownHistory(tuple(LocalChunk(*each) for each in chunks))
        function = OwnRights(context, no_pause, lambda: 1_790_000_000_000)
        Commits(context, function, STREAM, no_pause).claim(
            epoch,
            0,
            QueueName(),
            log,
            lambda begin, end: None,
            shift=load(context, STREAM).root.shift,
        )

    def forge(self, first: int, end: int, *, epoch: int, floor: int) -> None:
        """Upload a made-up fragment, and have it committed if anybody takes it."""
        self.uid += 1
        made = build_fragment(
            first, end, stream=STREAM, epoch=epoch, floor=floor, uid=self.uid,
            records_per_chunk=7, body=lambda n: b"forged %d" % n,
        )  # fmt: skip
        self.site.store.put(made.path("rabbitmq/"), made.data, write_id=str(self.uid))
        commit_runs(self.site.context(), STREAM, pause=no_pause, thorough=True)


def write(site: Site, messages: int, epoch: int = 1, **more: Any) -> None:
    """The broker's log; a longer one begins with what a shorter one has."""
    shutil.rmtree(site.data_dir / STREAM, ignore_errors=True)
    epochs = more.pop("epochs", ((epoch, 0),))
    write_stream(
        site.data_dir / STREAM, messages=messages, chunk_messages=10, epochs=epochs, **more
    )


def undone(site: Site, **named: Any) -> Undone:
    context = site.context()
    plan = plan_undo(context, STREAM, **named)
    return undo(context, site.store, plan, pause=no_pause, now_ms=1)


def remote_is_local(site: Site) -> bool:
    """All that the broker has is remote, byte for byte, and the tier is sound."""
    sound = verify_stream(site.store, site.catalog, "rabbitmq/", STREAM, deep=True).sound
    return sound and site.remote_chunks(STREAM) == site.local_chunks(STREAM)


def error_of(site: Site) -> Any:
    return site.run()[STREAM].error


def interrupt(*given: object, **named: object) -> None:
    raise KeyboardInterrupt


def twin(first: int, end: int, *, body: bytes) -> Any:
    """A fragment with the very chunks of the broker's log: ids, epochs, times; other bodies."""
    return build_fragment(
        first, end, stream=STREAM, epoch=1, floor=0, uid=2**63 + first,
        timestamps=[1_790_000_000_000 + first // 10 * 100],
        body=lambda n: body,
    )  # fmt: skip
