"""Bodies that a publisher has compressed, as the property `content_encoding` says.

Nothing grows beyond a limit, whatever is claimed: output is made piece by piece. What is no
encoding that we know stays as it is, because many clients write a charset there.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable

from coldstream.errors import CorruptDataError

_PIECE = 2**16
_ZLIB_OR_GZIP = 47
_WINDOW = 2**14
_MAX_MEMBERS = 10_000


def inflated(body: bytes, encoding: str, limit: int) -> bytes:
    """A body as it was before it was compressed.

    Args:
        body: as it came.
        encoding: the property: gzip, deflate or zstd, or several with commas in the order in which
            they were applied. Anything else means that the body is as it is.
        limit: bytes that it may have at most.

    Raises:
        CorruptDataError: it is damaged, cut, or has more bytes than that.
    """
    names = [each.strip().lower() for each in encoding.split(",")]
    if not names or not all(name in _DECODERS for name in names):
        return body
    if len(names) > len(_DECODERS):
        raise CorruptDataError(f"the body has {len(names)} content encodings")
    for name in reversed(names):
        body = _DECODERS[name](body, name, limit)
    return body


def _gzip(body: bytes, name: str, limit: int) -> bytes:
    """One member or several, one after the other.

    zlib copies what follows a member, so a window of the body is shown at a time: empty members
    would else cost the square of their number.
    """
    found, at, members = bytearray(), 0, 1
    decoder = zlib.decompressobj(_ZLIB_OR_GZIP)
    while window := body[at : at + _WINDOW]:
        try:
            found += decoder.decompress(window, limit + 1 - len(found))
        except zlib.error as exc:
            raise CorruptDataError(f"the body is no {name}: {exc}") from exc
        if len(found) > limit:
            raise _too_large(name, limit)
        at += len(window) - len(decoder.unused_data)
        if decoder.eof:
            if at == len(body):
                return bytes(found)
            decoder, members = zlib.decompressobj(_ZLIB_OR_GZIP), members + 1
            if members > _MAX_MEMBERS:
                raise CorruptDataError(
                    f"the {name} of the body has more than {_MAX_MEMBERS} members"
                )
    raise CorruptDataError(f"the {name} of the body is cut")


def _zstd(body: bytes, name: str, limit: int) -> bytes:
    """One frame or several, into room that grows: not every frame says how much it holds."""
    # The command line reads bodies, too, and has no Arrow; most bodies are not compressed.
    from cramjam import DecompressionError
    from cramjam import zstd as codec

    size = min(max(_PIECE, 4 * len(body)), limit)
    while body:
        output = bytearray(size)
        try:
            return bytes(memoryview(output)[: codec.decompress_into(body, output)])
        except DecompressionError as exc:
            if size == limit:
                raise CorruptDataError(
                    f"the {name} of the body is damaged, is cut, or inflates to more than {limit}"
                    f" bytes: {exc}"
                ) from exc
        size = min(4 * size, limit)
    raise CorruptDataError(f"the {name} of the body is cut")


def _too_large(name: str, limit: int) -> CorruptDataError:
    return CorruptDataError(f"the {name} of the body inflates to more than {limit} bytes")


_DECODERS: dict[str, Callable[[bytes, str, int], bytes]] = {
    "gzip": _gzip,
    "x-gzip": _gzip,
    "deflate": _gzip,
    "zstd": _zstd,
}
