"""`make broker-campaign`: run it, settle, compare, report; ends with 1 where anything is wrong."""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from threading import Event
from typing import Any

from coldstream.adapters.place import Remote
from coldstream.cli.connect import connect
from coldstream.deployment import ENV_BUCKET, ENV_PREFIX, ENV_TABLE
from coldstream.errors import ColdstreamError
from coldstream_devkit.broker_cluster import Cluster
from coldstream_devkit.broker_release import NEWER, SYSTEM, Release
from coldstream_devkit.campaign.acts import Acts, known
from coldstream_devkit.campaign.agents import COLDSTREAM
from coldstream_devkit.campaign.check import (
    Verdict,
    against_the_log,
    judge,
    kept,
    late,
    only_lost,
    tiered,
)
from coldstream_devkit.campaign.life import Life, earliest, kinds, wait_until
from coldstream_devkit.campaign.scene import CampaignError, Scene
from coldstream_devkit.campaign.weather import weather
from coldstream_devkit.local import environment, process
from coldstream_devkit.stream_client import ClientError, StreamClient

ROOT = Path(__file__).resolve().parents[4]
_RELEASES = {"system": SYSTEM, **{each.suite: each for each in NEWER}}
_SETTLE_SECONDS = 300.0  # without any progress


def _arguments(words: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m coldstream_devkit.campaign")
    parser.add_argument("--failovers", type=int, default=10, help="at least so many")
    parser.add_argument("--kills", type=int, default=100, help="of agents, at least so many")
    parser.add_argument("--minutes", type=float, default=60.0, help="and then no longer")
    parser.add_argument("--seed", type=int, default=None, help="of every choice; any by default")
    parser.add_argument("--release", choices=_RELEASES, default="forky", help="of RabbitMQ")
    parser.add_argument("--acts", nargs="+", choices=known(), help="only these; all by default")
    parser.add_argument("--directory", type=Path, help="for logs and the report; kept")
    return parser.parse_args(words)


def main(words: Sequence[str] | None = None) -> int:
    """Run a campaign; 0 if nothing is wrong, 1 if the tier or an agent is, 2 if it cannot go on."""
    given = _arguments(words)
    release: Release = _RELEASES[given.release]
    if not release.installed():
        _print(release.missing())
        return 2
    seed = given.seed if given.seed is not None else time.time_ns() % 2**32
    directory = given.directory or Path(tempfile.mkdtemp(prefix="coldstream-campaign-"))
    directory.mkdir(parents=True, exist_ok=True)
    _print(f"RabbitMQ {release}, seed {seed}, logs in {directory}")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # nodes and agents must not stay
    try:
        with _cluster(release, directory) as cluster, _tier(directory) as variables:
            scene = Scene.of(cluster, variables, directory, seed)
            began = time.monotonic()
            try:
                remote = connect(
                    bucket=variables[ENV_BUCKET],
                    table=variables[ENV_TABLE],
                    prefix=variables[ENV_PREFIX],
                )
                _play(scene, remote, given)
                report = _report(scene, remote, variables)
            finally:
                scene.discard()
    except CampaignError as exc:
        _print(f"the campaign cannot go on: {exc}")
        return 2
    report |= {"seed": seed, "release": str(release), "seconds": round(time.monotonic() - began)}
    (directory / "report.json").write_text(json.dumps(report, indent=1) + "\n")
    _print(json.dumps(report, indent=1))
    return 1 if report["defects"] else 0


def _print(words: str) -> None:
    sys.stdout.write(f"{words}\n")
    sys.stdout.flush()


@contextmanager
def _cluster(release: Release, directory: Path) -> Iterator[Cluster]:
    """Three nodes in a directory that their user may enter; their logs are kept."""
    base = Path(tempfile.mkdtemp(prefix="coldstream-brokers-"))
    base.chmod(0o755)
    try:
        cluster = Cluster.start(base, release)
        try:
            client = StreamClient(cluster.nodes[1].ports.stream)
            client.create("first", {})
            client.close()
            cluster.wait_for_coordinator()
            yield cluster
        finally:
            cluster.stop()
            for node in cluster.nodes:
                shutil.copytree(
                    node.base / "log", directory / f"log-{node.name}", dirs_exist_ok=True
                )
    finally:
        shutil.rmtree(base, ignore_errors=True)


@contextmanager
def _tier(directory: Path) -> Iterator[dict[str, str]]:
    """An embedded AWS with the app; the variables that name it, for this process as well."""
    state = directory / "aws"
    local = environment.up(ROOT, port=0, state_dir=state)
    kept_variables = {
        name: os.environ[name] for name in ("HOME", "PATH", "PYTHONPATH") if name in os.environ
    }
    variables = {**kept_variables, **local.environment(), "NO_COLOR": "1"}
    os.environ.update(variables)
    try:
        yield variables
    finally:
        process.stop(state)


def _begun(scene: Scene, remote: Remote) -> None:
    """Wait until the tier has some of every stream: what retention took before is in no hole."""

    def all_there() -> bool:
        there = {item.stream for item in remote.catalog.streams() if item.next_offset > 0}
        return all(run.life.directory in there for run in scene.running.values())

    if not wait_until(all_there, _SETTLE_SECONDS, 2):
        raise CampaignError("the agents begin not every stream")


def _play(scene: Scene, remote: Remote, given: argparse.Namespace) -> None:
    """Everything runs, and dies, until the counts are reached or the time is over."""
    for kind in kinds(scene.cluster.nodes[0].release):
        scene.create(kind)
    for agent in scene.agents:
        agent.start()
    _begun(scene, remote)
    acts, stop = Acts(scene, given.acts or known()), Event()
    beside = [acts.killing_agents(stop), weather(scene, scene.rng.randrange(2**32), stop)]
    deadline = time.monotonic() + given.minutes * 60
    told = 0.0
    try:
        while time.monotonic() < deadline and not _enough(scene, given):
            acts.go_on()
            if time.monotonic() - told > 30:
                told = time.monotonic()
                _print(_line(scene))
    finally:
        stop.set()
        for thread in beside:
            thread.join()
    _print(_line(scene))


def _kills(scene: Scene) -> int:
    return sum(agent.kills for agent in scene.agents)


def _enough(scene: Scene, given: argparse.Namespace) -> bool:
    return bool(scene.counts["fail-overs"] >= given.failovers and _kills(scene) >= given.kills)


def _line(scene: Scene) -> str:
    done = ", ".join(f"{count} {name}" for name, count in sorted(scene.counts.items()))
    return (
        f"{time.strftime('%H:%M:%S')} {_kills(scene)} agents killed, {done};"
        f" {scene.confirmed()} messages confirmed"
    )


def _report(scene: Scene, remote: Remote, variables: dict[str, str]) -> dict[str, Any]:
    """Let everything settle, end the agents, compare."""
    defects = _settle(scene, remote)
    for agent in scene.agents:
        agent.look()
        code = agent.end()
        if code:
            defects.append(f"the agent of {agent.node.name} ended with {code}")
        defects += [f"the agent of {agent.node.name} died: {death}" for death in agent.deaths]
    verdicts = []
    for life in [*scene.past, *(run.life for run in scene.running.values())]:
        verdict = _verdict(scene, remote, life, variables)
        verdicts.append(verdict.row())
        defects += [f"{life.directory}: {each}" for each in verdict.defects]
    return {
        "agents killed": _kills(scene),
        **dict(sorted(scene.counts.items())),
        "messages confirmed": scene.confirmed(),
        "streams": verdicts,
        "defects": defects,
    }


def _settle(scene: Scene, remote: Remote) -> list[str]:
    """Publishers end when all is confirmed, taps when it has come, agents when it is tiered."""
    defects = []
    running = scene.running.values()
    for run in running:
        run.publisher.ending.set()
    for run in running:
        if not run.publisher.join(120):
            run.life.quiet.set()
            scene.say(f"{run.life.uid} is never confirmed as a whole")
            run.publisher.join(30)

    def come() -> bool:
        return all(
            run.life.confirmed <= {number for number, _ in dict(run.life.delivered).values()}
            for run in running
        )

    if not wait_until(come, 120, 2):
        scene.say("the taps lack confirmed messages")
    time.sleep(6)
    for run in running:
        run.tap.ending.set()
        run.tap.join(30)
    _print(f"{time.strftime('%H:%M:%S')} settling")
    began = moved = time.monotonic()
    behind: dict[str, int] = {}
    while (now := _behind(scene, remote)) and time.monotonic() - moved < _SETTLE_SECONDS:
        if now != behind:
            behind, moved = now, time.monotonic()
        time.sleep(2)
    if now:
        defects.append(f"not uploaded, and nothing came for {_SETTLE_SECONDS:.0f} s: {now}")
    scene.say(f"settled after {time.monotonic() - began:.0f} s")
    return defects


def _behind(scene: Scene, remote: Remote) -> dict[str, int]:
    """How many offsets the tier lacks of each living stream."""
    there = {item.stream: item.next_offset for item in remote.catalog.streams()}
    lacks = {
        run.life.directory: run.life.next_offset - there.get(run.life.directory, 0)
        for run in scene.running.values()
    }
    return {directory: lack for directory, lack in lacks.items() if lack > 0}


def _verdict(scene: Scene, remote: Remote, life: Life, variables: dict[str, str]) -> Verdict:
    prefix = variables[ENV_PREFIX]
    try:
        rows, gaps, end = tiered(remote, prefix, life)
    except ColdstreamError as exc:
        verdict = Verdict(life)
        verdict.defects.append(f"cannot be read: {exc}")
        return verdict
    verdict = judge(life, rows, gaps, end)
    verdict.late = late(remote.store, prefix, life, gaps)
    begins = []
    if not life.deleted.is_set():
        begins = [earliest(node, life.queue) for node in scene.cluster.nodes]
        try:
            against_the_log(verdict, rows, kept(scene.cluster.nodes[0], life))
        except (OSError, ClientError) as exc:
            verdict.defects.append(f"no stock consumer can read it: {exc}")
    if end:
        described = _command(verdict, variables, "describe", life.directory, "--holes", "--json")
        holes = json.loads(described)["holes"] if described else []
        only_lost(verdict, gaps, [(each["first"], each["next"]) for each in holes], begins)
        _command(verdict, variables, "verify", life.directory, "--deep", "--json")
    return verdict


def _command(verdict: Verdict, variables: dict[str, str], *words: str) -> str:
    """What a command of an operator prints; "" where it fails, which is a defect."""
    done = subprocess.run(
        [str(COLDSTREAM), *words], env=variables, capture_output=True, text=True, check=False
    )
    if done.returncode:
        told = f"{done.stdout[-1500:]} {done.stderr[-500:]}"
        verdict.defects.append(f"{' '.join(words)} ends with {done.returncode}: {told}")
        return ""
    return done.stdout


if __name__ == "__main__":
    sys.exit(main())
