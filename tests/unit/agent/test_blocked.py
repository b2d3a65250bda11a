"""A chunk that stays damaged: it is tried again and again, and costs nothing meanwhile."""

from __future__ import annotations

import threading
import time

from coldstream.testing.generator import write_stream
from tests.unit.agent.conftest import Site

STREAM = "__orders_1745252105682952932"


def test_what_lies_behind_a_damaged_chunk_is_not_uploaded_again_at_every_try(site: Site) -> None:
    write_stream(site.data_dir / STREAM, messages=400, chunk_messages=10)
    path = site.data_dir / STREAM / "00000000000000000000.segment"
    good = path.read_bytes()
    path.write_bytes(good[:150_000] + bytes([good[150_000] ^ 1]) + good[150_001:])
    agent = site.agent(once=False, rescan_seconds=0.05, flush_ms=0)
    thread = threading.Thread(target=agent.run, daemon=True)
    thread.start()
    try:
        time.sleep(0.6)
        before = len([key for key in site.store.objects if "/data/" in key])
        time.sleep(0.8)  # a dozen tries
        after = len([key for key in site.store.objects if "/data/" in key])
        path.write_bytes(good)
        deadline = time.monotonic() + 20
        while site.remote_chunks(STREAM) != site.local_chunks(STREAM):
            assert time.monotonic() < deadline
            time.sleep(0.05)
    finally:
        agent.stop()
        thread.join(10)

    assert after == before
