"""Every workflow killed at any of its requests, and finished by the machine's next run."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial
from itertools import chain, count
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError

from coldstream import deployment
from coldstream.manifest.catalog import CatalogItem, StreamState
from coldstream.manifest.entries import Entry
from coldstream.manifest.root import Root
from coldstream.manifest.tree import leaves
from coldstream.plans.policy import Rule
from coldstream.usecases.delete_stream import delete_stream
from coldstream.usecases.rebalance import rebalance
from coldstream_devkit.steps import contiguous_advance, prefix_retention
from tests.support.probe_stack import eventually
from tests.support.remote import no_pause
from tests.support.slow import in_part_and_in_full
from tests.workflows.container import Containers, Killed
from tests.workflows.site import GRACE_SECONDS, M, Site, neighbours

pytestmark = [
    pytest.mark.emulator,
    # A container that is killed has counted nothing, and Powertools warns of that.
    pytest.mark.filterwarnings("ignore:No application metrics"),
]


@pytest.fixture
def containers(site: Site) -> Iterator[Containers]:
    with pytest.MonkeyPatch.context() as patch:
        made = Containers(site, patch)
        yield made
        made.forget()


def killed_everywhere(
    site: Site,
    containers: Containers,
    streams: Iterator[str],
    invoke: Callable[[str, int | None], Any],
    full: bool,
) -> tuple[list[str], int]:
    """Do a step again and again, killed one request later each time, until it gets through.

    A stream on which a killed step has left no trace is taken for the next one, too.

    Args:
        site: the deployed app.
        containers: what `invoke` calls.
        streams: all in the same state, each is taken once.
        invoke: does the step on a stream, and kills it after so many requests.
        full: at every request; else only around the first, the middle and the last write.

    Returns:
        The streams on which a killed step has left something, with those that it got through on;
        and the number of requests that it needs.
    """
    stream = next(streams)
    invoke(stream, None)
    writes = [number for number, change in enumerate(containers.writes) if change]
    points = {writes[0] + 1, writes[len(writes) // 2], writes[-1]}
    touched, stream = [stream], next(streams)
    before = traces(site, stream)
    for requests in count() if full else chain(sorted(points), [None]):
        try:
            invoke(stream, requests)
        except Killed:
            if traces(site, stream) != before:
                touched.append(stream)
                stream = next(streams)
                before = traces(site, stream)
        else:
            return [*touched, stream], len(containers.writes)
    raise AssertionError


def traces(site: Site, stream: str) -> tuple[CatalogItem, set[str]]:
    return site.item(stream), site.keys(stream)


def endless(make: Callable[[], str]) -> Iterator[str]:
    while True:
        yield make()


def leaves_of(site: Site, stream: str) -> tuple[Root, list[Entry]]:
    context, root = site.fresh(), site.load(stream).root
    return root, list(leaves(root, context.fetch(stream)))


def assert_nothing_lost(
    site: Site, stream: str, before: tuple[Root, list[Entry]], *, begin: int, end: int
) -> None:
    """From `before` on only what the workflow is for has happened; [begin, end) reads back."""
    root, live = leaves_of(site, stream)
    assert not contiguous_advance(before[0], root, live)
    assert not prefix_retention(before[0], root, before[1], live)
    bodies = site.bodies(stream)
    assert [offset for offset, _ in bodies] == [*range(begin, end)]
    assert all(offset.to_bytes(8, "big") in body for offset, body in bodies)


class Before:
    """Makes streams, and remembers how they were."""

    def __init__(self, site: Site, make: Callable[[], str]) -> None:
        self._site = site
        self._make = make
        self.of: dict[str, tuple[Root, list[Entry]]] = {}

    def __call__(self) -> str:
        stream = self._make()
        self.of[stream] = leaves_of(self._site, stream)
        return stream


def grouped(site: Site, fragments: int, **more: Any) -> str:
    """A stream with groups."""
    stream = site.stream(fragments, **more)
    rebalance(site.context, stream, branching=M, pause=no_pause)
    return stream


@in_part_and_in_full
def test_a_killed_rebalance_is_finished_by_the_next(
    site: Site, containers: Containers, full: bool
) -> None:
    make = Before(site, lambda: site.stream(2 * M))

    streams, requests = killed_everywhere(
        site,
        containers,
        endless(make),
        lambda stream, after: containers.invoke("rebalance", work(stream), requests=after),
        full,
    )
    assert requests >= 6  # item, table, root; group, root, item
    assert len(streams) >= 3
    site.run("rebalance", *streams)

    assert {len(site.load(stream).root.entries) for stream in streams} == {M + 1}
    site.collected(*streams)
    site.assert_sound(*streams)
    for stream in streams:
        assert_nothing_lost(site, stream, make.of[stream], begin=0, end=20 * M)


@pytest.mark.slow  # as of rebalance and consolidate, which are there in part
def test_a_killed_retention_is_finished_by_the_next(site: Site, containers: Containers) -> None:
    make = Before(site, lambda: grouped(site, 3 * M))
    first = make()
    size = make.of[first][0].total_size
    site.rules(Rule("third", directory="__w.*", max_bytes=size // 3))
    try:
        streams, requests = killed_everywhere(
            site,
            containers,
            endless(make),
            lambda stream, after: containers.invoke("retention", work(stream), requests=after),
            full=True,
        )
        assert requests >= 6
        assert len(streams) >= 2
        site.run("retention", *streams)
    finally:
        site.rules()

    assert {site.item(stream).first_offset for stream in streams} == {20 * M}
    site.collected(*streams)
    site.assert_sound(*streams)
    for stream in streams:
        assert_nothing_lost(site, stream, make.of[stream], begin=20 * M, end=30 * M)


@pytest.mark.parametrize(
    ("shape", "left"),
    [
        ({"fragments": 9}, 1),
        # Two of three fit into a full fragment, and S3 copies them part by part.
        pytest.param(
            {"fragments": 3, "body_size": 640 * 1024, "records_per_chunk": 5},
            2,
            marks=pytest.mark.slow,
        ),
    ],
    ids=["read and written", "copied"],
)
@in_part_and_in_full
def test_a_killed_consolidation_is_finished_by_the_next(
    site: Site, containers: Containers, shape: dict[str, Any], left: int, full: bool
) -> None:
    make = Before(site, lambda: grouped(site, **shape))
    size = 2**20 if left == 1 else 16 * 2**20
    settings = {deployment.ENV_FRAGMENT_SIZE: str(size), deployment.ENV_READ_WHOLE: "0"}

    streams, requests = killed_everywhere(
        site,
        containers,
        endless(make),
        lambda stream, after: containers.invoke(
            "consolidate", work(stream), requests=after, settings=settings
        ),
        full,
    )
    assert requests > 3 * shape["fragments"]
    assert len(streams) >= 3
    if left == 1:
        site.run("consolidate", *streams)
    else:  # the deployed machine has another size
        assert unfinished_uploads(site, streams)
        containers.invoke("consolidate", work(*streams), settings=settings)

    assert {site.load(stream).root.fragments for stream in streams} == {left}
    site.collected(*streams)
    site.assert_sound(*streams)
    for stream in streams:
        assert_nothing_lost(site, stream, make.of[stream], begin=0, end=10 * shape["fragments"])


@pytest.mark.slow  # as of rebalance and consolidate, which are there in part
def test_a_killed_collect_is_finished_by_the_next(site: Site, containers: Containers) -> None:
    def make() -> str:
        stream = grouped(site, 2 * M)
        site.upload(neighbours(stream, 2))  # again, under other ids: superseded
        return stream

    before = Before(site, make)
    prepared = [before() for _ in range(24)]
    time.sleep(GRACE_SECONDS + 0.2)
    site.run("collect", *prepared)  # sees the garbage for the first time
    time.sleep(GRACE_SECONDS + 0.2)

    streams, requests = killed_everywhere(
        site,
        containers,
        iter(prepared),
        lambda stream, after: containers.invoke("collect", work(stream), requests=after),
        full=True,
    )
    assert requests >= 10
    assert len(streams) >= 3
    site.run("collect", *streams)

    site.assert_sound(*streams)
    for stream in streams:
        assert len([key for key in site.keys(stream) if key.endswith(".fragment")]) == 2 * M
        assert_nothing_lost(site, stream, before.of[stream], begin=0, end=20 * M)


@pytest.mark.slow  # as of rebalance and consolidate, which are there in part
def test_a_killed_sweep_is_finished_by_the_next(site: Site, containers: Containers) -> None:
    functions = site.emulator.client("lambda")
    (mapping,) = functions.list_event_source_mappings(FunctionName=site.function("tombstone"))[
        "EventSourceMappings"
    ]
    revisions: dict[str, int] = {}

    def make() -> str:
        stream = site.stream(3)
        policies = site.policies.load()[0]
        item = delete_stream(site.context, stream, policies, now_ms=0, undelete_ms=0)
        revisions[stream] = item.revision
        return stream

    def swept(stream: str) -> dict[str, Any]:
        return {"work": [{"stream": stream, "revision": revisions[stream]}]}

    # Else the machine would be there before the killer.
    functions.update_event_source_mapping(UUID=mapping["UUID"], Enabled=False)
    try:
        streams, requests = killed_everywhere(
            site,
            containers,
            endless(make),
            lambda stream, after: containers.invoke("delete", swept(stream), requests=after),
            full=True,
        )
    finally:
        functions.update_event_source_mapping(UUID=mapping["UUID"], Enabled=True)
    assert requests >= 6
    assert len(streams) >= 3
    now = f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}"
    executions = [site.start("delete", **swept(stream), undelete_until=now) for stream in streams]

    assert {site.succeeded(execution)["state"] for execution in executions} == {"done"}
    assert {site.item(stream).state for stream in streams} == {StreamState.DELETED}
    assert [site.keys(stream) for stream in streams] == [set()] * len(streams)


@pytest.mark.slow  # as of rebalance and consolidate, which are there in part
def test_a_killed_reconcile_is_finished_by_the_next(site: Site, containers: Containers) -> None:
    def make() -> str:
        stream = site.claimed()
        site.upload(neighbours(stream, 2 * M))
        return stream

    before = Before(site, make)

    streams, requests = killed_everywhere(
        site,
        containers,
        endless(before),
        lambda stream, after: containers.invoke("reconcile", work(stream), requests=after),
        full=True,
    )
    assert requests >= 6 + 2 * M
    assert len(streams) >= 3
    site.run("reconcile", *streams)

    def all_short() -> bool:
        return all(len(site.load(stream).root.entries) == M + 1 for stream in streams)

    assert {site.item(stream).next_offset for stream in streams} == {20 * M}
    # Also where it died between the commit and the start of the rebalance.
    assert eventually(all_short)
    site.collected(*streams)
    site.assert_sound(*streams)
    for stream in streams:
        assert_nothing_lost(site, stream, before.of[stream], begin=0, end=20 * M)


def test_a_function_that_dies_in_the_middle_of_its_work_leaves_only_garbage(site: Site) -> None:
    for _ in range(5):  # a busy machine may look again when all is over
        stream = site.stream(150, body_size=4000)
        before, keys, wanted = site.item(stream), site.keys(stream), site.bodies(stream)
        shape = leaves_of(site, stream)
        execution = site.start("consolidate", work=[{"stream": stream}])
        assert eventually(partial(new_fragments, site, stream, keys))

        kill_container(site, "consolidate")
        with suppress(ClientError):  # it has ended
            site.machines.stop_execution(executionArn=execution)

        if site.ended(execution)["status"] == "ABORTED" and site.item(stream) == before:
            break

    assert site.item(stream) == before
    orphans = site.keys(stream) - keys
    assert orphans
    assert site.bodies(stream) == wanted
    site.run("consolidate", stream)
    assert site.load(stream).root.fragments == 6  # 26 of 40 KB fill a MiB
    site.collected(stream)
    assert not orphans & site.keys(stream)
    site.assert_sound(stream)
    assert_nothing_lost(site, stream, shape, begin=0, end=1500)


def unfinished_uploads(site: Site, streams: list[str]) -> list[str]:
    """What no LIST shows: uploads whose container died. A lifecycle rule of the bucket drops them;
    the embedded AWS has none, so that the template is all there is to look at (tests/infra)."""
    store, bucket = site.emulator.client("s3"), site.outputs[deployment.OUTPUT_BUCKET]
    found = store.list_multipart_uploads(Bucket=bucket).get("Uploads", [])
    return [each["Key"] for each in found if each["Key"].split("/")[2] in streams]


def work(*streams: str) -> dict[str, Any]:
    return {"work": [{"stream": stream} for stream in streams]}


def fragments(site: Site, stream: str) -> set[str]:
    return {key for key in site.keys(stream) if key.endswith(".fragment")}


def new_fragments(site: Site, stream: str, keys: set[str]) -> set[str]:
    return fragments(site, stream) - keys


def kill_container(site: Site, step: str) -> None:
    """End the process that runs a function, as the end of its machine would."""
    wanted = f"AWS_LAMBDA_FUNCTION_NAME={site.function(step)}".encode()
    killed = 0
    for process in Path("/proc").glob("[0-9]*"):
        try:
            parent = int((process / "stat").read_text().rpartition(")")[2].split()[1])
            if parent != site.emulator.server.pid:
                continue  # of another server
            if wanted in (process / "environ").read_bytes().split(b"\0"):
                os.kill(int(process.name), signal.SIGKILL)
                killed += 1
        except (FileNotFoundError, ProcessLookupError, PermissionError):
            continue
    assert killed
