from __future__ import annotations

from dataclasses import replace

from coldstream.errors import CorruptDataError
from coldstream.manifest.catalog import StreamState
from coldstream.usecases.commit_runs import CommitReport
from coldstream.usecases.reconcile import Failure, reconcile
from tests.unit.remote import STREAM, Remote, chain, no_pause

STREAMS = [f"{STREAM}{number}" for number in range(4)]


def filled() -> Remote:
    remote = Remote()
    for stream in STREAMS:
        remote.claimed(stream=stream)
        remote.upload(*chain(3, stream=stream))
    return remote


def run(remote: Remote) -> dict[str, CommitReport | Failure]:
    return {each.stream: each for each in reconcile(remote.world, pause=no_pause)}


def test_every_live_stream_is_brought_forward_without_any_event() -> None:
    remote = filled()

    results = run(remote)

    assert {
        s: r.next_offset for s, r in results.items() if isinstance(r, CommitReport)
    } == dict.fromkeys(STREAMS, 30)


def test_a_stream_that_fails_is_named_and_does_not_stop_the_others() -> None:
    remote = filled()
    remote.memory.objects[remote.items.items[STREAMS[1]].root_key] = b"damaged"
    remote.world = remote.new_world()

    results = run(remote)

    failure = results.pop(STREAMS[1])
    assert isinstance(failure, Failure)
    assert isinstance(failure.error, CorruptDataError)
    assert len(results) == 3
    assert all(isinstance(each, CommitReport) for each in results.values())


def test_streams_that_are_not_live_are_left_alone() -> None:
    remote = filled()
    item = remote.items.items[STREAMS[2]]
    remote.items.items[STREAMS[2]] = replace(item, state=StreamState.DELETING)

    assert STREAMS[2] not in run(remote)


def test_an_item_that_cannot_be_read_is_reported_after_all_others() -> None:
    remote = filled()

    def streams() -> object:
        yield from remote.items.items.values()
        raise CorruptDataError("unreadable", key="rabbitmq/__damaged_1")

    remote.catalog.target = type(
        "Damaged", (), {"__getattr__": lambda _, n: getattr(remote.items, n)}
    )()
    remote.catalog.target.streams = streams

    results = run(remote)

    assert isinstance(results.pop("rabbitmq/__damaged_1"), Failure)
    assert set(results) == set(STREAMS)


def test_a_second_run_writes_nothing() -> None:
    remote = filled()
    run(remote)
    before = (remote.tampered(), dict(remote.items.items))

    run(remote)

    assert (remote.tampered(), dict(remote.items.items)) == before
