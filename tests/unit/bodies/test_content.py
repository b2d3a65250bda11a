"""Compressed bodies are inflated, and none grows beyond its limit."""

from __future__ import annotations

import gzip
import os
import zlib

import cramjam
import pytest

from coldstream.bodies.content import inflated
from coldstream.errors import CorruptDataError

BODY = b'{"order": 1}' * 500


def packed(body: bytes) -> bytes:
    return gzip.compress(body, mtime=0)


def zstd(body: bytes) -> bytes:
    return bytes(cramjam.zstd.compress(body))


@pytest.mark.parametrize(
    ("encoding", "body"),
    [
        ("gzip", packed(BODY)),
        ("GZIP", packed(BODY[:70]) + packed(BODY[70:])),
        ("x-gzip", packed(BODY)),
        ("deflate", zlib.compress(BODY)),
        ("zstd", zstd(BODY)),
        ("gzip, zstd", zstd(packed(BODY))),
        ("identity", BODY),
        ("utf-8", BODY),
        ("br", BODY),
        ("gzip, br", BODY),
        ("", BODY),
    ],
)
def test_a_body_is_what_it_was_and_what_no_encoding_says_stays(encoding: str, body: bytes) -> None:
    assert inflated(body, encoding, len(BODY)) == BODY


@pytest.mark.parametrize("pack", [packed, zstd], ids=["gzip", "zstd"])
@pytest.mark.parametrize("size", [1001, 50_000_000])
def test_a_bomb_is_refused_with_its_limit_before_it_grows(pack: object, size: int) -> None:
    name = "zstd" if pack is zstd else "gzip"
    bomb = pack(bytes(size))  # type: ignore[operator]

    with pytest.raises(CorruptDataError, match=f"the {name} .* more than 1000 bytes"):
        inflated(bomb, name, 1000)
    assert inflated(pack(bytes(1000)), name, 1000) == bytes(1000)  # type: ignore[operator]


def test_a_bomb_within_another_or_in_many_members_is_refused() -> None:
    nested = packed(packed(bytes(10_000)))
    with pytest.raises(CorruptDataError, match="more than 1000 bytes"):
        inflated(nested, "gzip, gzip", 1000)
    with pytest.raises(CorruptDataError, match="more than 1000 bytes"):
        inflated(packed(bytes(600)) * 2, "gzip", 1000)
    with pytest.raises(CorruptDataError, match="9 content encodings"):
        inflated(BODY, ",".join(["gzip"] * 9), 1000)


@pytest.mark.parametrize(
    ("encoding", "body"),
    [
        ("gzip", b""),
        ("gzip", b"plain"),
        ("gzip", packed(BODY)[:-3]),
        ("gzip", packed(BODY) + b"more"),
        ("zstd", b""),
        ("zstd", b"plain"),
        ("zstd", zstd(BODY)[:-3]),
        ("zstd", zstd(BODY) + b"more"),
    ],
)
def test_what_is_damaged_or_cut_says_so(encoding: str, body: bytes) -> None:
    with pytest.raises(CorruptDataError, match=encoding):
        inflated(body, encoding, 2**20)


def test_members_are_read_wherever_they_end_and_not_without_number() -> None:
    body = os.urandom(100_000)  # does not shrink, so members lie across what is read at once
    cut = [body[at : at + 7_001] for at in range(0, len(body), 7_001)]
    assert inflated(b"".join(map(packed, cut)), "gzip", len(body)) == body
    assert inflated(packed(body) + packed(b""), "gzip", len(body)) == body

    with pytest.raises(CorruptDataError, match="more than 10000 members"):
        inflated(packed(b"") * 10_001, "gzip", 1000)
