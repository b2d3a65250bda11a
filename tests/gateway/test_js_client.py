"""The stock JavaScript client reads from a gateway: `make js-client`

Its release 1.0.0 takes only the first sub-batch of a chunk that has several, from a broker as from
here, so it is tried on streams without any.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
from pathlib import Path

import pytest

from coldstream.manifest.catalog import QueueName
from coldstream.osiris.amqp import decode_message
from coldstream.reader import First
from tests.support.gateway import Gateway
from tests.support.tier import FIXTURES, Tier, chunk

HERE = Path(__file__).parent / "js"

NEEDED = pytest.mark.skipif(
    not shutil.which("node") or not (HERE / "node_modules").is_dir(),
    reason="needs node, and make js-client",
)
pytestmark = [pytest.mark.slow, NEEDED]


@pytest.mark.parametrize("name", ["plain-3.10.8", "dedup-3.10.8", "dedup-4.3.6", "filter-4.3.6"])
def test_a_stream_that_is_all_remote_is_read_whole(name: str) -> None:
    tier = Tier()
    stream = tier.add_fixture(name)
    digest = hashlib.sha256()
    for each in tier.reader(stream).messages(First()):
        digest.update(decode_message(each.body).data)
    count = FIXTURES[name]["messages"]
    with Gateway(tier) as gateway:
        done = subprocess.run(
            ["node", HERE / "read.js", str(gateway.port), FIXTURES[name]["stream"], str(count)],
            capture_output=True,
            text=True,
            timeout=120,
        )

    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {"seen": count, "sha256": digest.hexdigest()}


def data(number: int) -> bytes:
    """An AMQP 1.0 message of one data section."""
    return b"\x00\x53\x75\xa0\x09%09d" % number


def resumed(port: int, stream: str, until: int) -> list[int]:
    """What it reads behind the offset that it has stored; it stores the last one."""
    done = subprocess.run(
        ["node", HERE / "resume.js", str(port), stream, "app", str(until)],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return [int(each) for each in json.loads(done.stdout)["bodies"]]


def test_it_goes_on_behind_the_offset_that_it_has_stored() -> None:
    """It broke off at the answer that there is none yet."""
    tier = Tier()
    chunks = [chunk(10 * n, *map(data, range(10 * n, 10 * n + 10))) for n in range(30)]
    tier.add("__orders_1", [chunks[:9], chunks[9:]], name=QueueName("test", "/", "orders"))
    found: list[int] = []
    with Gateway(tier) as gateway:
        for until in (57, 58, 299):
            found += resumed(gateway.port, "orders", until)

    assert found == list(range(300))
