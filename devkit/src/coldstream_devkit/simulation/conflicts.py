"""Conflicts are sought, not hoped for: a task stops between its load and its change, another lands.

Whatever is about to move an item or to delete objects may be stopped right there, and a rival, who
has everything to land a change of the same stream, runs to its end first.
"""

from __future__ import annotations

from collections.abc import Callable

from coldstream_devkit.simulation import brokers, operators, workflows
from coldstream_devkit.simulation.scene import GRACE_MS, PREFIX, Scene, Stream, replicate_all

_HANG_MS = (5_000, 40_000, 3 * GRACE_MS)
#: A broker is asked so often for each slice that is cut, about.
_ANSWERS = 8

Rival = Callable[[Scene, Stream], str | None]


def seek(scene: Scene, percent: float) -> None:
    """Make conflicts from now on, before so many of a hundred changes."""

    def before_change(what: str, where: str) -> None:
        task = scene.scheduler.task
        if task is None or task.owner == "rival" or not scene.choices.chance(percent):
            return
        name = where.removeprefix(PREFIX).split("/")[1] if "/" in where else where
        stream = scene.streams.get(name)
        if stream is None:
            return
        rivals = _OF_DELETES if what == "delete" else _OF_CHANGES
        if task.name.startswith("collect") and what == "delete" and scene.loses_items:
            rivals = (*rivals, _adopts, _adopts)
        if stream.oracle.contents.rotten:
            rivals = (*rivals, _repairs)
        rival = scene.choices.one_of(rivals)
        # A rival's own change must not look for a rival in its turn.
        scene.before_change, before = None, scene.before_change
        try:
            owner = rival(scene, stream)
            if owner is not None:
                scene.buckets["rivals"] += 1
                scene.scheduler.say(f"{owner} goes first")
                scene.scheduler.give_way(owner)
        finally:
            scene.before_change = before

    scene.before_change = before_change


def linger(scene: Scene, percent: float) -> None:
    """Let agents stand still right before a change, for longer than anybody else may take."""
    inner = scene.before_change

    def before_change(what: str, where: str) -> None:
        task = scene.scheduler.task
        if (
            task is not None
            and task.name.startswith(("agent", "asked"))
            and scene.choices.chance(percent)
        ):
            ms = scene.choices.one_of(_HANG_MS)
            scene.buckets["change hangs"] += 1
            scene.scheduler.say(f"its {what} hangs for {ms} ms")
            scene.scheduler.sleep(ms)
        if inner is not None:
            inner(what, where)

    scene.before_change = before_change


def hang(scene: Scene, percent: float) -> None:
    """Let uploads that have been read be on their way for long, whatever happens meanwhile."""

    def before_put(key: str) -> None:
        task = scene.scheduler.task
        if task is None or not key.endswith(".fragment") or not scene.choices.chance(percent):
            return
        ms = scene.choices.one_of(_HANG_MS)
        scene.buckets["upload hangs"] += 1
        scene.scheduler.say(f"its PUT hangs for {ms} ms")
        scene.scheduler.sleep(ms)

    scene.before_put = before_put


def rewrite(scene: Scene, percent: float) -> None:
    """Let the cluster forget, and write anew in place, at the worst moments.

    These are between a cut and the read of its slice, and, more seldom, between the answer of a
    broker and the look at the files that it is compared with.
    """

    def before_upload() -> None:
        if scene.choices.chance(percent):
            scene.buckets["files rewritten before an upload"] += 1
            brokers.forgets(scene)

    def after_answer() -> None:
        if scene.choices.chance(percent / _ANSWERS):
            scene.buckets["files rewritten after an answer"] += 1
            brokers.forgets(scene)

    scene.before_upload, scene.after_answer = before_upload, after_answer


def _appends(scene: Scene, stream: Stream) -> str:
    return workflows.commits(scene, stream)


def _claims(scene: Scene, stream: Stream) -> str | None:
    """Another writer is elected, and its agent claims."""
    if not brokers.goes_on(scene, stream.cluster):
        return None
    writer = stream.cluster.writer
    assert writer is not None
    replicate_all(stream.cluster)
    agent = next((a for a in scene.agents if a.node.name == writer.name), None)
    if agent is None:
        agent = scene.start_agent(scene.node_of(writer))
    scene.scheduler.rouse(agent.owner)
    return agent.owner


def _adopts(scene: Scene, stream: Stream) -> str:
    """The table is restored, and the stream takes up the newest root that is whole."""
    workflows.table_is_restored(scene)
    return workflows.reconciles(scene, stream)


def _repairs(scene: Scene, stream: Stream) -> str:
    return operators.repairs(scene, stream)


_OF_CHANGES: tuple[Rival, ...] = (
    _appends,
    _appends,
    workflows.retains,
    workflows.rebalances,
    workflows.consolidates,
    _claims,
)
_OF_DELETES: tuple[Rival, ...] = (_appends, workflows.rebuilds, _repairs, _claims)
