"""S3: what MiniStack 1.5.33 gets wrong for whole objects."""

from __future__ import annotations

from pathlib import Path

from localaws.options import Options

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
    from awscrt.checksums import crc32c, crc64nvme
    from ministack.services import s3

    assert s3._crc64nvme(b"123456789") == crc64nvme(b"123456789")
    assert s3._crc32c(b"123456789") == crc32c(b"123456789")
    s3._crc64nvme = crc64nvme
    s3._crc32c = crc32c
