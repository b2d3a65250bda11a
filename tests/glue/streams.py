"""A remote tier with a bit of everything, in any bucket and table."""

from __future__ import annotations

import secrets

from coldstream.manifest.catalog import QueueName
from coldstream.manifest.entries import Entry, EntryKind
from coldstream.names import DataKey, data_prefix, metadata_prefix
from coldstream.plans.claim import NO_HISTORY
from coldstream.plans.policy import PolicySet, Rule
from coldstream.ports import Policies
from coldstream.remote.context import Context
from coldstream.remote.publish import publish
from coldstream.remote.roots import load
from coldstream.usecases.claim import anchor
from coldstream.usecases.commit_runs import commit_runs
from coldstream.usecases.rebalance import rebalance
from coldstream_devkit.claims import claim
from coldstream_devkit.fragments import SyntheticFragment, build_fragment

DEEP, HOLED, EMPTY, STRAY = "__deep_1", "__holed_2", "__empty_3", "__stray_4"


def no_pause(attempt: int) -> None:
    del attempt


def fragment(stream: str, first: int, next_offset: int, **more: object) -> SyntheticFragment:
    return build_fragment(
        first,
        next_offset,
        stream=stream,
        uid=secrets.randbits(64),
        **more,  # type: ignore[arg-type]
    )


def upload(context: Context, *fragments: SyntheticFragment) -> None:
    for each in fragments:
        path = each.path(context.prefix)
        context.store.put(path, each.data, write_id=path)


def fill(context: Context, policies: Policies) -> None:
    """Three streams, and objects that no manifest refers to.

    __deep_1    40 fragments of ten messages; groups of four and kilo-groups above the older ones
    __holed_2   [0, 20), a hole [20, 25), [25, 40); one fragment that nobody refers to, one ahead
    __empty_3   nothing but its anchor
    __stray_4   two objects, no item
    """
    for stream, queue in ((DEEP, "deep"), (HOLED, "holed"), (EMPTY, "")):
        anchor(context, stream, 0, QueueName(cluster="rabbit", vhost="/", queue=queue))
        claim(context, stream, 1, log=NO_HISTORY, pause=no_pause)
    upload(context, *(fragment(DEEP, n * 10, n * 10 + 10) for n in range(40)))
    commit_runs(context, DEEP, pause=no_pause)
    while rebalance(context, DEEP, branching=4, pause=no_pause).landed:
        pass
    upload(context, fragment(HOLED, 0, 10), fragment(HOLED, 10, 20))
    commit_runs(context, HOLED, pause=no_pause)
    _lose(context, 20, 25)
    upload(context, fragment(HOLED, 25, 40))
    commit_runs(context, HOLED, pause=no_pause)
    upload(context, fragment(HOLED, 10, 20), fragment(HOLED, 50, 60), fragment(STRAY, 0, 10))
    for key in (
        f"{data_prefix(context.prefix, STRAY)}notes.txt",
        f"{metadata_prefix(context.prefix, HOLED)}x",
    ):
        context.store.put(key, b"?", write_id=key)
    rules = PolicySet((Rule("short", queue="deep", max_age_ms=3_600_000, hold=True),))
    assert policies.save(rules, 0)


def _lose(context: Context, first: int, next_offset: int) -> None:
    """Put a hole behind the manifest of `HOLED`, as no use case does yet."""
    loaded = load(context, HOLED)
    key = DataKey(HOLED, first, next_offset, 1, secrets.randbits(64), "hole")
    context.store.put(key.path(context.prefix), b"", write_id="hole")
    at = loaded.root.last_timestamp
    hole = Entry(first, next_offset, at, at, EntryKind.HOLE, 0, 0, 1, key.uid)
    last = loaded.root.last_chunk
    assert last is not None
    publish(context, loaded, loaded.root.appended([hole], last))
