"""What the deployed machines do to streams: real events, real functions, real adapters."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import islice

import pytest

from coldstream import deployment
from coldstream.adapters.stepfunctions import StepFunctionsWorkflows
from coldstream.errors import ConflictError
from coldstream.manifest.catalog import CatalogItem, QueueName, StreamState
from coldstream.plans.delete import reason
from coldstream.plans.policy import Rule
from coldstream.reader.spec import First
from coldstream.usecases.delete_stream import delete_stream, undelete_stream
from coldstream_devkit.bucket import referenced
from tests.support.probe_stack import eventually
from tests.workflows.site import GRACE_SECONDS, M, Site, neighbours, switch_events

pytestmark = pytest.mark.emulator


@pytest.fixture
def events(site: Site) -> Iterator[None]:
    """Uploads lead to commits by themselves."""
    switch_events(site, on=True)
    yield
    switch_events(site, on=False)


@pytest.fixture(autouse=True)
def no_rules(site: Site) -> Iterator[None]:
    """Each test begins and ends without rules."""
    yield
    site.rules()


# --- rebalance ---


def test_uploads_alone_lead_to_a_short_root_and_a_reason_starts_it_once(
    site: Site, events: None
) -> None:
    stream = site.claimed()
    fragments = neighbours(stream, 3 * M + 1)

    site.upload(fragments)

    def short() -> bool:
        root = site.load(stream).root
        return root.next_offset == 10 * len(fragments) and len(root.entries) < 2 * M

    assert eventually(short)
    machine = site.arn("rebalance")
    started = [
        each
        for each in site.machines.list_executions(stateMachineArn=machine)["executions"]
        if each["name"].startswith(f"rebalance-{stream[:24]}")
    ]
    assert started
    workflows = StepFunctionsWorkflows(
        client=site.machines, arn_prefix=site.outputs[deployment.OUTPUT_WORKFLOWS]
    )
    again = {"work": [{"stream": stream}], "reason": "crowded"}
    assert workflows.start("rebalance", started[0]["name"], again) is False
    for each in started:
        site.succeeded(each["executionArn"])
    site.collected(stream)
    site.assert_sound(stream)
    assert [offset for offset, _ in site.bodies(stream)] == [*range(10 * len(fragments))]


# --- retention and collect ---


def test_what_a_rule_retires_stays_until_collect_has_proved_it_garbage(site: Site) -> None:
    stream = site.stream(21)
    site.run("rebalance", stream)
    before = site.load(stream)
    everything = site.keys(stream)
    reading = site.reader(stream).messages(First())
    assert next(reading).offset == 0
    site.rules(Rule("half", directory=stream, max_bytes=before.root.total_size * 10 // 21))

    site.run("retention")  # the scan finds it

    after = site.load(stream)
    assert (after.root.first_offset, after.root.next_offset) == (110, 210)
    # Nothing has gone, so whoever had begun to read goes on to the end of what was there.
    assert everything <= site.keys(stream)
    assert [each.offset for each in reading] == [*range(1, 210)]

    site.run("collect", stream)
    assert everything <= site.keys(stream)  # seen once proves nothing
    site.collected(stream)
    context = site.fresh()
    kept = referenced(context.prefix, after.item, after.root, context.fetch(stream))
    left = {key for key in site.keys(stream) if not key.endswith(".marks")}
    assert left == kept
    assert left < everything | {after.item.root_key}
    site.assert_sound(stream)
    assert [offset for offset, _ in site.bodies(stream)] == [*range(110, 210)]


def test_a_hold_stops_retention_and_deletion_whatever_else_is_said(site: Site) -> None:
    stream = site.stream(5)
    before = site.item(stream)
    site.rules(
        Rule("small", priority=9, directory=stream, max_bytes=1),
        Rule("court", directory=stream, hold=True),
    )

    site.run("retention", stream)
    with pytest.raises(ConflictError, match="legal hold"):
        delete_stream(site.context, stream, site.policies.load()[0], now_ms=0, undelete_ms=0)

    assert site.item(stream) == before


def test_a_hold_stops_a_deletion_that_was_begun_before(site: Site) -> None:
    stream = site.stream(2)
    before = site.keys(stream)
    item = tombstoned(site, stream, undelete_ms=2000)
    site.rules(Rule("court", directory=stream, hold=True))
    site.machines.stop_execution(executionArn=started_for(site, item))  # it would try for minutes
    time.sleep(max(0.0, item.undelete_until / 1000 - time.time()))

    # One step, as the machine calls it when the time is over.
    answer = site.emulator.client("lambda").invoke(
        FunctionName=site.function("delete"),
        Payload=json.dumps({"work": [{"stream": stream, "revision": item.revision}]}),
    )

    error = json.loads(answer["Payload"].read())
    assert error["errorType"] == "ConflictError"
    assert "legal hold" in error["errorMessage"]
    assert (site.item(stream), site.keys(stream)) == (item, before)
    undelete_stream(site.context, stream)
    assert len(site.bodies(stream)) == 20


# --- consolidate ---


def test_many_small_fragments_become_few_full_ones_under_the_eyes_of_readers(site: Site) -> None:
    stream = site.stream(300, body_size=4000)
    wanted = site.bodies(stream)
    assert [offset for offset, _ in wanted] == [*range(3000)]
    older = site.reader(stream).messages(First())
    begun = [(each.offset, bytes(each.body)) for each in islice(older, 100)]

    execution = site.start("consolidate", work=[{"stream": stream}])
    reads = 0
    while site.machines.describe_execution(executionArn=execution)["status"] == "RUNNING":
        assert site.bodies(stream) == wanted
        reads += 1
    site.succeeded(execution)

    assert reads > 0
    # 26 of 40 KB fill a MiB, and what is left over at the end are more than eight.
    assert site.load(stream).root.fragments == 12
    assert begun + [(each.offset, bytes(each.body)) for each in older] == wanted
    site.collected(stream)
    site.assert_sound(stream)
    assert site.bodies(stream) == wanted
    full = site.item(stream)
    site.run("consolidate", stream)
    assert site.item(stream) == full


def test_large_pieces_are_copied_inside_s3(site: Site) -> None:
    stream = site.stream(5, body_size=640 * 1024, records_per_chunk=1)
    wanted = site.bodies(stream)
    client, function = site.emulator.client("lambda"), site.function("consolidate")
    environment = client.get_function_configuration(FunctionName=function)["Environment"]
    sizes = {
        deployment.ENV_FRAGMENT_SIZE: str(16 * 2**20),
        deployment.ENV_READ_WHOLE: str(8 * 2**20),
    }
    larger = environment["Variables"] | sizes
    client.update_function_configuration(FunctionName=function, Environment={"Variables": larger})
    try:
        answer = client.invoke(
            FunctionName=function, Payload=json.dumps({"work": [{"stream": stream}]})
        )
    finally:
        client.update_function_configuration(FunctionName=function, Environment=environment)

    done = json.loads(answer["Payload"].read())

    assert (done["merges"], done["fragments"], done["left"]) == (2, 4, [])
    assert done["copied"] > done["bytes"] * 3 // 4
    assert site.load(stream).root.fragments == 3
    site.collected(stream)
    site.assert_sound(stream)  # reads every byte and checks every CRC
    assert site.bodies(stream) == wanted


def test_a_rule_switches_consolidation_off_and_the_scan_knows_it(site: Site) -> None:
    stream = site.stream(9)
    before = site.item(stream)
    site.rules(Rule("as-it-is", directory=stream, consolidate=False))

    site.run("consolidate", stream)
    site.run("consolidate")

    assert site.item(stream) == before
    site.rules()
    site.run("consolidate")
    assert site.load(stream).root.fragments == 1


# --- delete ---


def tombstoned(site: Site, stream: str, *, undelete_ms: int) -> CatalogItem:
    """Delete a stream; its tombstone starts the machine by itself."""
    policies = site.policies.load()[0]
    now_ms = time.time_ns() // 1_000_000
    return delete_stream(site.context, stream, policies, now_ms=now_ms, undelete_ms=undelete_ms)


def started_for(site: Site, item: CatalogItem) -> str:
    """ARN of the execution that a tombstone has started."""
    name = deployment.execution_name("delete", item.stream, reason(item))
    arn = site.execution("delete", name)
    machine = site.arn("delete")

    def started() -> bool:
        page = site.machines.list_executions(stateMachineArn=machine)["executions"]
        return arn in {each["executionArn"] for each in page}

    assert eventually(started)
    return arn


def test_an_undelete_within_the_time_gives_everything_back_and_calls_the_machine_off(
    site: Site,
) -> None:
    stream = site.stream(9)
    site.run("rebalance", stream)
    wanted, before = site.bodies(stream), site.keys(stream)
    item = tombstoned(site, stream, undelete_ms=3000)
    with pytest.raises(ConflictError):
        site.commit(stream)

    undelete_stream(site.context, stream)

    assert site.succeeded(started_for(site, item))["state"] == "called_off"
    assert site.keys(stream) == before
    assert site.bodies(stream) == wanted
    assert len(wanted) == 90
    site.upload(neighbours(stream, 10)[9:])
    site.commit(stream)
    assert site.item(stream).next_offset == 100


@pytest.mark.slow  # in memory: tests/simulation
def test_a_deletion_sweeps_stragglers_too_and_leaves_a_new_stream_of_that_name_alone(
    site: Site,
) -> None:
    name = QueueName(cluster="rabbit@one", vhost="/", queue="orders")
    old, new = site.claimed(name), site.claimed(name)
    for stream in (old, new):
        site.upload(neighbours(stream, 3))
        site.commit(stream)
    wanted = site.bodies(new)
    site.run("collect", new)
    execution = started_for(site, tombstoned(site, old, undelete_ms=1000))
    late = neighbours(old, 5)[3:]

    assert eventually(lambda: not site.keys(old))
    (first,) = site.upload(late[:1])  # while the machine waits before its second look
    assert site.succeeded(execution)["state"] == "done"
    assert first not in site.keys(old)
    assert site.item(old).state is StreamState.DELETED
    (second,) = site.upload(late[1:])
    assert site.keys(old) == {second}
    site.run("collect")  # sees it
    assert second in site.keys(old)
    time.sleep(GRACE_SECONDS + 1)  # S3 tells whole seconds
    site.run("collect")

    assert not site.keys(old)
    assert site.item(old).state is StreamState.DELETED
    assert site.bodies(new) == wanted
    site.collected(new)
    site.assert_sound(new)


def test_a_deletion_whose_machine_was_stopped_is_finished_by_another(site: Site) -> None:
    stream = site.stream(3)
    item = tombstoned(site, stream, undelete_ms=2000)
    site.machines.stop_execution(executionArn=started_for(site, item))
    until = datetime.fromtimestamp(-(-item.undelete_until // 1000), UTC)

    # As `coldstream delete` starts it when it is given again.
    again = site.start(
        "delete",
        work=[{"stream": stream, "revision": item.revision}],
        undelete_until=f"{until:%Y-%m-%dT%H:%M:%SZ}",
    )

    assert site.succeeded(again)["state"] == "done"
    assert not site.keys(stream)


# --- reconcile ---


@pytest.mark.slow  # one stream: tests/e2e/test_tiering.py
def test_with_every_event_lost_reconcile_finds_the_streams_and_heals_them(site: Site) -> None:
    streams = [site.claimed() for _ in range(3)]
    for stream in streams:
        site.upload(neighbours(stream, 2 * M + 1))
    time.sleep(1)  # events would have arrived by now
    assert {site.item(stream).next_offset for stream in streams} == {0}

    site.run("reconcile")

    def all_short() -> bool:
        return all(len(site.load(stream).root.entries) < 2 * M for stream in streams)

    assert {site.item(stream).next_offset for stream in streams} == {10 * (2 * M + 1)}
    assert eventually(all_short)  # it has also started the rebalances
    site.collected(*streams)
    site.assert_sound(*streams)
