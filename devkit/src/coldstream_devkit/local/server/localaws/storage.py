"""S3: what MiniStack 1.5.33 gets wrong for whole objects."""

from __future__ import annotations

import mmap
from contextvars import ContextVar
from pathlib import Path
from typing import Any

from .options import Options

_SIDECAR = ".meta.json"
_UNFINISHED = ".tmp"


def whole_objects(options: Options) -> None:
    """Remove what a crash left half written, before MiniStack reads it.

    AWS: a PUT happens as a whole or not at all. MiniStack: writes the bytes and then, in another
    file, the metadata; after a crash in between, the object comes back without its metadata, so
    that the writer's own write-id is not found on it. No such PUT was ever answered.
    """
    for path in (options.state_dir / "objects").rglob("*"):
        if not path.is_file() or path.name.endswith(_SIDECAR):
            continue
        if path.name.endswith(_UNFINISHED) or not _sidecar(path).exists():
            path.unlink()


def _sidecar(path: Path) -> Path:
    return path.with_name(path.name + _SIDECAR)


def fast_checksums(_: Options) -> None:
    """Compute CRC-64/NVME and CRC-32C in native code.

    AWS: checks a checksum sent along with a PUT in no time. MiniStack: does so in a Python loop
    over the bytes, some 7 s for 64 MiB, while it can answer nobody else.
    """
    # awscrt is only in .localaws, where mypy does not look.
    from awscrt.checksums import crc32c, crc64nvme  # type: ignore[import-not-found]
    from ministack.services import s3

    assert s3._crc64nvme(b"123456789") == crc64nvme(b"123456789")
    assert s3._crc32c(b"123456789") == crc32c(b"123456789")
    s3._crc64nvme = crc64nvme
    s3._crc32c = crc32c


def range_reads(_: Options) -> None:
    """Read of an object only the range that is asked for.

    AWS: a GET of a range costs what the range has. MiniStack: reads the whole object from disk for
    every range, so that eight ranges of a 64 MiB object cost half a gigabyte.
    """
    from ministack.services import s3

    whole = s3._read_body
    get_object = s3._get_object
    ranged = ContextVar("ranged", default=False)

    def read_body(bucket_name: str, key: str, obj: dict[str, Any]) -> Any:
        path = s3._object_disk_path(bucket_name, key)
        if not ranged.get() or obj.get("body") is not None or not path or not obj["size"]:
            return whole(bucket_name, key, obj)
        with Path(path).open("rb") as file:
            # A slice of a map is bytes, and touches the pages of the slice only.
            return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)

    def get(bucket_name: str, key: str, headers: Any, *rest: Any, **more: Any) -> Any:
        token = ranged.set("range" in headers)
        try:
            return get_object(bucket_name, key, headers, *rest, **more)
        finally:
            ranged.reset(token)

    s3._read_body = read_body
    s3._get_object = get
