"""What may happen in AWS: time, Lambdas, workflows, outages, the table; and people who read."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from coldstream.manifest.catalog import CatalogItem
from coldstream.plans.policy import PolicySet, Rule, effective
from coldstream.plans.turns import is_in_turn
from coldstream.remote.context import Context
from coldstream.usecases import collect as collecting
from coldstream.usecases import consolidate as consolidating
from coldstream.usecases import rebalance as rebalancing
from coldstream.usecases import rebuild as rebuilding
from coldstream.usecases import reconcile as reconciling
from coldstream.usecases import retention as retaining
from coldstream.usecases.commit_runs import commit_runs
from coldstream.usecases.scan import RECENT_MS, ScanFor, scan
from coldstream_devkit.simulation.net import DYNAMODB, LAMBDA, S3, Outage
from coldstream_devkit.simulation.readers import read
from coldstream_devkit.simulation.scene import (
    BRANCHING,
    GRACE_MS,
    TIMEOUT_MS,
    Scene,
    Stream,
)

#: As long as a slow call may take, and a little more.
MAX_DELETE_MS = 32_000
_STEPS_OF_COLLECT = 60
_PAGES_OF_SCAN = 400
_RESTS_MS = (200, 20_000, 2 * GRACE_MS)
_OUTAGES_MS = (3_000, 15_000, 90_000)


def waits(scene: Scene) -> None:
    """Time passes."""
    scene.advance(scene.choices.one_of((200, 1000, 5000, 30_000)))


def days_pass(scene: Scene) -> None:
    """Nobody does anything for more than a grace time."""
    scene.advance(2 * GRACE_MS)


def all_goes_on(scene: Scene) -> bool:
    """Whatever can run runs until it waits for something."""
    if not scene.scheduler.ready:
        return False
    for _ in range(60):
        if not scene.scheduler.step():
            break
    return True


def commits(scene: Scene, stream: Stream | None = None) -> str:
    """A Lambda looks at a stream without an event."""
    name = (stream or scene.pick()).name
    left = scene.time_left()
    return scene.spawn(
        "commit", lambda: commit_runs(scene.context(), name, pause=scene.pause, time_left=left)
    )


def rebalances(scene: Scene, stream: Stream | None = None) -> str:
    """The step rebalance runs."""
    name = (stream or scene.pick()).name
    return scene.spawn(
        "rebalance",
        lambda: rebalancing.rebalance(
            scene.context(), name, branching=BRANCHING, pause=scene.pause
        ),
    )


def retains(scene: Scene, stream: Stream | None = None) -> str:
    """The step retention runs, with few or many bytes to keep, or by age."""
    chosen = stream or scene.pick()
    current = chosen.oracle.current
    size = current.manifest.size if current is not None else 4000
    some = scene.choices.below(4)
    if some == 3:
        limits = Rule("r", max_age_ms=scene.choices.one_of((600_000, 60_000, 5_000)))
    else:
        few = scene.choices.one_of((800, 1)) if some == 2 else 1
        limits = Rule("r", max_bytes=max(1, (size * 3 // 4, size // 2, few)[some]))

    def act() -> object:
        task, now = scene.scheduler.task, scene.scheduler.now
        if task is not None:
            age = limits.max_age_ms
            scene.rules[task.owner] = limits.max_bytes, None if age is None else now - age
        return retaining.retain(
            scene.context(), chosen.name, PolicySet((limits,)), now_ms=now, pause=scene.pause
        )

    return scene.spawn("retain", act)


def consolidates(scene: Scene, stream: Stream | None = None) -> str:
    """The step consolidate runs."""
    name = (stream or scene.pick()).name
    left = scene.time_left()
    return scene.spawn(
        "consolidate",
        lambda: consolidating.consolidate(
            scene.context(),
            scene.store,
            name,
            target_size=2000,
            branching=BRANCHING,
            pause=scene.pause,
            time_left=left,
        ),
    )


def collects(scene: Scene) -> str:
    """The step collect runs."""
    stream = scene.pick()
    left = scene.time_left()
    return scene.spawn("collect", lambda: collect(scene, stream, left))


def collect(scene: Scene, stream: Stream, left: object = None) -> None:
    """One run of collect, begun now: step after step, each from where the one before stopped."""

    def held(item: CatalogItem) -> bool:
        policies, _ = scene.policies.load()
        return effective(policies, item.stream, item.name).hold

    run_ms, cursor = scene.scheduler.now, None
    for _ in range(_STEPS_OF_COLLECT):
        report = collecting.collect(
            scene.fresh_context(),
            scene.store,
            stream.name,
            cursor=cursor,
            grace_ms=GRACE_MS,
            run_ms=run_ms,
            now_ms=scene.scheduler.now,
            time_left=left if callable(left) else lambda: True,
            held=held,
        )
        cursor = report.cursor
        if cursor is None:
            return
        scene.buckets["collect in steps"] += 1


def rebuilds(scene: Scene, stream: Stream | None = None) -> str:
    """An operator installs a manifest that is made anew from the bucket."""
    chosen = stream or scene.pick()
    return scene.spawn("rebuild", lambda: rebuild(scene, chosen))


def rebuild(scene: Scene, stream: Stream, *, accept_less: bool = False) -> object:
    """A rebuild that lands, if it may."""
    if scene.scheduler.task is None or scene.choices.below(2):
        return rebuilding.rebuild(
            scene.fresh_context(),
            stream.name,
            branching=BRANCHING,
            dry_run=False,
            accept_less=accept_less,
        )
    return rebuilding.rebuild(
        scene.fresh_context(),
        stream.name,
        branching=BRANCHING,
        dry_run=False,
        wait=scene.scheduler.sleep,
        delete_ms=MAX_DELETE_MS,
    )


def reconciles(scene: Scene, stream: Stream | None = None) -> str:
    """The step reconcile runs."""
    name = (stream or scene.pick()).name
    left = scene.time_left()
    return scene.spawn(
        "reconcile",
        lambda: reconciling.reconcile(scene.context(), name, pause=scene.pause, time_left=left),
    )


def lambda_dies(scene: Scene) -> bool:
    """A Lambda or a step ends, in the middle of anything."""
    if not scene.running:
        return False
    _, owner = scene.running.pop(scene.choices.below(len(scene.running)))
    died = scene.scheduler.kill(owner) > 0
    if died:
        scene.scheduler.say(f"{owner} dies")
    return died


def lambda_is_slow(scene: Scene) -> bool:
    """A Lambda or a step stops for a while, in the middle of anything, within its time-out."""
    if not scene.running:
        return False
    _, owner = scene.choices.one_of(scene.running)
    scene.scheduler.freeze(owner, scene.choices.one_of((2000, 20_000, TIMEOUT_MS - 5000)))
    scene.scheduler.say(f"{owner} stands still")
    return True


def service_fails(scene: Scene) -> None:
    """A service answers nothing, or denies everything, for seconds or minutes.

    The time decides when it is Lambda, and not another draw: what a seed means stays.
    """
    service = scene.choices.one_of((DYNAMODB, S3))
    if scene.scheduler.now // 1000 % 3 == 2:
        service = LAMBDA
    how = Outage.DENIED if scene.choices.below(4) == 3 else Outage.SILENT
    scene.net.break_down(service, how, scene.choices.one_of(_OUTAGES_MS))


def backs_up(scene: Scene) -> None:
    """The table is backed up."""
    scene.catalog.back_up()


def table_is_restored(scene: Scene) -> bool:
    """Another table, made from a backup, takes the place of the table."""
    if not scene.objects.objects:
        return False
    for _, owner in scene.running:
        if owner.startswith("sweep"):
            scene.scheduler.kill(owner)  # nobody restores a table while a deletion goes by it
    scene.catalog.restore(scene.choices.below(3))
    for stream in scene.streams.values():
        stream.oracle.restored()
    scene.buckets["table restored"] += 1
    scene.scheduler.say("the table is restored from a backup")
    return True


def scans(scene: Scene) -> None:
    """The machine of a workflow asks which streams it has work at; that of reconcile does it."""
    workflow = scene.choices.one_of((*ScanFor, ScanFor.RECONCILE))

    def act() -> None:
        turn = partial(
            is_in_turn, now_ms=scene.scheduler.now, every_ms=RECENT_MS // 4, idle_ms=RECENT_MS
        )
        for name in scan_all(scene, scene.context(), workflow, turn):
            if workflow is ScanFor.RECONCILE and name in scene.streams:
                reconciles(scene, scene.streams[name])

    scene.spawn("scan", act)


def scan_all(
    scene: Scene,
    context: Context,
    workflow: ScanFor,
    in_turn: Callable[[str], bool] = lambda _: True,
) -> set[str]:
    """The streams that all pages of a scan name; it ends, whatever the bucket holds."""
    found: set[str] = set()
    cursor: str | None = None
    for _ in range(_PAGES_OF_SCAN):
        policies, _ = scene.policies.load()
        page = scan(
            context,
            workflow,
            policies,
            now_ms=scene.scheduler.now,
            target_size=2000,
            cursor=cursor,
            mark=True,
            in_turn=in_turn,
            time_left=scene.time_left(),
        )
        found.update(page.streams)
        cursor = page.cursor
        if cursor is None:
            return found
    raise AssertionError(f"a scan without end: {cursor}")


def reads(scene: Scene) -> None:
    """Somebody reads from some offset to the end."""
    stream = scene.pick()
    current = stream.oracle.current
    start = scene.choices.below(1 if current is None else current.manifest.next + 1)
    slow = scene.choices.one_of((0, 25, 60))

    def rest() -> None:
        if slow and scene.choices.chance(slow):
            scene.scheduler.sleep(scene.choices.one_of(_RESTS_MS))

    def act() -> object:
        got = read(
            scene.store,
            scene.catalog,
            stream.oracle,
            start=start,
            clock=lambda: scene.scheduler.now / 1000,
            refresh_seconds=GRACE_MS / 4000,
            rest=rest,
        )
        if got is not None:
            scene.buckets["read to the end"] += 1
            for gap in got.gaps:
                scene.buckets[f"gap by {gap.reason.value}"] += 1
        return got

    scene.spawn("read", act, ends=False)
