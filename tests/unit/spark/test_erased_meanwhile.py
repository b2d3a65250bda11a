"""An erasure while a query is under way: it changes how long compressed chunks are, and no id."""

from __future__ import annotations

import random
import zlib
from collections.abc import Sequence

import pytest

from coldstream.adapters.memory import MemoryPolicies
from coldstream.adapters.place import Place, Remote
from coldstream.osiris.amqp import encode_data
from coldstream.osiris.chunk import ChunkHeader, ChunkType
from coldstream.osiris.entry import Codec, encode_sub_batch
from coldstream.spark.options import parse_options
from coldstream.spark.plan import decode_split
from coldstream.spark.query import TaskWork, plan_query
from coldstream.spark.read import read_split
from coldstream.spark.window import Window
from coldstream.usecases.commit_runs import commit_runs
from tests.support.erasing import HOUR_MS, ErasingSite
from tests.support.remote import STREAM, no_pause
from tests.support.tier import PREFIX, Tier
from tests.unit.spark.context import WHERE, copied

CHUNKS, EACH = 20, 10
ALL = list(range(CHUNKS * EACH))


def sub_batches(codec: Codec) -> list[bytes]:
    """Chunks of one sub-batch each, of bodies that no codec makes much shorter."""
    rng, chunks = random.Random(1), []
    for first in range(0, CHUNKS * EACH, EACH):
        bodies = [b"%06d " % (first + n) + rng.randbytes(500) for n in range(EACH)]
        data = encode_sub_batch([encode_data(each) for each in bodies], codec)
        header = ChunkHeader(
            ChunkType.USER, 1, EACH, 1000 + first, 1, first, zlib.crc32(data), len(data), 0, 0
        )
        chunks.append(header.encode() + data)
    return chunks


def site_of(codec: Codec) -> ErasingSite:
    """One fragment with all of them."""
    site, tier = ErasingSite(0), Tier()
    entry = tier.upload(STREAM, sub_batches(codec), epoch=1, floor=0)
    path = entry.data_key(STREAM).path(PREFIX)
    site.memory.put(path, tier.store.get(path, 0, entry.size), write_id="upload")
    commit_runs(site.context, STREAM, pause=no_pause)
    site.now_ms += HOUR_MS
    return site


def remote_of(site: ErasingSite) -> Remote:
    return Remote(site.memory, site.items, MemoryPolicies(), Place("", "", PREFIX))


def planned(remote: Remote, columns: str) -> list[TaskWork]:
    given = {**WHERE, "stream": STREAM, "columns": columns, "partitionBytes": "30000"}
    works = plan_query(parse_options(given, {}), tuple(columns.split(",")), Window(), remote)
    assert len(works) > 3
    return works


def offsets_of(works: Sequence[TaskWork], remote: Remote) -> list[int]:
    return [
        offset
        for work in works
        for batch in read_split(work.task, decode_split(work.split), remote)
        for offset in copied(batch).column("offset").to_pylist()
    ]


@pytest.mark.parametrize("columns", ["offset,body,error", "offset"])
@pytest.mark.parametrize("erased", [(0, 40), (100, 140), (0, 195), (5, 6)])
@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP, Codec.ZSTD], ids=str)
def test_each_message_comes_once_whichever_tasks_read_before_an_erasure(
    codec: Codec, erased: tuple[int, int], columns: str
) -> None:
    rng = random.Random(f"{codec}{erased}{columns}")
    for before in range(5):
        site = site_of(codec)
        remote = remote_of(site)
        works = planned(remote, columns)
        rng.shuffle(works)
        found = offsets_of(works[:before], remote)
        site.erase(erased)
        site.now_ms += HOUR_MS
        site.purge()
        found += offsets_of(works[before:], remote)
        assert sorted(found) == ALL, before
