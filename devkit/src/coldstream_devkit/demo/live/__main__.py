"""`make demo LIVE=1`: publish to a real broker, kill it and its agent, compare every message.

A broker node of its own, the CDK app on an embedded AWS of its own, the real agent. A line every
few seconds shows what is confirmed and how far it has come. In the end everything confirmed is read
back from the remote tier by offset, and compared by SHA-256. Then the broker's retention takes what
is old, and a stock client reads all of it through the gateway. Nothing that was started stays.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
from collections.abc import Sequence

from coldstream.cli.exit_codes import ExitCode, exit_code_of
from coldstream.cli.report import explain
from coldstream.errors import ColdstreamError
from coldstream_devkit.broker import BrokerError
from coldstream_devkit.broker_release import NEWER, SYSTEM, InstallError, Release, install
from coldstream_devkit.demo.live.comparison import compared
from coldstream_devkit.demo.live.play import Play
from coldstream_devkit.demo.live.reading import Reading
from coldstream_devkit.demo.live.stage import Stage, staged
from coldstream_devkit.stream_client import ClientError

_RELEASES = {"system": SYSTEM, **{each.suite: each for each in NEWER}}


def _arguments(words: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m coldstream_devkit.demo.live")
    parser.add_argument("--release", choices=_RELEASES, default="system", help="of RabbitMQ")
    parser.add_argument("--publish", type=float, default=60.0, help="for so many seconds")
    parser.add_argument("--every", type=float, default=3.0, help="seconds between two lines")
    return parser.parse_args(words)


def _say(words: str) -> None:
    sys.stdout.write(f"{words}\n")
    sys.stdout.flush()


def main(words: Sequence[str] | None = None) -> int:
    """Run it; 0 only if every confirmed message is identical."""
    given = _arguments(words)
    _listen()
    try:
        release: Release = _RELEASES[given.release]
        if not release.installed():
            _say(f"RabbitMQ {release}: installing it")
            install(release)
        with staged(release, _say) as stage:
            stage.good = _played(stage, given.publish, given.every)
            return 0 if stage.good else 1
    except ColdstreamError as error:
        _say(explain(error, "demo"))
        return exit_code_of(error)
    except (BrokerError, ClientError, InstallError) as error:
        _say(f"demo: {error}")
        return 1
    except KeyboardInterrupt:
        _say("demo: interrupted; everything that it had started is stopped")
        return ExitCode.INTERRUPTED


def _listen() -> None:
    """Take signals for Ctrl-C, also where a shell has started this in the background."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        if number != signal.SIGHUP or signal.getsignal(number) is not signal.SIG_IGN:  # nohup
            signal.signal(number, _interrupt)


def _interrupt(*_: object) -> None:
    raise KeyboardInterrupt


def _played(stage: Stage, publish_seconds: float, every_seconds: float) -> bool:
    """The story, and the comparison; whether all is well."""
    os.environ.update(stage.variables)  # where this process finds the tier
    _say(f"agent: coldstream agent run --committed broker --data-dir {stage.node.data_dir} ...")
    _say("confirmed: messages; the others: offsets, of which the broker takes some for itself")
    life, settled = Play(stage, publish_seconds, every_seconds, _say).run()
    same, found = compared(life, stage.variables)
    confirmed = len(life.confirmed)
    found += Reading(stage, life, _say).play()
    code = stage.agent.end()
    if not settled:
        found.append("broker, agent or watermarks did not get where they should in time")
    if code:
        found.append(f"the agent ended with {code}")
    for each in found:
        _say(f"WRONG: {each}")
    _say(f"{same:,} of {confirmed:,} confirmed messages identical")
    return not found and same == confirmed > 0


if __name__ == "__main__":
    sys.exit(main())
