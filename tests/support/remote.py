"""A remote tier in memory whose every request is counted and can be made to fail."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote_plus

from coldstream.adapters.memory import MemoryCatalog, MemoryObjectStore
from coldstream.manifest.catalog import CatalogItem, QueueName
from coldstream.manifest.root import Root
from coldstream.osiris.chunk import iter_chunks
from coldstream.plans.claim import KnownHistory, LocalChunk
from coldstream.remote.context import Context
from coldstream.remote.roots import load
from coldstream.usecases.claim import anchor
from coldstream.usecases.commit_runs import commit_runs
from coldstream.usecases.holes import ChainGap, find_gap
from coldstream_devkit.claims import claim
from coldstream_devkit.fragments import SyntheticFragment, build_fragment

PREFIX = "rabbitmq/"
STREAM = "__orders_1745252105682952932"


def no_pause(attempt: int) -> None:
    del attempt


@dataclass
class Counting:
    """Forwards to `target`, counts calls by name, and runs `before[name]` or `after[name]` once."""

    target: Any
    calls: Counter[str] = field(default_factory=Counter)
    before: dict[str, Callable[..., Any]] = field(default_factory=dict)
    after: dict[str, Callable[..., Any]] = field(default_factory=dict)

    def __getattr__(self, name: str) -> Any:
        method = getattr(self.target, name)

        def call(*args: Any, **kwargs: Any) -> Any:
            self.calls[name] += 1
            if name in self.before:
                self.before.pop(name)(*args)
            answer = method(*args, **kwargs)
            if name in self.after:
                return self.after.pop(name)(answer)
            return answer

        return call


class Remote:
    """Bucket and catalog, and short ways to fill them."""

    def __init__(self, seed: int = 0) -> None:
        self.memory = MemoryObjectStore()
        self.items = MemoryCatalog()
        self.store = Counting(self.memory)
        self.catalog = Counting(self.items)
        self._ids = random.Random(seed)
        self.context = self.new_context()

    def new_context(self) -> Context:
        """What another process sees: the same remote tier, nothing cached, ids of its own."""
        ids = random.Random(self._ids.random())
        return Context(
            store=self.store,
            catalog=self.catalog,
            prefix=PREFIX,
            new_uid=lambda: ids.getrandbits(64),
        )

    def anchor(self, first_offset: int = 0, stream: str = STREAM) -> CatalogItem:
        return anchor(self.context, stream, first_offset, QueueName())

    def claim(
        self, epoch: int, *local: LocalChunk, stream: str = STREAM, **settings: Any
    ) -> CatalogItem:
        log = KnownHistory(tuple(local))
        done = claim(self.context, stream, epoch, log=log, pause=no_pause, **settings)
        return done.loaded.item

    def claimed(self, epoch: int = 1, first_offset: int = 0, stream: str = STREAM) -> Remote:
        """This tier with a stream that `epoch` has claimed, and counters at zero."""
        self.anchor(first_offset, stream)
        self.claim(epoch, stream=stream)
        return self.forget()

    def forget(self) -> Remote:
        """This tier with counters at zero."""
        self.store.calls.clear()
        self.catalog.calls.clear()
        return self

    def upload(self, *fragments: SyntheticFragment) -> list[str]:
        """Put fragments under their keys."""
        paths = [each.path(PREFIX) for each in fragments]
        for each, path in zip(fragments, paths, strict=True):
            self.memory.put(path, each.data, write_id=path)
        return paths

    def root(self, stream: str = STREAM) -> Root:
        return load(self.new_context(), stream).root

    def ranges(self, stream: str = STREAM) -> list[tuple[int, int, int]]:
        """(first, next, uid) of every entry."""
        return [(e.first_offset, e.next_offset, e.uid) for e in self.root(stream).entries]

    def tampered(self) -> dict[str, bytes]:
        """Everything in the bucket, to compare."""
        return dict(self.memory.objects)


def piece(
    first: int, next_offset: int, *, epoch: int = 1, uid: int = 0, **more: Any
) -> SyntheticFragment:
    """A fragment of `STREAM`."""
    more.setdefault("stream", STREAM)
    return build_fragment(
        first, next_offset, epoch=epoch, uid=uid or first * 7 + next_offset, **more
    )


def chain(count: int, *, size: int = 10, start: int = 0, **more: Any) -> list[SyntheticFragment]:
    """`count` fragments that join."""
    return [piece(start + n * size, start + (n + 1) * size, **more) for n in range(count)]


def gap(remote: Remote, local_first: int) -> ChainGap | None:
    """What follows the manifest is committed; the gap then between it and a log's beginning."""
    context = remote.new_context()
    return find_gap(
        context,
        STREAM,
        local_first=local_first,
        commit=lambda: commit_runs(context, STREAM, pause=no_pause, thorough=True),
        pause=no_pause,
    )[1]


def log_of(*fragments: SyntheticFragment) -> KnownHistory:
    """The log of a writer that has exactly the chunks of these fragments."""
    headers = [chunk.header for each in fragments for chunk in iter_chunks(each.chunks)]
    return KnownHistory(tuple(LocalChunk(h.chunk_id, h.next_offset, h.epoch) for h in headers))


def s3_event(*keys: str, bucket: str = "fragments") -> str:
    """The body of an SQS message as S3's notification sends it: keys are URL-encoded."""
    return json.dumps({"Records": [s3_record(key, bucket) for key in keys]})


def s3_record(key: str, bucket: str = "fragments") -> dict[str, Any]:
    """One record as AWS documents it for S3 event notifications, version 2.1."""
    return {
        "eventVersion": "2.1",
        "eventSource": "aws:s3",
        "awsRegion": "eu-central-1",
        "eventTime": "2026-01-01T00:00:00.000Z",
        "eventName": "ObjectCreated:Put",
        "userIdentity": {"principalId": "AWS:AIDAINPONIXQXHT3IKHL2"},
        "requestParameters": {"sourceIPAddress": "205.255.255.255"},
        "responseElements": {"x-amz-request-id": "D82B88E5F771F645", "x-amz-id-2": "vlR7PnpV2Ce="},
        "s3": {
            "s3SchemaVersion": "1.0",
            "configurationId": "fragments",
            "bucket": {
                "name": bucket,
                "ownerIdentity": {"principalId": "A3I5XTEXAMAI3E"},
                "arn": f"arn:aws:s3:::{bucket}",
            },
            "object": {
                "key": quote_plus(key, safe="/"),
                "size": 1024,
                "eTag": "b21b84d653bb07b05b1e6b33684dc11b",
                "sequencer": "0C0F6F405D6ED209E1",
            },
        },
    }


def messages(bodies: Iterable[str]) -> list[tuple[str, str]]:
    """(message id, body) pairs."""
    return [(f"m{number}", body) for number, body in enumerate(bodies)]
