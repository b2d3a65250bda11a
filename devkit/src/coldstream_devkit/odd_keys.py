"""Keys of every kind that a bucket may hold and that none of us has given: a seeded fuzzer.

S3 takes any text of 1 to 1,024 bytes of UTF-8 for a key, and a slash means nothing to it. Libraries
take keys for paths, URLs, file names and lines of a file, and go wrong with some of these.
"""

from __future__ import annotations

import random
from urllib.parse import quote

from coldstream.usecases.ours import is_ours

MAX_KEY_BYTES = 1024

#: Parts of keys that some library or other cannot say, or takes for something else.
ODD_PARTS = (
    "", ".", "..", "...", "\x01", "\x1f", "\x7f", "\t", "\n", "\r", "\r\n", "\x85", "\u2028",
    "%", "%2f", "%2F", "%2e%2e", "%00", "%zz", "+", " ", "  ", "a b", "&", "<", ">", "]]>", "&lt;",
    "&#10;", '"', "'", "\\", "\\..", "?", "#", ";", "=", "*", "~", "|", "{}", "^", "`", ":", "@",
    "$(x)", "é", "e\u0301", "\u200b", "\ufeff", "\ufffd", "\uffff", "\U0001f600", "\U0010ffff",
    "null", "-", "--", "0", "00", "CON", "a.", ".a", "data", "metadata", "stream", "xml:space",
)  # fmt: skip


def odd_keys(seed: int, prefix: str, stream: str, count: int) -> list[str]:
    """Different odd keys below `<prefix>stream/`, most of them below the stream.

    None is the key of a fragment, hole, root, group or record; many look like one.

    Args:
        seed: the same seed gives the same keys.
        prefix: ends in "/".
        stream: directory name.
        count: how many.
    """
    draw = random.Random(seed)
    found: dict[str, None] = {}
    while len(found) < count:
        key = _key(draw, prefix, stream)
        if len(key.encode()) <= MAX_KEY_BYTES and not is_ours(key, prefix):
            found.setdefault(key)
    return list(found)


def _key(draw: random.Random, prefix: str, stream: str) -> str:
    under = f"{prefix}stream/{stream}/"
    kind = draw.randrange(6)
    if kind == 0:
        return under + draw.choice(("data/", "metadata/", "")) + _looks_like_ours(draw)
    if kind == 1:  # beside the streams, where a directory's name should be
        return f"{prefix}stream/{draw.choice(ODD_PARTS)}/{_part(draw)}"
    if kind == 2:  # as long as a key can be
        return f"{under}data/{_part(draw)}/".ljust(MAX_KEY_BYTES, draw.choice("x0~"))
    folder = draw.choice(("data/", "metadata/", "metadata/root.", "metadata/collect.", ""))
    return under + folder + "/".join(_part(draw) for _ in range(draw.randint(1, 3)))


def _part(draw: random.Random) -> str:
    return draw.choice(ODD_PARTS) + draw.choice(("", "", "x", draw.choice(ODD_PARTS)))


def _looks_like_ours(draw: random.Random) -> str:
    first = draw.randrange(1000) * 10
    good = draw.choice(
        (
            f"{first:020d}-{first + 10:020d}.{1:010d}.{draw.getrandbits(64):016x}.fragment",
            f"{first:020d}-{first + 10:020d}.{1:010d}.{draw.getrandbits(64):016x}.hole",
            f"root.{1:010d}.{draw.randrange(100):012d}.{draw.getrandbits(64):016x}.manifest",
            f"{first:020d}.{draw.getrandbits(64):016x}.group",
        )
    )
    cut = draw.randrange(len(good))
    return draw.choice(
        (
            f"{good}/",
            f"/{good}",
            f"./{good}",
            f"{good}\n",
            f" {good}",
            f"{good}.bak",
            good.upper(),
            quote(good).replace(".", "%2E"),
            good[:cut],
            f"{good[:cut]}{draw.choice(ODD_PARTS) or '/'}{good[cut + 1 :]}x",
            good.replace("-", "+", 1).replace("root", "Root"),
            "٠" + good[1:],
        )
    )
