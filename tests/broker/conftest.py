"""Real RabbitMQ nodes beside the deployed app on the embedded AWS."""

from __future__ import annotations

import contextlib
import gc
import os
import secrets
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from coldstream.broker.node import Node, StreamMembers
from coldstream.errors import UnavailableError
from coldstream_devkit.broker import BrokerNode
from coldstream_devkit.broker_cluster import Cluster
from coldstream_devkit.broker_release import FORKY, SYSTEM, Release
from coldstream_devkit.stream_client import ClientError, StreamClient
from tests.e2e.conftest import Site, site, wait_for

__all__ = ["Site", "site", "wait_for"]

#: Of these the release changes little, so CI tries one of the two.
_ONE_RELEASE = {
    "test_who_may_not_log_in_or_not_enter_or_not_read_is_told_what_to_permit": FORKY,
    "test_every_confirmed_message_comes_back_identical_and_nothing_stays": SYSTEM,
    "test_whoever_interrupts_it_finds_nothing_running_afterwards": FORKY,
    "test_without_a_broker_nothing_is_uploaded_and_it_is_said": SYSTEM,
    "test_a_stream_of_which_retention_took_the_beginning_is_served_from_where_it_begins": FORKY,
    "test_the_replicas_of_a_cluster_take_a_restored_stream_from_its_one_member": SYSTEM,
    "test_a_replay_that_is_killed_half_way_twice_publishes_every_message_once": SYSTEM,
    "test_no_range_is_given_up_while_a_member_is_on_a_node_of_which_nothing_is_heard": FORKY,
    "test_the_partitions_of_a_super_stream_are_known_as_such_and_its_namesake_is_not": SYSTEM,
    "test_authority_and_name_are_checked_and_a_refusal_says_which": FORKY,
    "test_tracking_data_between_messages_is_no_gap": SYSTEM,
    "test_it_goes_on_behind_what_it_has_stored_across_both_tiers_and_many_gateways": SYSTEM,
    "test_its_super_stream_consumers_read_every_partition_of_both_tiers": SYSTEM,
    "test_a_stream_without_a_remote_tier_is_read_from_the_broker": SYSTEM,
    "test_what_local_retention_has_taken_and_nobody_has_uploaded_yet_is_waited_for": FORKY,
    "test_the_offset_of_a_consumer_is_the_brokers": FORKY,
    "test_the_broker_says_who_may_log_in_and_read": FORKY,
    "test_a_broker_that_is_killed_and_comes_back_is_followed_on": FORKY,
    "test_the_policy_says_which_tier_gives_what_both_have": SYSTEM,
    "test_who_is_there_before_the_first_message_gets_it": FORKY,
    "test_what_comes_next_is_not_taken_for_the_chunk_at_an_offset_beyond_the_end": FORKY,
    "test_an_offset_is_kept_or_it_is_told_that_the_user_may_not_store_it": SYSTEM,
    "test_a_name_that_no_broker_can_have_hangs_up_on_nobody": SYSTEM,
    "test_what_the_broker_permits_no_more_ends_for_who_is_connected_too": FORKY,
    "test_a_gateway_that_knows_several_nodes_serves_while_the_first_ones_are_down": SYSTEM,
    "test_a_stream_of_which_most_is_in_s3_only_is_read_from_the_first_message_to_the_live_tail": (
        FORKY
    ),
}
#: For a process to end after a signal, on a machine that does other things.
END_SECONDS = 180.0
#: For each answer of a broker, on the same machine.
ANSWER_SECONDS = 60.0


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """All of it needs brokers, and is run by `make test-broker`.

    The stock client leaves sockets open when its broker is killed; that is told whenever Python
    collects them, in any test.
    """
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.broker)
            item.add_marker(pytest.mark.emulator)
            if "three nodes" in item.name and not item.name.endswith(("plain]", "tracked]")):
                item.add_marker(pytest.mark.slow)  # as beside one node, but for the way there
            other = _ONE_RELEASE.get(item.name.partition("[")[0])
            if other is not None and str(other) in item.name:
                item.add_marker(pytest.mark.slow)
            item.add_marker(
                pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
            )


@pytest.fixture(scope="session", autouse=True)
def _left_open() -> Iterator[None]:
    """Collect what the stock client left open in the last test, too: behind it, it is an error."""
    yield
    for _ in range(3):
        gc.collect()


@pytest.fixture(scope="session")
def base() -> Iterator[Path]:
    """A directory that the package's user may enter."""
    made = Path("/tmp") / f"coldstream-broker-{os.getpid()}-{secrets.token_hex(4)}"
    made.mkdir(mode=0o755)
    yield made
    shutil.rmtree(made, ignore_errors=True)


@pytest.fixture(scope="session", params=(SYSTEM, FORKY), ids=str)
def release(request: pytest.FixtureRequest) -> Release:
    """Each RabbitMQ that is tried; the system's must be there."""
    found: Release = request.param
    assert found is not SYSTEM or found.installed(), found.missing()
    if not found.installed():
        pytest.skip(found.missing())
    return found


@pytest.fixture
def node(base: Path, release: Release) -> Iterator[BrokerNode]:
    """A node of its own for one test."""
    made = BrokerNode(base / secrets.token_hex(4), release=release)
    try:
        made.start()
        yield made
    finally:
        made.stop()


@pytest.fixture
def cluster(base: Path, release: Release) -> Iterator[Cluster]:
    """Three nodes of its own for one test, which may freeze and kill them.

    Afterwards nobody can use them: nodes of 3.10.8 that were away for a minute now and then know
    nothing of each other for good, and members of a new stream do not run for minutes.
    """
    with started(base, release) as made:
        yield made


@pytest.fixture(scope="session")
def calm_cluster(base: Path, release: Release) -> Iterator[Cluster]:
    """Three nodes that no test kills or freezes: each serves a new stream within seconds."""
    with started(base, release) as made:
        yield made


@contextlib.contextmanager
def started(base: Path, release: Release) -> Iterator[Cluster]:
    """A cluster that makes streams."""
    made = Cluster.start(base / secrets.token_hex(4), release)
    try:
        # What elects leaders is begun with the first stream, on nodes that have just come together.
        end = time.monotonic() + END_SECONDS
        while not agrees(made.nodes[1], lambda client: client.create("first", {})):
            assert time.monotonic() < end, "no stream can be made"
            time.sleep(0.5)
        made.wait_for_coordinator()
        yield made
    finally:
        made.stop()


def start_again(node: BrokerNode, *streams: str) -> None:
    """Start a node that was killed, and wait until its streams take messages.

    A member of a stream runs only some time after its node; kill nothing that was not flushed.
    """
    node.start()
    end = time.monotonic() + END_SECONDS
    while not all(takes_messages(node, stream) for stream in streams):
        assert time.monotonic() < end, f"{streams} take no messages"
        time.sleep(0.1)


def earliest_once_known(node: Node, stream: str) -> int | None:
    """What the members of a stream in `/` begin with, once the broker says which these are.

    3.10.8 hears of it some seconds after a stream was made.
    """
    end = time.monotonic() + END_SECONDS
    while True:
        try:
            return StreamMembers(node).earliest("/", stream)
        except UnavailableError:
            assert time.monotonic() < end
            time.sleep(0.2)


def takes_messages(node: BrokerNode, stream: str) -> bool:
    """Whether a node lets somebody publish to a stream."""
    return agrees(node, lambda client: client.declare(stream))


def agrees(node: BrokerNode, ask: Callable[[StreamClient], object]) -> bool:
    """Whether a node does what a client asks for."""
    with (
        contextlib.suppress(ClientError),
        contextlib.closing(StreamClient(node.ports.stream, seconds=30)) as client,
    ):
        ask(client)
        return True
    return False


@dataclass
class Publisher:
    """Publishes in a thread, through any failure of the broker.

    A message that was not confirmed may be there or not; what is confirmed must be there. A stock
    client is not used: when it reconnects by itself, its numbers begin anew, and what it then calls
    confirmed is another message.

    Attributes:
        confirmed: bodies that the broker has confirmed.
    """

    node: BrokerNode
    stream: str
    pause: float = 0.002
    batch: int = 50
    size: int = 100
    confirmed: set[bytes] = field(default_factory=set)
    _stop: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None
    _number: int = 0

    def __enter__(self) -> Publisher:
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        assert self._thread is not None
        self._thread.join(END_SECONDS)

    def _run(self) -> None:
        while not self._stop.is_set():
            with (
                contextlib.suppress(ClientError),  # it is down: another try
                contextlib.closing(StreamClient(self.node.ports.stream)) as client,
            ):
                self._publish(client)
            self._stop.wait(0.2)

    def _publish(self, client: StreamClient) -> None:
        client.create(self.stream, {})
        client.declare(self.stream)
        waiting: dict[int, bytes] = {}
        while waiting or not self._stop.is_set():
            if not self._stop.is_set() and len(waiting) < 100 * self.batch:
                first = self._number + 1
                self._number += self.batch
                numbers = range(first, self._number + 1)
                rows = [(n, (b"%09d " % n).ljust(self.size, b".")) for n in numbers]
                client.publish(rows)
                waiting.update(rows)
            confirmed = client.confirmed(self.pause if not self._stop.is_set() else 5)
            self.confirmed.update(waiting.pop(number) for number in confirmed)
            if self._stop.is_set() and not confirmed:
                return
            self._stop.wait(self.pause)
