"""Histories that broke a draft of the protocol: holes, and what a local log proves.

As in `test_known_histories`: each ends well, and without its rule it does not. The agent is the
real one; a replica is a broker's, in memory or on disk.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest

from coldstream.agent.disk.files import Disk, LogFile
from coldstream.agent.disk.log import StreamLog
from coldstream.agent.sending.slices import fragment_size
from coldstream.agent.sending.slices import upload as upload_slice
from coldstream.errors import CorruptDataError
from coldstream.fragment import Placement
from coldstream.names import DataKey
from coldstream.plans.cut import cut
from coldstream_devkit.simulation.choices import Choices
from coldstream_devkit.simulation.cluster import Cluster, ReplicaFiles
from coldstream_devkit.simulation.machines import Node as Machine
from coldstream_devkit.simulation.mutants import without
from coldstream_devkit.simulation.nodes import SimMembers
from coldstream_devkit.simulation.scheduler import Scheduler
from tests.simulation.retold import History, Stream
from tests.simulation.retold_agents import Node, Others
from tests.support.stage import PREFIX, STREAM, history

# --- 5: hole beats data ---


def the_event_of_a_fragment_waits_when_its_range_goes() -> None:
    """5a. [20, 40) is in S3 and not in the manifest; local retention goes on to 60."""
    stream = Stream()
    node = Node(stream, (0, 20, 1), last_copy=True)
    node.look()
    node.write((20, 40, 1))
    node.look(2, commit=False)
    assert stream.item.next_offset == 20
    node.write((40, 80, 1))
    node.retire(3)

    node.look()

    stream.ends_with((0, 40, 1), (60, 80, 1), holes=[(40, 60)])


def a_hole_was_declared_over_data() -> None:
    """5b. By another agent, that could not know of an upload; who commits sees both."""
    stream = Stream()
    stream.upload_tens(0, 20)
    stream.commit()
    hole = DataKey(STREAM, 20, 60, 1, 999, "hole")
    stream.place.store.put(hole.path(PREFIX), b"", write_id="hole")
    stream.upload_tens(20, 40)
    node = Node(stream, (60, 80, 1), last_copy=True)

    node.look()

    stream.ends_with((0, 40, 1), (60, 80, 1), holes=[(40, 60)])


def an_upload_is_under_way_when_its_range_goes() -> None:
    """5c. It has read its file already, and lands when the agent looks at the gap."""
    stream = Stream()
    node = Node(stream, (0, 80, 1), last_copy=True)
    under_way = [node.begin(job) for job in node.cut()]
    node.retire(3)
    node.look(4)

    for lands in under_way:
        lands()
    node.look()

    stream.ends_with((0, 30, 1), (60, 80, 1), holes=[(30, 60)])


def another_member_still_has_the_range() -> None:
    """5d. Its agent has only not been asked."""
    stream = Stream()
    Node(stream, (0, 20, 1)).look()
    other = Node(stream, (0, 80, 1))
    node = Node(stream, (60, 80, 1), members=Others(0))

    node.look()
    other.look()

    stream.ends_with((0, 80, 1))


def the_only_member_that_has_the_range_does_not_answer() -> None:
    """5e. Seed 50048947: the majority that answers has nothing older, so a hole was declared."""
    stream = Stream()
    Node(stream, (0, 20, 1)).look()
    cluster, machine = Cluster(("a", "b", "c"), segment_chunks=4), Machine("a", skew=0)
    ask = SimMembers(Scheduler(Choices(0)), {STREAM: cluster}, machine, lambda stream: None)
    node, short = Node(stream, (60, 80, 1), members=ask), Node(stream, (70, 80, 1))
    longest = Node(stream, (0, 80, 1))
    cluster.replicas = [each.replica for each in (node, short, longest)]
    machine.add(STREAM, node.replica)
    longest.replica.cut_off = True

    node.look()
    assert stream.item.next_offset == 20, "a hole was declared while a member did not answer"
    longest.replica.cut_off = False
    longest.look()

    stream.ends_with((0, 80, 1))


# --- 8: unproved local state ---


def a_short_replica_claims() -> None:
    """8a. It holds less than was uploaded, and nothing else."""
    stream = Stream()
    stream.upload_tens(0, 40)
    stream.commit()

    stream.claim(2, history((0, 30, 1)))

    stream.ends_with((0, 40, 1))


def a_chunk_of_its_epoch_was_never_committed() -> None:
    """8a. Its writer, with stale metadata, has written it alone."""
    stream = Stream()
    Node(stream, (0, 40, 1)).look()

    Node(stream, (0, 30, 1), (30, 35, 2), committed=30).look()

    assert stream.item.epoch == 1, "an uncommitted chunk has claimed the stream"
    stream.ends_with((0, 40, 1))


def uncommitted_chunks_are_truncated_and_written_again() -> None:
    """8b. The agent has seen the old ones, and their names and offsets are those of the new."""
    stream = Stream()
    node = Node(stream, (0, 10, 1), (10, 20, 1), committed=10)
    node.look(3)
    node.replica.cut(10)
    node.write((10, 20, 2))

    node.look()

    stream.ends_with((0, 10, 1), (10, 20, 2))


class Shrinking(Disk):
    """Files of which one is cut short by its broker when it has just been opened to be read."""

    def __init__(self) -> None:
        self.cut_to: int | None = None

    @contextmanager
    def open(self, directory: Path, name: str) -> Generator[LogFile, None, None]:
        """As `LogFiles` says."""
        with super().open(directory, name) as file:
            if self.cut_to is not None and name.endswith(".segment"):
                os.truncate(directory / name, self.cut_to)
            yield file


def a_segment_is_truncated_while_it_is_read() -> None:
    """8c. In place, as brokers do; the upload fails, and the process lives."""
    stream = Stream()
    replica = Node(stream, (0, 400, 1), segment_chunks=80).replica  # more than a page
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name) / STREAM
        directory.mkdir()
        memory = ReplicaFiles(replica)
        for each in memory.names(directory):
            with memory.open(directory, each) as file:
                (directory / each).write_bytes(file.read(0, file.size()))
        files = Shrinking()
        log = StreamLog(directory, files)
        view = log.view(0, since=0, closed=False)
        assert view is not None
        (piece,) = cut(view, target_size=2**20, committed=400, epoch=1, flush=True)
        files.cut_to = 8

        try:
            upload_slice(
                stream.place.store,
                log,
                piece,
                Placement(1, 0, 0, 0, 8),
                prefix=PREFIX,
                uid=1,
                buffer=bytearray(fragment_size(piece)),
            )
        except CorruptDataError:
            return
        raise AssertionError("bytes that are gone were uploaded")


#: What happened, the rule, and how it ends without it.
HISTORIES = {
    "5a": History(
        the_event_of_a_fragment_waits_when_its_range_goes, "hole-at-chain", "other chunks"
    ),
    "5b": History(a_hole_was_declared_over_data, "data-wins", "other chunks"),
    "5c": History(
        an_upload_is_under_way_when_its_range_goes, "hole-after-transfers", "other chunks"
    ),
    "5d": History(another_member_still_has_the_range, "members", "other chunks"),
    "5e": History(
        the_only_member_that_has_the_range_does_not_answer, "all-members", "a hole was declared"
    ),
    "8a short": History(a_short_replica_claims, "evidence", "other chunks"),
    "8a proof": History(
        a_chunk_of_its_epoch_was_never_committed,
        "commit-gate",
        "an uncommitted chunk has claimed",
    ),
    "8b": History(uncommitted_chunks_are_truncated_and_written_again, "by-path", "other chunks"),
}


@pytest.mark.parametrize("name", HISTORIES)
def test_a_known_history_of_an_agent_ends_well(name: str) -> None:
    HISTORIES[name].story()


@pytest.mark.parametrize("name", HISTORIES)
def test_without_its_rule_a_known_history_of_an_agent_loses_something(name: str) -> None:
    HISTORIES[name].ends_badly_without_its_rule()


@pytest.mark.parametrize("rule", ["gap-behind-the-manifest", "data-wins"])
def test_either_rule_about_holes_saves_what_waits_for_its_event(rule: str) -> None:
    """5a: so neither can be taken out alone to lose [20, 40); "hole-at-chain" takes out both."""
    with without(rule):
        the_event_of_a_fragment_waits_when_its_range_goes()


def test_a_truncation_under_a_read_does_not_kill_the_process() -> None:
    """8c."""
    a_segment_is_truncated_while_it_is_read()


def test_a_truncation_under_a_memory_map_kills_the_process() -> None:
    """8c without its rule: no exception tells of it, so it happens to another process."""
    words = (
        f"from {__name__} import a_segment_is_truncated_while_it_is_read as story\n"
        "from coldstream_devkit.simulation.mutants import without\n"
        "with without('pread'):\n"
        "    story()\n"
    )
    root = Path(__file__).parents[2]

    ended = subprocess.run(
        [sys.executable, "-c", words], cwd=root, capture_output=True, check=False
    )

    assert ended.returncode == -signal.SIGBUS, ended.stderr.decode()


def test_what_is_declared_committed_is_uploaded_to_its_end() -> None:
    """8d is no history of this agent yet: a tail of tracking chunks can never be proved.

    The broker's stream port never delivers them. But what is committed is declared so far, and no
    delivered header has to prove it (`agent.broker.committed`); so no rule is to be taken out.
    """
    stream = Stream()
    node = Node(stream, (0, 25, 1))

    node.look()

    assert stream.item.next_offset == node.replica.tail == 25
