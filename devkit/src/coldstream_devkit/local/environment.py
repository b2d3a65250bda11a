"""The embedded AWS as a whole: what `coldstream local` and the demo call."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from coldstream import deployment
from coldstream.errors import InternalError, InvalidInputError, NotFoundError
from coldstream_devkit.local import process
from coldstream_devkit.local.deploy import Deployment, deploy
from coldstream_devkit.local.install import exclusive
from coldstream_devkit.local.process import Server
from coldstream_devkit.local.progress import Progress, to_stderr
from coldstream_devkit.local.state import RECORD, check_removable, check_usable
from coldstream_devkit.local.synth import synth

DEFAULT_PORT = 4566
DEFAULT_STATE_DIR = ".local"

_VARIABLES = {
    deployment.ENV_BUCKET: deployment.OUTPUT_BUCKET,
    deployment.ENV_TABLE: deployment.OUTPUT_TABLE,
    deployment.ENV_PREFIX: deployment.OUTPUT_PREFIX,
    deployment.ENV_QUEUE_URL: deployment.OUTPUT_QUEUE_URL,
    deployment.ENV_CLAIM_FUNCTION: deployment.OUTPUT_CLAIM_FUNCTION,
    deployment.ENV_WORKFLOWS: deployment.OUTPUT_WORKFLOWS,
    deployment.ENV_UNDELETE_SECONDS: deployment.OUTPUT_UNDELETE_SECONDS,
    deployment.ENV_WAREHOUSE: deployment.OUTPUT_WAREHOUSE,
    deployment.ENV_DATABASE: deployment.OUTPUT_DATABASE,
}


@dataclass(frozen=True, slots=True)
class LocalAws:
    """A running embedded AWS with the stack in it.

    Attributes:
        server: the process.
        outputs: of the stack, by key (deployment.OUTPUT_*).
        started: whether this call started the server.
        change: what this call did to the stack: "created", "updated" or "unchanged".
    """

    server: Server
    outputs: dict[str, str]
    started: bool
    change: str

    @property
    def endpoint(self) -> str:
        """URL of all services."""
        return self.server.endpoint

    def environment(self) -> dict[str, str]:
        """The variables that point any AWS SDK and coldstream itself at it."""
        return _variables(self.server, self.outputs)


@dataclass(frozen=True, slots=True)
class Status:
    """What is there.

    Attributes:
        server: the process, if one runs.
        outputs: of the stack, empty if none was deployed.
        state_dir: where everything is kept.
        state_bytes: size of what is kept.
    """

    server: Server | None
    outputs: dict[str, str]
    state_dir: Path
    state_bytes: int

    @property
    def running(self) -> bool:
        """Whether a server runs."""
        return self.server is not None


def up(
    root: Path,
    *,
    port: int | None = None,
    state_dir: Path | None = None,
    context: Mapping[str, str] | None = None,
    progress: Progress = to_stderr,
) -> LocalAws:
    """Start the server if none runs, and deploy the CDK app of `root` if it has changed.

    Args:
        root: the project.
        port: on 127.0.0.1; 0 for a free one; by default the one used before, or 4566.
        state_dir: where everything is kept; by default `.local` below `root`.
        context: settings of the app that replace those of cdk.json.
        progress: told what happens, a line at a time.

    Raises:
        InvalidInputError: no CDK app in `root`, the state belongs to another port, or the
            directory holds other things.
        ConflictError: somebody else deploys the stack at this moment.
        UnavailableError: server, app or stack failed; the message says why.
    """
    state_dir = _state_dir(root, state_dir)
    check_usable(state_dir)
    state_dir.mkdir(parents=True, exist_ok=True)
    # Whoever comes second waits, and then finds everything there.
    with exclusive(state_dir / "up.lock"):
        return _up(root, port, state_dir, context, progress)


def _up(
    root: Path,
    port: int | None,
    state_dir: Path,
    context: Mapping[str, str] | None,
    progress: Progress,
) -> LocalAws:
    server = process.running(state_dir)
    started = server is None
    if server is None:
        synth(root, context=context, progress=progress)  # what the app refuses starts no server
        used = process.recorded_port(state_dir)
        chosen = port if port is not None else used if used is not None else DEFAULT_PORT
        server = process.start(root, state_dir, port=chosen, progress=progress)
        progress(f"embedded AWS: listening at {server.endpoint}")
    elif port not in (None, 0, server.port):
        raise InvalidInputError(
            f"it is up on port {server.port} already, and its queues' URLs hold that port:"
            f" leave --port out, or wipe it first (coldstream local down --wipe)"
        )
    else:
        progress(f"embedded AWS: already up at {server.endpoint}")
    deployment = deploy_app(server, root, context=context, progress=progress)
    _write_record(state_dir, deployment)
    return LocalAws(server, deployment.outputs, started, deployment.change)


def deploy_app(
    server: Server,
    root: Path,
    *,
    context: Mapping[str, str] | None = None,
    progress: Progress = to_stderr,
) -> Deployment:
    """Synthesise the app of `root` and deploy it to a running server.

    Args:
        server: where to.
        root: the project.
        context: settings of the app that replace those of cdk.json.
        progress: told what happens, a line at a time.
    """
    assembly = synth(root, context=context, progress=progress)
    stack = (context or {}).get("coldstream:stack-name", deployment.STACK_NAME)
    return deploy(server, assembly, stack, progress=progress)


def down(
    root: Path,
    *,
    state_dir: Path | None = None,
    wipe: bool = False,
    progress: Progress = to_stderr,
) -> bool:
    """Stop the server; what it holds is kept unless `wipe`.

    Returns:
        Whether one was running.

    Raises:
        InvalidInputError: what should be wiped is no directory of ours; nothing was done.
    """
    given = state_dir if state_dir is not None else root / DEFAULT_STATE_DIR
    if wipe:
        check_removable(given)
    state_dir = given.resolve()
    stopped = process.stop(state_dir)
    progress("embedded AWS: stopped" if stopped else "embedded AWS: was not running")
    if wipe:
        there = state_dir.exists()
        left = process.wipe(state_dir)
        if left:
            progress(f"embedded AWS: left in {state_dir}, not ours: {', '.join(left)}")
        elif there:
            progress(f"embedded AWS: removed {state_dir}")
        else:
            progress(f"embedded AWS: there is no {state_dir}, nothing was removed")
    return stopped


def status(root: Path, *, state_dir: Path | None = None) -> Status:
    """Look, and change nothing."""
    state_dir = _state_dir(root, state_dir)
    files = state_dir.rglob("*") if state_dir.is_dir() else ()
    return Status(
        server=process.running(state_dir),
        outputs=_read_record(state_dir),
        state_dir=state_dir,
        state_bytes=sum(_size(path) for path in files),
    )


def environment(root: Path, *, state_dir: Path | None = None) -> dict[str, str]:
    """The variables that point any AWS SDK and coldstream itself at the running embedded AWS.

    Raises:
        NotFoundError: it is not up, or nothing was deployed to it.
    """
    state_dir = _state_dir(root, state_dir)
    server = process.running(state_dir)
    if server is None:
        raise NotFoundError("the embedded AWS is not running: coldstream local up")
    outputs = _read_record(state_dir)
    if not outputs:
        raise NotFoundError("nothing is deployed to the embedded AWS: coldstream local up")
    return _variables(server, outputs)


def _state_dir(root: Path, state_dir: Path | None) -> Path:
    return (state_dir if state_dir is not None else root / DEFAULT_STATE_DIR).resolve()


def _variables(server: Server, outputs: dict[str, str]) -> dict[str, str]:
    missing = sorted(set(_VARIABLES.values()) - outputs.keys())
    if missing:
        raise InternalError(f"the stack has no output {', '.join(missing)}")
    ours = {variable: outputs[output] for variable, output in _VARIABLES.items()}
    return {**server.client_environment(), **ours}


def _write_record(state_dir: Path, deployment: Deployment) -> None:
    content = {"stack": deployment.stack, "outputs": deployment.outputs}
    unfinished = state_dir / f"{RECORD}.tmp"
    unfinished.write_text(json.dumps(content, indent=2), encoding="utf-8")
    unfinished.replace(state_dir / RECORD)


def _read_record(state_dir: Path) -> dict[str, str]:
    try:
        content: dict[str, Any] = json.loads((state_dir / RECORD).read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    return dict(content["outputs"])


def _size(path: Path) -> int:
    try:
        return path.stat().st_size if path.is_file() else 0
    except FileNotFoundError:
        return 0  # gone since it was listed
