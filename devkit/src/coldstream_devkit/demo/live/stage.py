"""What the live demo plays with: a broker, an embedded AWS with the app, an agent between them.

All of it ends with the context, whatever happens; the directory stays only where its logs are of
use.
"""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from coldstream_devkit.broker import BrokerNode, free_ports
from coldstream_devkit.broker_release import Release
from coldstream_devkit.campaign.agents import AgentProcess
from coldstream_devkit.local import process
from coldstream_devkit.local.environment import LocalAws, deploy_app

ROOT = Path(__file__).resolve().parents[5]
_KEPT = ("HOME", "PATH", "PYTHONPATH")


@dataclass(slots=True)
class Stage:
    """What runs.

    Attributes:
        directory: of everything.
        variables: that name the tier.
        node: the broker.
        agent: beside it; not started yet.
        metrics_port: of the agent.
        good: whether nothing went wrong, so that nobody wants the logs.
    """

    directory: Path
    variables: dict[str, str]
    node: BrokerNode
    agent: AgentProcess
    metrics_port: int
    good: bool = False


@contextmanager
def staged(release: Release, say: Callable[[str], None]) -> Iterator[Stage]:
    """Start broker and embedded AWS, deploy the app; end everything with the context.

    Args:
        release: of the broker.
        say: told what happens.

    Raises:
        BrokerError: the broker does not come up.
        ColdstreamError: the embedded AWS does not, or the app cannot be deployed.
    """
    directory = Path(tempfile.mkdtemp(prefix="coldstream-live-"))
    directory.chmod(0o755)  # the broker has a user of its own
    keep = True
    try:
        with ExitStack() as ends:
            try:
                stage = _set(directory, release, say, ends)
                yield stage
                keep = not stage.good
            finally:
                _undisturbed()
    finally:
        if keep:
            say(f"logs are in {directory}")
        else:
            shutil.rmtree(directory, ignore_errors=True)


def _set(directory: Path, release: Release, say: Callable[[str], None], ends: ExitStack) -> Stage:
    state = directory / "aws"
    ends.callback(process.stop, state)
    server = process.start(ROOT, state, exit_with_parent=True, progress=say)
    deployed = deploy_app(server, ROOT, progress=say)
    variables = _variables(LocalAws(server, deployed.outputs, True, deployed.change))
    node = BrokerNode(directory / "broker", "live", release=release)
    ends.callback(node.stop)
    say(f"RabbitMQ {release}: starting in {node.base}")
    node.start()
    node.control("await_startup")
    (port,) = free_ports(1)
    more = ("--metrics-port", str(port))
    agent = AgentProcess(node, variables, directory / "agent.log", more)
    ends.callback(agent.discard)
    return Stage(directory, variables, node, agent, port)


def _variables(aws: LocalAws) -> dict[str, str]:
    kept = {name: os.environ[name] for name in _KEPT if name in os.environ}
    return {**kept, **aws.environment(), "NO_COLOR": "1"}


def _undisturbed() -> None:
    """From here on what was started is being ended: nobody interrupts that."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
