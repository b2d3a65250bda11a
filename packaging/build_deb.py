"""Builds the Debian packages of the agent and the command line: `make deb`.

Each holds an environment of its own below /usr/lib/coldstream: the wheels of uv.lock, checked by
their hashes, and ours. So it installs without a network, beside whatever Python packages there are.
Compiled wheels are for one version of Python, which the package depends on.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from typer.completion import get_completion_script

HERE = Path(__file__).parent
ROOT = HERE.parent
#: Debian's name of an architecture, the kernel's, and the platform whose wheels are taken.
ARCHITECTURES = {
    "amd64": ("x86_64", "x86_64-manylinux_2_28"),
    "arm64": ("aarch64", "aarch64-manylinux_2_28"),
}
#: Of Debian 12.
PYTHON = "3.11"
HOME = Path("usr/lib/coldstream")

#: What botocore has to know: the services we call, and those from which credentials come.
SERVICES = frozenset(
    {"s3", "dynamodb", "sqs", "lambda", "stepfunctions"} | {"sts", "sso", "sso-oidc", "signin"}
)
#: Of other packages, what only their own developers and compilers read.
_UNUSED = (
    "bin",
    ".lock",
    "numpy/**/tests",
    "numpy/_core/include",
    "numpy/**/*.a",
    "boto3/examples",
    "**/*.pyi",
    "**/__pycache__",
    "*.dist-info/RECORD",
    "*.dist-info/direct_url.json",
    "*.dist-info/uv_cache.json",
)
_COMMAND = f"""\
#!/usr/bin/python3 -I
import sys

sys.path.insert(0, "/{HOME}")

from coldstream.cli.main import main

main()
"""
_FILES = {
    "etc/coldstream/agent.toml": ("packaging/agent.toml", 0o640),
    "etc/coldstream/agent.env": ("packaging/agent.env", 0o600),
    "etc/coldstream/gateway.env": ("packaging/gateway.env", 0o600),
    "etc/coldstream/gateway.users": ("packaging/gateway.users", 0o640),
    "lib/systemd/system/coldstream-gateway.service": (
        "packaging/coldstream-gateway.service",
        0o644,
    ),
    "lib/systemd/system/coldstream-agent.service": ("packaging/coldstream-agent.service", 0o644),
    "lib/systemd/system/coldstream.slice": ("packaging/coldstream.slice", 0o644),
    "usr/share/doc/coldstream/copyright": ("LICENSE", 0o644),
    "usr/share/doc/coldstream/run-the-agent.md": ("docs/how-to/run-the-agent.md", 0o644),
    "usr/share/doc/coldstream/gateway.md": ("docs/how-to/gateway.md", 0o644),
    "usr/share/doc/coldstream/agent.md": ("docs/reference/agent.md", 0o644),
}
_COMPLETIONS = {
    "bash": "usr/share/bash-completion/completions/coldstream",
    "zsh": "usr/share/zsh/vendor-completions/_coldstream",
    "fish": "usr/share/fish/vendor_completions.d/coldstream.fish",
}


def main() -> None:
    """Build the packages that are asked for, and say where they are."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--uv", default="uv", help="the command")
    parser.add_argument("--kernel", type=Path, default=ROOT / "build/kernel", help="its wheels")
    parser.add_argument("--out", type=Path, default=ROOT / "build")
    parser.add_argument("--python", default=PYTHON, help="of the machines it is installed on")
    parser.add_argument("--arch", action="append", choices=[*ARCHITECTURES])
    parser.add_argument("--level", type=int, default=6, help="of compression; 0 for none")
    given = parser.parse_args()
    os.environ.setdefault("SOURCE_DATE_EPOCH", _last_commit())
    with tempfile.TemporaryDirectory() as scratch:
        wheel = _own_wheel(given.uv, Path(scratch))
        for arch in given.arch or ARCHITECTURES:
            kernel = _kernel_wheel(given.kernel, arch)
            tree = Path(scratch) / arch
            _install(given.uv, tree / HOME, arch, given.python, [wheel, kernel])
            version = wheel.name.split("-")[1]
            made = build(tree, arch, version, given.python, given.out, level=given.level)
            print(f"{made} ({made.stat().st_size / 2**20:.1f} MiB)")  # noqa: T201 - a command


def _run(*words: str | Path, **more: str) -> str:
    done = subprocess.run(
        words, check=True, cwd=ROOT, env={**os.environ, **more}, stdout=subprocess.PIPE, text=True
    )
    return done.stdout


def _last_commit() -> str:
    """Seconds of the last commit, so that one commit gives one package."""
    return _run("git", "log", "-1", "--format=%ct").strip()


def _own_wheel(uv: str, scratch: Path) -> Path:
    _run(uv, "build", "-q", "--wheel", ".", "-o", scratch / "wheels")
    (wheel,) = (scratch / "wheels").glob("coldstream-*.whl")
    return wheel


def _kernel_wheel(directory: Path, arch: str) -> Path:
    found = [*directory.glob(f"coldstream_kernel-*{ARCHITECTURES[arch][0]}.whl")]
    if len(found) != 1:
        sys.exit(
            f"{directory} must have one wheel of the kernel for {arch}: run make kernel-wheels"
        )
    return found[0]


def _install(uv: str, home: Path, arch: str, python: str, own: list[Path]) -> None:
    """Put the locked wheels and our own below `home`, and take away what nobody reads."""
    home.mkdir(parents=True)
    locked = home.parent / "locked.txt"
    locked.write_text(
        _run(
            uv, "export", "-q", "--frozen", "--extra", "cli", "--no-dev",
            "--no-emit-project", "--no-emit-package", "coldstream-kernel",
        )
    )  # fmt: skip
    platform = ARCHITECTURES[arch][1]
    common = (
        uv, "pip", "install", "-q", "--target", home, "--python-platform", platform,
        "--python-version", python, "--no-deps", "--only-binary", ":all:",
        "--link-mode", "copy",  # what is linked is uv's cache, which others use meanwhile
    )  # fmt: skip
    _run(*common, "--require-hashes", "-r", locked)
    _run(*common, *own)
    locked.unlink()
    trim(home)


def trim(home: Path) -> None:
    """Take away what neither the agent nor the command line ever reads."""
    for pattern in _UNUSED:
        for path in list(home.glob(pattern)):
            shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
    for path in (home / "botocore/data").iterdir():
        if path.is_dir() and path.name not in SERVICES:
            shutil.rmtree(path)


def build(tree: Path, arch: str, version: str, python: str, out: Path, *, level: int = 6) -> Path:
    """Add all that is no Python below `tree`, and pack it.

    Returns:
        The package.
    """
    for name, (source, mode) in _FILES.items():
        _write(tree / name, (ROOT / source).read_bytes(), mode)
    _write(tree / "usr/bin/coldstream", _COMMAND.encode(), 0o755)
    for shell, name in _COMPLETIONS.items():
        script = get_completion_script(
            prog_name="coldstream", complete_var="_COLDSTREAM_COMPLETE", shell=shell
        )
        _write(tree / name, f"{script}\n".encode(), 0o644)
    for path in tree.rglob("*"):
        if path.is_dir():
            path.chmod(0o755)
        elif path.is_relative_to(tree / HOME):
            path.chmod(0o644)
    full = version if python == PYTHON else f"{version}+python{python}"
    _write_control(tree, arch, full, python)
    made = out / f"coldstream_{full}_{arch}.deb"
    out.mkdir(parents=True, exist_ok=True)
    packed = ("-Zxz", f"-z{level}") if level else ("-Znone",)
    _run("dpkg-deb", "--root-owner-group", *packed, "--build", tree, made)
    return made


def _write(path: Path, body: bytes, mode: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(body)
    path.chmod(mode)


def _write_control(tree: Path, arch: str, version: str, python: str) -> None:
    control = tree / "DEBIAN"
    sums = [f"{digest}  {name}\n" for name, digest in _digests(tree)]
    size = sum(path.stat().st_size for path in tree.rglob("*") if path.is_file()) // 1024
    text = (HERE / "debian/control").read_text()
    for name, value in {
        "VERSION": version,
        "ARCH": arch,
        "SIZE": str(size),
        "PYTHON": python,
        "NEXT": _next(python),
    }.items():
        text = text.replace(f"@{name}@", value)
    _write(control / "control", text.encode(), 0o644)
    _write(control / "md5sums", "".join(sums).encode(), 0o644)
    _write(control / "conffiles", (HERE / "debian/conffiles").read_bytes(), 0o644)
    for script in ("postinst", "prerm", "postrm"):
        _write(control / script, (HERE / "debian" / script).read_bytes(), 0o755)


def _next(python: str) -> str:
    major, minor = python.split(".")
    return f"{major}.{int(minor) + 1}"


def _digests(tree: Path) -> Iterator[tuple[str, str]]:
    for path in sorted(tree.rglob("*")):
        if path.is_file() and path.relative_to(tree).parts[0] != "etc":
            digest = hashlib.md5(path.read_bytes(), usedforsecurity=False)  # dpkg's own format
            yield str(path.relative_to(tree)), digest.hexdigest()


if __name__ == "__main__":
    main()
