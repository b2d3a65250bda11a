"""The code of the Glue jobs: scripts, our package and the kernel, in one directory.

    build/glue/<hash>/
      coldstream.zip                 our package, for --extra-py-files
      fleet.py scrub.py ...          glue_jobs/*.py, one script a job
      coldstream.gluewheels.zip      all packages, for --additional-python-modules (glue_wheels)

The same input always gives the same bytes, as in `infra.bundle`.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import zipfile
from collections.abc import Iterator
from pathlib import Path

from coldstream.deployment import JOBS, job_script
from infra import glue_wheels
from infra.bundle import BundleError, run_uv, staged

#: What no job imports.
LEFT_OUT = frozenset({"agent", "cli", "copies", "gateway", "local"})

PACKAGE_ZIP = "coldstream.zip"
KERNEL = "kernel"
_KERNEL_SOURCES = ("README.md", "hatch_build.py", "kernel.c", "pyproject.toml", "src")
_PLATFORM = "x86_64"
_ZIP_TIME = (1980, 1, 1, 0, 0, 0)


def build(root: Path) -> Path:
    """Build the code of the checkout at `root`, or find what was built from the same files.

    Returns:
        The directory.

    Raises:
        BundleError: wheels could not be built.
    """
    sources = sorted(_sources(root))
    scripts = {each: root / "glue_jobs" / each for each in map(job_script, JOBS)}
    files = {name: path for name, path in scripts.items() if path.is_file()}
    kernel = _kernel(root)
    digest = hashlib.sha256(Path(__file__).read_bytes())
    digest.update(glue_wheels.key(root).encode())
    named = [(path.name, path) for path in kernel]
    for target, source in (*sources, *sorted(files.items()), *named):
        digest.update(f"\0{target}\0".encode() + source.read_bytes())
    bundle = root / "build" / "glue" / digest.hexdigest()[:32]
    if bundle.is_dir():
        return bundle

    with staged(bundle) as staging:
        _pack(staging / PACKAGE_ZIP, sources)
        for name, path in files.items():
            shutil.copyfile(path, staging / name)
        # A hard link: it is large, and seldom another one.
        os.link(glue_wheels.build(root, kernel=kernel), staging / glue_wheels.NAME)
    return bundle


def _sources(root: Path) -> Iterator[tuple[str, Path]]:
    """Our own modules: (path in the zip, file)."""
    package = root / "src" / "coldstream"
    for path in package.rglob("*"):
        inside = path.relative_to(package).parts
        if path.is_file() and "__pycache__" not in inside and inside[0] not in LEFT_OUT:
            yield f"coldstream/{path.relative_to(package).as_posix()}", path


def _kernel(root: Path) -> list[Path]:
    """The kernel's wheel for Glue's machines, built from this checkout unless it is there."""
    source = root / KERNEL
    if not (source / "pyproject.toml").is_file():
        return []
    digest = hashlib.sha256()
    for path in sorted(source / name for name in _KERNEL_SOURCES):
        for each in sorted(path.rglob("*.py")) if path.is_dir() else [path]:
            digest.update(each.relative_to(source).as_posix().encode() + b"\0" + each.read_bytes())
    built = root / "build" / "glue-kernel" / digest.hexdigest()[:32]
    if not built.is_dir():
        with staged(built) as staging:
            build_wheel = ("build", "--wheel", str(source), "--out-dir", str(staging))
            variables = {"COLDSTREAM_KERNEL_ARCH": _PLATFORM, "SOURCE_DATE_EPOCH": "315532800"}
            # As in `infra.bundle`: what the cache has is as good as the network, and there at once.
            try:
                run_uv(root, *build_wheel, "--offline", **variables)
            except BundleError:
                run_uv(root, *build_wheel, **variables)
    return sorted(built.glob(f"*{_PLATFORM}.whl"))


def _pack(path: Path, sources: list[tuple[str, Path]]) -> None:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for target, source in sources:
            entry = zipfile.ZipInfo(target, _ZIP_TIME)
            entry.external_attr = 0o644 << 16
            entry.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(entry, source.read_bytes())
