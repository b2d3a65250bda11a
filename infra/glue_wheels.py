"""All packages that a Glue job installs, as one zip of wheels: nothing comes from the network.

    build/glue-wheels/<hash>/*.whl                      the packages of uv.lock
    build/glue-zip/<hash>/coldstream.gluewheels.zip     these and the kernel

Glue 5.0 and later unpack an artifact with this suffix and give it to pip (AWS Glue, "Using Python
libraries", zip of wheels). uv resolves by uv.lock and checks every hash, but keeps no wheels; so
they are packed again from what it has installed. A wheel is a zip of files and their hashes, and
the same input always gives the same bytes.
"""

from __future__ import annotations

import base64
import csv
import hashlib
import io
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

from infra.bundle import BundleError, run_uv, staged

SUFFIX = ".gluewheels.zip"
NAME = f"coldstream{SUFFIX}"
#: Python and C library of Glue 6.0.
PYTHON_VERSION = "3.13"
PLATFORM = "x86_64-manylinux_2_28"
#: What `tables` asks for and is not on an index: it is built from this checkout.
_OURS = "coldstream-kernel"
_ZIP_TIME = (1980, 1, 1, 0, 0, 0)
#: In *.dist-info, written by whoever installs a wheel.
_OF_THE_INSTALLER = frozenset({"INSTALLER", "REQUESTED", "RECORD", "direct_url.json"})


def build(root: Path, *, kernel: list[Path]) -> Path:
    """Build the zip for the checkout at `root`, or find what was built from the same wheels.

    Args:
        root: of the checkout.
        kernel: wheels of our own that go with them.

    Returns:
        The zip; its name ends in `SUFFIX`.

    Raises:
        BundleError: uv failed, or a wheel lacks what one must have.
    """
    digest = hashlib.sha256(key(root).encode())
    for path in kernel:
        digest.update(f"\0{path.name}\0".encode() + path.read_bytes())
    built = root / "build" / "glue-zip" / digest.hexdigest()[:32]
    if not built.is_dir():
        wheels = [*packages(root).glob("*.whl"), *kernel]
        with staged(built) as staging, zipfile.ZipFile(staging / NAME, "w") as archive:
            for wheel in sorted(wheels, key=lambda each: each.name):
                archive.writestr(zipfile.ZipInfo(wheel.name, _ZIP_TIME), wheel.read_bytes())
    return built / NAME


def packages(root: Path) -> Path:
    """The directory with the wheels of all packages, built unless the lock is the same."""
    built = root / "build" / "glue-wheels" / key(root)
    if not built.is_dir():
        with staged(built) as staging, tempfile.TemporaryDirectory() as scratch:
            for name, data in _wheels(_installed(root, Path(scratch))):
                (staging / name).write_bytes(data)
    return built


def key(root: Path) -> str:
    """Changes whenever other packages, or a different treatment of them, could come out."""
    digest = hashlib.sha256(Path(__file__).read_bytes())
    for name in ("pyproject.toml", "uv.lock"):
        digest.update((root / name).read_bytes())
    return digest.hexdigest()[:32]


def _installed(root: Path, scratch: Path) -> Path:
    """Install the locked `tables` extra for Glue's machines, every hash checked."""
    requirements = run_uv(
        root,
        *("export", "--frozen", "--no-dev", "--extra", "tables", "--no-emit-project"),
        *("--no-header", "--no-annotate", "--no-emit-package", _OURS, "--python", sys.executable),
    )
    listed, directory = scratch / "requirements.txt", scratch / "installed"
    listed.write_text(requirements, encoding="utf-8")
    install = (
        *("pip", "install", "--target", str(directory), "--no-deps", "--require-hashes"),
        *("--python", sys.executable, "--python-version", PYTHON_VERSION),
        *("--python-platform", PLATFORM, "--only-binary", ":all:", "--no-compile-bytecode"),
        *("--requirements", str(listed)),
    )
    # As in `infra.bundle`: what the cache has is as good as the network, and there at once.
    try:
        run_uv(root, *install, "--offline")
    except BundleError:
        run_uv(root, *install)
    return directory


def _wheels(directory: Path) -> Iterator[tuple[str, bytes]]:
    """(file name, bytes) of the wheel of each package that is installed in `directory`.

    Raises:
        BundleError: one lacks its list of files or its tags.
    """
    for info in sorted(directory.glob("*.dist-info")):
        try:
            tags = [
                line.partition(":")[2].strip()
                for line in (info / "WHEEL").read_text("utf-8").splitlines()
                if line.startswith("Tag:")
            ]
            rows = list(csv.reader((info / "RECORD").read_text("utf-8").splitlines()))
        except OSError as exc:
            raise BundleError(f"{info.name} is no installed wheel: {exc}") from exc
        if not tags:
            raise BundleError(f"{info.name} has no tag")
        columns = zip(*(tag.split("-") for tag in tags), strict=True)
        compressed = "-".join(".".join(dict.fromkeys(each)) for each in columns)  # PEP 425
        name = f"{info.name.removesuffix('.dist-info')}-{compressed}.whl"
        yield name, _packed(directory, info.name, sorted(row[0] for row in rows if row))


def _packed(directory: Path, info: str, names: list[str]) -> bytes:
    """The wheel of one package: its files but those beside the packages, such as commands."""
    out, record = io.BytesIO(), io.StringIO()
    rows = csv.writer(record, lineterminator="\n")
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in names:
            path = PurePosixPath(name)
            if ".." in path.parts or path.parts[0] == "bin":
                continue
            if path.parent.name == info and path.name in _OF_THE_INSTALLER:
                continue
            data = (directory / name).read_bytes()
            hashed = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).decode().rstrip("=")
            rows.writerow([name, f"sha256={hashed}", len(data)])
            archive.writestr(_entry(name), data)
        rows.writerow([f"{info}/RECORD", "", ""])
        archive.writestr(_entry(f"{info}/RECORD"), record.getvalue())
    return out.getvalue()


def _entry(name: str) -> zipfile.ZipInfo:
    entry = zipfile.ZipInfo(name, _ZIP_TIME)
    entry.external_attr = 0o644 << 16
    entry.compress_type = zipfile.ZIP_DEFLATED
    return entry
