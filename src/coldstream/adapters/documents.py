"""Small files that an option names: by path, or by s3:// URL."""

from __future__ import annotations

from pathlib import Path

from coldstream.adapters.place import Place
from coldstream.errors import InvalidInputError

MAX_BYTES = 4 * 2**20


def read_document(source: str, place: Place) -> bytes:
    """What is in a file.

    Args:
        source: path, or s3://BUCKET/KEY.
        place: says region and endpoint of the bucket.

    Raises:
        InvalidInputError: there is no such file, or it is no small one.
        NotFoundError, UnavailableError, PermissionDeniedError: the bucket.
    """
    if source.startswith("s3://"):
        from coldstream.adapters.s3 import S3ObjectStore

        bucket, _, key = source.removeprefix("s3://").partition("/")
        store = S3ObjectStore(bucket=bucket, region=place.region, endpoint=place.endpoint)
        return bytes(store.get_all(key, limit=MAX_BYTES))
    path = Path(source)
    try:
        if path.is_file():
            if path.stat().st_size > MAX_BYTES:
                raise InvalidInputError(f"{source[:200]!r} has more than {MAX_BYTES} bytes")
            return path.read_bytes()
    except OSError as exc:
        raise InvalidInputError(f"{source[:200]!r} cannot be read: {exc}") from exc
    raise InvalidInputError(f"there is no file {source[:200]!r}")
