"""What may happen in AWS: time, Lambdas, steps of workflows, the table; and people who read."""

from __future__ import annotations

from coldstream.plans.policy import PolicySet, Rule
from coldstream.testing.simulation.readers import read
from coldstream.testing.simulation.scene import BRANCHING, GRACE_MS, PREFIX, STREAM, Scene
from coldstream.usecases.commit_runs import commit_runs
from coldstream.usecases.consolidate import consolidate
from coldstream.usecases.rebalance import rebalance
from coldstream.usecases.rebuild import rebuild
from coldstream.usecases.reconcile import reconcile
from coldstream.usecases.retention import retain


def waits(scene: Scene) -> None:
    """Time passes."""
    scene.advance(scene.choices.one_of((200, 1000, 5000, 30_000)))


def commits(scene: Scene) -> None:
    """A Lambda looks at the stream without an event."""
    scene.spawn("commit", lambda: commit_runs(scene.world(), STREAM, pause=scene.pause))


def rebalances(scene: Scene) -> None:
    """The step rebalance runs."""
    scene.spawn(
        "rebalance",
        lambda: rebalance(scene.world(), STREAM, branching=BRANCHING, pause=scene.pause),
    )


def retains(scene: Scene) -> None:
    """The step retention runs, with few or many bytes to keep."""
    limits = Rule("r", max_bytes=scene.choices.one_of((6000, 2000, 800)))
    scene.spawn(
        "retain",
        lambda: retain(
            scene.world(),
            STREAM,
            PolicySet((limits,)),
            now_ms=scene.scheduler.now,
            pause=scene.pause,
        ),
    )


def consolidates(scene: Scene) -> None:
    """The step consolidate runs."""
    scene.spawn(
        "consolidate",
        lambda: consolidate(
            scene.world(),
            scene.store,
            STREAM,
            target_size=2000,
            branching=BRANCHING,
            pause=scene.pause,
        ),
    )


def collects(scene: Scene) -> None:
    """The step collect runs."""
    scene.spawn("collect", scene.collect)


def rebuilds(scene: Scene) -> None:
    """An operator installs a manifest that is made anew from the bucket."""
    scene.spawn(
        "rebuild",
        lambda: rebuild(scene.world(), STREAM, branching=BRANCHING, dry_run=False),
    )


def reconciles(scene: Scene) -> None:
    """The step reconcile runs."""
    scene.spawn("reconcile", lambda: reconcile(scene.world(), STREAM, pause=scene.pause))


def lambda_dies(scene: Scene) -> bool:
    """A Lambda or a step ends, in the middle of anything."""
    if not scene.running:
        return False
    _, owner = scene.running.pop(scene.choices.below(len(scene.running)))
    died = scene.scheduler.kill(owner) > 0
    if died:
        scene.scheduler.say(f"{owner} dies")
    return died


def backs_up(scene: Scene) -> None:
    """The table is backed up."""
    scene.catalog.back_up()


def table_is_restored(scene: Scene) -> bool:
    """Another table, made from a backup, takes the place of the table."""
    if not scene.objects.objects:
        return False
    scene.catalog.restore(scene.choices.below(3))
    scene.oracle.restored()
    scene.scheduler.say("the table is restored from a backup")
    return True


def reads(scene: Scene) -> None:
    """Somebody reads from some offset to the end."""
    current = scene.oracle.current
    following = 1 if current is None else current.root.next_offset + 1
    start = scene.choices.below(following)

    def act() -> object:
        got = read(
            scene.store,
            scene.catalog,
            scene.cluster,
            prefix=PREFIX,
            stream=STREAM,
            start=start,
            clock=lambda: scene.scheduler.now / 1000,
            refresh_seconds=GRACE_MS / 4000,
        )
        if got is not None:
            scene.buckets["read to the end"] += 1
            for gap in got.gaps:
                scene.buckets[f"gap by {gap.reason.value}"] += 1
        return got

    scene.spawn("read", act)
