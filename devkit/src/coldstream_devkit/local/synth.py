"""Run the CDK app, unless nothing that it reads has changed."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

from coldstream.errors import InvalidInputError, UnavailableError
from coldstream_devkit.local.install import exclusive
from coldstream_devkit.local.progress import Progress, to_stderr

# Everything that the app reads: infra/bundle.py packs functions and the package, and
# infra/glue_bundle.py jobs, the package and the kernel.
INPUTS = (
    "app.py",
    "cdk.json",
    "pyproject.toml",
    "uv.lock",
    "infra",
    "functions",
    "glue_jobs",
    "kernel/kernel.c",
    "kernel/hatch_build.py",
    "kernel/pyproject.toml",
    "kernel/src",
    "src/coldstream",
)
# What both leave out. A test holds the lists together.
FRONT_ENDS = ("agent", "cli", "copies", "gateway", "local")
_IGNORED = tuple(f"src/coldstream/{name}/" for name in FRONT_ENDS)
_STAMP = ".inputs"
_TIMEOUT_SECONDS = 300


class AppFailedError(UnavailableError):
    """The CDK app ran and refused, by its own words; most often a setting is wrong."""


def synth(
    root: Path,
    *,
    context: Mapping[str, str] | None = None,
    output: Path | None = None,
    progress: Progress = to_stderr,
) -> Path:
    """The cloud assembly of the app in `root`, from the last run or a new one.

    Args:
        root: the project.
        context: settings that replace those of cdk.json.
        output: where to; by default a directory below build/local for each set of settings.
        progress: told when the app has to run.

    Returns:
        The directory of the assembly.

    Raises:
        InvalidInputError: there is no app here.
        AppFailedError: the app failed; the message ends with what it said.
        UnavailableError: it took too long.
    """
    if not (root / "app.py").is_file():
        raise InvalidInputError("no CDK app here", key=str(root / "app.py"))
    given = dict(context or {})
    wanted = _digest(root, given)
    if output is None:
        name = "cdk.out"
        if given:
            name += "-" + hashlib.sha256(json.dumps(given, sort_keys=True).encode()).hexdigest()[:8]
        output = root / "build" / "local" / name
    output.parent.mkdir(parents=True, exist_ok=True)
    with exclusive(output.parent):
        stamp = output / _STAMP
        if stamp.is_file() and stamp.read_text(encoding="ascii") == wanted:
            return output
        progress("synthesising the CDK app")
        with tempfile.TemporaryDirectory(prefix=".cdk.out-", dir=output.parent) as scratch:
            made = Path(scratch) / "cdk.out"
            _run(root, made, given)
            (made / _STAMP).write_text(wanted, encoding="ascii")
            shutil.rmtree(output, ignore_errors=True)
            made.rename(output)
    return output


def _digest(root: Path, context: Mapping[str, str]) -> str:
    digest = hashlib.sha256(json.dumps(context, sort_keys=True).encode())
    for path in sorted(_input_files(root)):
        digest.update(f"\0{path.relative_to(root).as_posix()}\0".encode())
        digest.update(hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()


def _input_files(root: Path) -> Iterator[Path]:
    for name in INPUTS:
        base = root / name
        for path in base.rglob("*") if base.is_dir() else [base]:
            relative = path.relative_to(root).as_posix()
            # An editable install of the kernel leaves a library among its sources.
            made = "__pycache__" in path.parts or path.suffix == ".so"
            if made or relative.startswith(_IGNORED) or not path.is_file():
                continue
            yield path


def _run(root: Path, output: Path, context: Mapping[str, str]) -> None:
    environment = {
        **os.environ,
        "CDK_OUTDIR": str(output),
        "JSII_SILENCE_WARNING_END_OF_LIFE_NODE_VERSION": "1",
    }
    if context:
        environment["CDK_CONTEXT_JSON"] = json.dumps(context)
    try:
        done = subprocess.run(
            [sys.executable, "app.py"],
            cwd=root,
            env=environment,
            capture_output=True,
            text=True,
            timeout=_TIMEOUT_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired as exc:
        raise UnavailableError(f"the CDK app took longer than {_TIMEOUT_SECONDS} s") from exc
    if done.returncode:
        said = _reason(done.stdout + done.stderr)
        raise AppFailedError(f"the CDK app failed with code {done.returncode}: {said}")


def _reason(output: str) -> str:
    """What an app said, without the banner that jsii prints about old versions of Node.

    The last line says it: a refusal of ours is one line, and a traceback ends with its error.
    """
    lines = [
        line
        for line in output.strip().splitlines()
        if line.strip() and not re.match(r"\s*(b['\"])?!!", line)
    ]
    if not lines:
        return "it said nothing"
    return lines[-1].strip()[-1000:]
