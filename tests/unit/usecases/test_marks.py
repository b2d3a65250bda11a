"""Records of collect that somebody has damaged: each proves nothing, quickly, and stops nothing."""

from __future__ import annotations

import gzip
import json
import tracemalloc
from typing import Any

import pytest

from coldstream.errors import CorruptDataError
from coldstream.names import MarkKey, collect_path
from coldstream.plans.collect import ObjectKind, Record
from coldstream.usecases import marks
from coldstream.usecases.marks import VERSION, ProofState, read_header, seen_in, write_record
from tests.support.remote import PREFIX, STREAM, Remote
from tests.unit.usecases.test_collect import GRACE, Tier

#: JSON that no parser follows to its end.
DEEP = gzip.compress(b"[" * 4000 + b"\n", mtime=0)


def header(count: object, **more: Any) -> bytes:
    said = {
        "version": VERSION, "stream": STREAM, "revision": 0, "state_token": "0",
        "first": "", "last": "\uffff", "count": count, **more,
    }  # fmt: skip
    return gzip.compress(json.dumps(said).encode() + b"\n", mtime=0)


def keys(lines: bytes) -> bytes:
    return gzip.compress(lines, mtime=0)


def put(remote: Remote, body: bytes) -> Record:
    path = collect_path(PREFIX, STREAM, 1, 7)
    remote.memory.put(path, body, write_id="w")
    return Record(MarkKey(STREAM, 1, 7), path, 0, len(body))


def test_a_header_that_is_too_deep_is_damage_like_any_other() -> None:
    remote = Remote()
    record = put(remote, DEEP + keys(b"x\n"))

    with pytest.raises(CorruptDataError) as caught:
        read_header(remote.context, STREAM, record)
    assert caught.value.key == record.path
    with pytest.raises(CorruptDataError):
        seen_in(remote.context, STREAM, record, set())


def test_a_hostile_record_does_not_stop_the_collect_of_a_stream() -> None:
    tier = Tier()
    tier.memory.put(collect_path(PREFIX, STREAM, 1, 7), DEEP, write_id="w")
    tier.retire(1)

    tier.now += 2 * GRACE
    tier.collect()
    tier.now += 2 * GRACE

    assert tier.collect().deleted[ObjectKind.RETIRED].objects == 11


@pytest.mark.parametrize("count", [1, 2**26, 2**63, True])
def test_a_small_record_of_endless_empty_lines_is_refused_at_once(count: int) -> None:
    remote = Remote()
    record = put(remote, header(count) + keys(b"\n" * (1 << 26)))
    assert record.size < 100_000

    tracemalloc.start()
    with pytest.raises(CorruptDataError):
        seen_in(remote.context, STREAM, record, set())
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()

    assert most < 2**23


@pytest.mark.parametrize(
    "body",
    [
        header(1) + keys(b"a\nb\n"),  # more keys than it says
        header(3) + keys(b"a\nb\n"),  # fewer
        header(2) + keys(b"b\na\n"),  # not in order
        header(2) + keys(b"a\na\n"),  # one twice
        header(2) + keys(b"\na\n"),
        header(1) + keys(b"a"),  # cut in a line
        header(1) + keys(b"a" * 5000 + b"\n"),
        header(1) + keys(b"\xff\n"),
        header(1) + keys(b"a\n") + keys(b""),
        header(1) + keys(b"a\n") + b"x",
        header(1) + keys(b"a\n")[:-1],
        header(1) + keys(b"a\n")[:-8] + b"\0" * 8,
        header(1),
        header(10**7) + keys(b"a\n"),
        header(-1) + keys(b""),
        header(1, first=None) + keys(b"a\n"),
        header(1, state_token="x") + keys(b"a\n"),
        gzip.compress(b"{}" * 3000, mtime=0),
        b"",
    ],
    ids=range(19),
)  # fmt: skip
def test_a_record_that_is_not_what_it_says_proves_nothing(body: bytes) -> None:
    remote = Remote()

    with pytest.raises(CorruptDataError):
        seen_in(remote.context, STREAM, put(remote, body), {"a"})


def test_a_record_that_holds_more_than_any_is_refused_before_all_of_it_is_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(marks, "MAX_RECORD", 2**18)
    lines = b"".join(b"%0200d\n" % number for number in range(2000))
    remote = Remote()

    with pytest.raises(CorruptDataError, match="MiB"):
        seen_in(remote.context, STREAM, put(remote, header(2000) + keys(lines)), set())


def test_all_keys_of_a_large_record_are_found_again_wherever_a_block_ends() -> None:
    remote = Remote()
    under = f"{PREFIX}stream/{STREAM}/"
    names = [f"{under}data/{number:0{20 + number % 90}d}" for number in range(30_000)]

    record = write_record(remote.context, STREAM, run_ms=5, state=ProofState(3, 4), keys=names)

    said = read_header(remote.context, STREAM, record)
    assert (said.state, said.count) == (ProofState(3, 4), 30_000)
    assert (said.first, said.last) == (min(names), max(names))
    wanted = {*names[::7], under + "data/other"}
    assert seen_in(remote.context, STREAM, record, wanted) == set(names[::7])


@pytest.mark.parametrize(
    ("said", "lines"),
    [
        (header(1, stream="__other_1"), b"a\n"),
        (header(1, version=VERSION + 1), b"a\n"),
        (header(1, version=VERSION - 1), b"a\n"),
        (header(1), b"a\nb"),
        (header(1), b"a"),
        (header(1), b"a\nb\n"),
        (header(2), b"a\n"),
    ],
)
def test_a_record_of_another_stream_or_version_or_that_is_cut_in_a_key_proves_nothing(
    said: bytes, lines: bytes
) -> None:
    remote = Remote()
    record = put(remote, said + keys(lines))

    with pytest.raises(CorruptDataError):
        seen_in(remote.context, STREAM, record, set())


def test_a_record_that_is_what_it_says_names_its_keys() -> None:
    remote = Remote()
    record = put(remote, header(2) + keys(b"a\nb\n"))
    under = f"{PREFIX}stream/{STREAM}/"

    assert seen_in(remote.context, STREAM, record, {f"{under}b", f"{under}c"}) == {f"{under}b"}
