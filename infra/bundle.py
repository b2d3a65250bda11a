"""The code that every Lambda function carries: one directory, built without Docker for arm64.

    build/lambda/<hash>/
      aws_lambda_powertools/ aws_xray_sdk/ ...   the `lambda` extra, at the versions in uv.lock
      coldstream/                                our package, without what only front ends need
      functions/                                 the handlers

What the Lambda runtime itself brings (boto3 and what it stands on) is left out, so a bundle is a
few megabytes and its cold import is short. The same input always gives the same bytes, so an
unchanged checkout gives an unchanged asset and `cdk deploy` has nothing to do.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from uv import find_uv_bin

PYTHON_VERSION = "3.13"
PLATFORM = "aarch64-manylinux_2_28"
MAX_BYTES = 30 * 1024 * 1024

# In the Lambda runtime already. A second copy would cost time and could contradict the first.
PROVIDED = ("boto3", "botocore", "jmespath", "python-dateutil", "s3transfer", "six", "urllib3")

# Front ends and test helpers. They need numpy, typer and the like, which no function may import.
FRONT_ENDS = frozenset(
    {"agent", "cli", "columns", "copies", "gateway", "jobs", "local", "reader", "spark", "testing"}
)

_STRIPPED_DIRECTORIES = frozenset({"__pycache__", "bin", "test", "tests"})
_STRIPPED_SUFFIXES = frozenset({".pyc", ".pyi", ".pth"})
# From *.dist-info only METADATA (for importlib.metadata) and the licences stay: the rest names the
# builder or the build, and so would change the asset's hash for nothing.
_STRIPPED_DIST_INFO = frozenset({"RECORD", "INSTALLER", "REQUESTED", "WHEEL", "direct_url.json"})
_EPOCH = 315532800  # 1980-01-01, the oldest time that a zip file can hold


class BundleError(RuntimeError):
    """The bundle could not be built."""


def build(root: Path) -> Path:
    """Build the bundle of the checkout at `root`, or find the one already built from these inputs.

    Needs no network where uv's cache holds the wheels. Safe to run in several processes at once.

    Returns:
        The directory to make an asset of.

    Raises:
        BundleError: uv failed, or the bundle would be larger than `MAX_BYTES`.
    """
    sources = sorted(_sources(root))
    digest = hashlib.sha256(_dependencies_key(root).encode())
    for target, source in sources:
        digest.update(f"\0{target}\0".encode() + source.read_bytes())
    bundle = root / "build" / "lambda" / digest.hexdigest()[:32]
    if bundle.is_dir():
        return bundle

    dependencies = _dependencies(root)
    with staged(bundle) as staging:
        # Hard links: only our own code differs from one bundle to the next.
        shutil.copytree(dependencies, staging, copy_function=os.link, dirs_exist_ok=True)
        for target, source in sources:
            copy = staging / target
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source, copy)
        _normalise(staging)
        size = size_bytes(staging)
        if size > MAX_BYTES:
            raise BundleError(f"the Lambda bundle has {size} bytes, more than {MAX_BYTES}")
    return bundle


def size_bytes(directory: Path) -> int:
    """Unzipped size of everything below `directory`."""
    return sum(path.stat().st_size for path in directory.rglob("*") if path.is_file())


def _sources(root: Path) -> Iterator[tuple[str, Path]]:
    """Our own modules: (path in the bundle, file)."""
    for base in (root / "src", root):
        package = base / ("coldstream" if base.name == "src" else "functions")
        for path in package.rglob("*"):
            inside = path.relative_to(package).parts
            if not path.is_file() or "__pycache__" in inside or path.suffix in _STRIPPED_SUFFIXES:
                continue
            if package.name == "coldstream" and inside[0] in FRONT_ENDS:
                continue
            yield path.relative_to(base).as_posix(), path


def _dependencies_key(root: Path) -> str:
    """Changes whenever other dependencies, or a different treatment of them, could come out."""
    digest = hashlib.sha256(Path(__file__).read_bytes())
    for name in ("pyproject.toml", "uv.lock"):
        digest.update((root / name).read_bytes())
    return digest.hexdigest()[:32]


def _dependencies(root: Path) -> Path:
    """Install the locked `lambda` extra for the Lambda platform; kept until the lock changes."""
    directory = root / "build" / "lambda-dependencies" / _dependencies_key(root)
    if directory.is_dir():
        return directory
    requirements = run_uv(
        root,
        *("export", "--frozen", "--no-dev", "--extra", "lambda", "--no-emit-project"),
        *("--no-header", "--no-annotate", "--python", sys.executable),
        *(flag for name in PROVIDED for flag in ("--no-emit-package", name)),
    )
    with staged(directory) as staging, tempfile.TemporaryDirectory() as scratch:
        listed = Path(scratch, "requirements.txt")
        listed.write_text(requirements, encoding="utf-8")
        install = (
            *("pip", "install", "--target", str(staging), "--no-deps", "--require-hashes"),
            *("--python", sys.executable, "--python-version", PYTHON_VERSION),
            *("--python-platform", PLATFORM, "--only-binary", ":all:", "--no-compile-bytecode"),
            # Copies, not hard links: the time stamps are changed below, and uv's cache is not ours.
            *("--link-mode", "copy", "--requirements", str(listed)),
        )
        # Versions and hashes are pinned, so the cache is as good as the network. It is asked first
        # because uv would otherwise ask the index whether its copy is still fresh.
        try:
            run_uv(root, *install, "--offline")
        except BundleError:
            run_uv(root, *install)
        _strip(staging)
    return directory


def run_uv(root: Path, *arguments: str, **variables: str) -> str:
    """Run uv in the project at `root`; what it printed.

    Raises:
        BundleError: it failed.
    """
    command = [find_uv_bin(), *arguments, "--quiet", "--no-progress"]
    environment = {**os.environ, "UV_PROJECT": str(root), **variables}
    environment.pop("VIRTUAL_ENV", None)
    done = subprocess.run(
        command, cwd=root, env=environment, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise BundleError(f"{' '.join(command[:3])} failed: {done.stderr.strip()[-2000:]}")
    return done.stdout


@contextmanager
def staged(final: Path) -> Iterator[Path]:
    """A temporary directory that becomes `final` in one rename, or vanishes on an error.

    Another process may build the same thing meanwhile. Both come out equal, so the first wins.
    """
    final.parent.mkdir(parents=True, exist_ok=True)
    staging = Path(tempfile.mkdtemp(prefix=".staging-", dir=final.parent))
    try:
        yield staging
        try:
            staging.rename(final)
        except OSError:
            if not final.is_dir():
                raise
    finally:
        shutil.rmtree(staging, ignore_errors=True)


def _strip(directory: Path) -> None:
    """Remove what no function ever reads."""
    for path in sorted(directory.rglob("*"), reverse=True):
        if path.is_dir():
            if path.name in _STRIPPED_DIRECTORIES:
                shutil.rmtree(path)
        elif (
            path.suffix in _STRIPPED_SUFFIXES
            or path.name == ".lock"
            or (path.parent.suffix == ".dist-info" and path.name in _STRIPPED_DIST_INFO)
        ):
            path.unlink()


def _normalise(directory: Path) -> None:
    """Give every file the same time stamp and mode, whatever the umask and the hour."""
    for path in (directory, *directory.rglob("*")):
        path.chmod(0o755 if path.is_dir() or path.suffix == ".so" else 0o644)
        os.utime(path, (_EPOCH, _EPOCH))
