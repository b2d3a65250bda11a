"""What `coldstream doctor` finds: on a machine, in a tier in memory, and of checks that hang."""

from __future__ import annotations

import os
import shutil
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from coldstream.adapters.memory import MemoryCatalog, MemoryObjectStore
from coldstream.agent.doctor import machine
from coldstream.agent.doctor.findings import Check, Finding, Level, ok, perform
from coldstream.agent.doctor.probe import Probe
from coldstream.agent.doctor.services import RightsChecks, TierChecks
from coldstream.errors import PermissionDeniedError, UnavailableError
from coldstream.fragment import TRAILER_SIZE, parse_trailer
from coldstream.manifest.catalog import StateChange, StreamState
from coldstream.plans import consolidate
from coldstream.plans.heartbeats import Heartbeat
from coldstream.plans.probe import MOST, ProbeLog, is_probe, probe_name, probe_stream
from coldstream.plans.probe_fragment import probe_fragment
from coldstream.remote.context import Context
from coldstream.remote.roots import load
from coldstream.usecases.claim_function import OwnRights
from coldstream.usecases.commit_runs import commit_runs
from coldstream_devkit.generator import write_stream

STREAM = "__orders_1745252105682952932"
NOW_MS = 1_790_000_000_000


def no_pause(attempt: int) -> None:
    del attempt


def found(check: Check) -> list[tuple[Level, str]]:
    return [(each.level, each.about) for each in perform([check])]


# --- how checks are carried out


def test_a_check_that_hangs_fails_in_time_and_keeps_what_it_had_found() -> None:
    over, waited = threading.Event(), threading.Event()

    def hang() -> Iterator[Finding]:
        yield ok("first", "is well")
        over.wait(300)
        waited.set()

    first, hung, after = perform(
        [
            Check("slow", hang, "restart it", seconds=1.0),
            Check("next", lambda: [ok("next", "is well")], ""),
        ]
    )
    gave_up = not waited.is_set()
    over.set()

    assert gave_up
    assert [first.level, hung.level, after.level] == [Level.OK, Level.FAILED, Level.OK]
    assert (hung.about, hung.remedy, hung.seconds) == ("slow", "restart it", 1.0)


@pytest.mark.parametrize(
    "error", [UnavailableError("no answer"), OSError("no file"), KeyError("a bug")]
)
def test_a_check_that_raises_stops_no_other(error: Exception) -> None:
    def fall() -> Iterator[Finding]:
        yield ok("first", "is well")
        raise error

    findings = list(perform([Check("falls", fall, "mend it"), Check("next", list, "")]))

    assert [each.level for each in findings] == [Level.OK, Level.FAILED]
    assert findings[1].about == "falls"
    assert findings[1].remedy


# --- the data directory


def directory(path: Path, **more: Any) -> Finding:
    (finding,) = machine.look_at_directory(path, most=5, **more)
    return finding


def test_streams_that_can_be_read_are_counted(tmp_path: Path) -> None:
    write_stream(tmp_path / STREAM, messages=10)

    assert directory(tmp_path).said == f"{tmp_path} holds 1 stream, which can be read"


def test_a_new_brokers_missing_directory_is_well_and_a_missing_one_above_is_not(
    tmp_path: Path,
) -> None:
    assert directory(tmp_path / "stream").level is Level.OK
    missing = directory(tmp_path / "rabbit@other" / "stream")

    assert missing.level is Level.FAILED
    assert missing.said == f"there is no {tmp_path / 'rabbit@other'}"
    assert "rabbit:data_dir" in missing.remedy


def test_an_empty_directory_is_well_and_one_with_something_else_is_strange(tmp_path: Path) -> None:
    assert directory(tmp_path).level is Level.OK
    (tmp_path / "quorum").mkdir()
    assert directory(tmp_path).level is Level.WARNING


@pytest.mark.parametrize("denied", ["base", "base/stream", f"base/stream/{STREAM}"])
def test_the_directory_that_denies_is_named_with_its_group_and_what_to_do(
    tmp_path: Path, denied: str
) -> None:
    data_dir = tmp_path / "base" / "stream"
    write_stream(data_dir / STREAM, messages=10)
    wall = tmp_path / denied

    def access(path: Path, mode: int) -> bool:
        return not (mode & os.X_OK and wall in (path, *path.parents))

    wall.chmod(0o750)
    member = directory(data_dir, access=access)
    wall.chmod(0o700)
    closed = directory(data_dir, access=access)

    assert member.level is closed.level is Level.FAILED
    assert member.said.startswith(f"{wall} (")
    assert "0750" in member.said
    assert "usermod -aG" in member.remedy
    assert f"chmod g+rX {wall}" in closed.remedy


def test_a_segment_that_the_group_may_not_read_is_found(tmp_path: Path) -> None:
    write_stream(tmp_path / STREAM, messages=10)
    (segment,) = (tmp_path / STREAM).glob("*.segment")
    segment.chmod(0o600)

    finding = directory(tmp_path, access=lambda path, mode: path != segment)

    assert finding.level is Level.FAILED
    assert finding.said.startswith(f"{segment} (")
    assert f"chmod g+r {segment}" in finding.remedy


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be somebody else")
def test_another_user_is_really_kept_out_by_the_mode(tmp_path: Path) -> None:
    base = Path("/tmp") / f"coldstream-doctor-{os.getpid()}"
    write_stream(base / "stream" / STREAM, messages=10)
    base.chmod(0o750)
    try:
        os.setegid(65534)
        os.seteuid(65534)
        finding = directory(base / "stream")
    finally:
        os.seteuid(0)
        os.setegid(0)
        shutil.rmtree(base)

    assert finding.level is Level.FAILED
    assert finding.said.startswith(f"{base} (root:root 0750) does not let the user nobody")


# --- clocks


@pytest.mark.parametrize(
    ("seconds", "level"),
    [(0.4, Level.OK), (-4.0, Level.OK), (6.0, Level.WARNING), (-299.0, Level.WARNING),
     (301.0, Level.FAILED), (-3600.0, Level.FAILED)],
)  # fmt: skip
def test_a_clock_is_warned_of_from_five_seconds_and_fails_where_signatures_do(
    seconds: float, level: Level
) -> None:
    assert machine.of_difference(seconds, 0.5).level is level


def test_a_difference_that_may_be_the_networks_is_no_warning() -> None:
    assert machine.of_difference(6.0, 2.0).level is Level.OK


def test_a_chunk_from_the_future_is_warned_of_and_an_old_one_is_not(tmp_path: Path) -> None:
    write_stream(tmp_path / STREAM, messages=100)
    (now,) = machine.look_at_chunks(tmp_path, most=5, now_ms=lambda: 4_000_000_000_000)
    (behind,) = machine.look_at_chunks(tmp_path, most=5, now_ms=lambda: 1_000_000_000_000)

    assert (now.level, behind.level) == (Level.OK, Level.WARNING)
    assert "days ahead of this machine's clock" in behind.said


def test_the_directory_of_one_stream_is_not_taken_for_that_of_all(tmp_path: Path) -> None:
    """It said that all is well and no stream is there yet."""
    write_stream(tmp_path / STREAM, messages=10)

    (found,) = machine.look_at_directory(tmp_path / STREAM, most=5)

    assert found.level is Level.FAILED
    assert found.remedy == f"set --data-dir to {tmp_path}"


def test_the_newest_chunk_is_looked_for_where_something_was_written_last(tmp_path: Path) -> None:
    """Not in directories that were made last, of which many hold nothing."""
    write_stream(tmp_path / STREAM, messages=100)
    for number in range(7):
        write_stream(tmp_path / f"__empty_{number}", messages=0)
    old = tmp_path / "__old_1745252105682952932"
    write_stream(old, messages=10, start_timestamp=1_500_000_000_000)
    for each in old.iterdir():
        os.utime(each, (1_500_000_000, 1_500_000_000))

    (found,) = machine.look_at_chunks(tmp_path, most=1, now_ms=lambda: 1_790_000_000_000)

    assert "days" not in found.said


# --- the probe


class Bucket(MemoryObjectStore):
    """A bucket whose events come, if they do."""

    def __init__(self, catalog: MemoryCatalog) -> None:
        super().__init__()
        self.catalog = catalog
        self.announces = True

    def put(self, key: str, body: Any, *, write_id: str, crc: int | None = None) -> None:
        super().put(key, body, write_id=write_id, crc=crc)
        if key.endswith(".fragment") and self.announces:
            stream = key.split("/")[2]
            commit_runs(
                Context(self, self.catalog, "rabbitmq/", lambda: 10**9 + len(self.objects)),
                stream,
                pause=no_pause,
            )


@pytest.fixture
def catalog() -> MemoryCatalog:
    return MemoryCatalog()


@pytest.fixture
def context(catalog: MemoryCatalog) -> Context:
    uids = iter(range(1, 10**6))
    return Context(Bucket(catalog), catalog, "rabbitmq/", lambda: next(uids))


@pytest.fixture
def probe(context: Context) -> Probe:
    function = OwnRights(context, no_pause, lambda: NOW_MS)
    return Probe(
        context, function, "rabbit.1", no_pause, lambda: NOW_MS, wait_seconds=0,
        sleep=lambda _: None,
    )  # fmt: skip


def test_a_probe_arrives_and_every_later_one_goes_on_where_it_ended(
    probe: Probe, context: Context
) -> None:
    for end in (1, 2, 3):
        levels = found(probe.check())

        assert levels == [
            (Level.OK, f"probe: {stage}") for stage in ("claim", "upload", "event", "read")
        ]
        loaded = load(context, probe_stream("rabbit.1", 1))
        assert (loaded.root.first_offset, loaded.root.next_offset) == (0, end)
    assert loaded.item.name == probe_name("rabbit.1")
    assert loaded.item.epoch == 1, "later runs need no claim"


def test_events_that_do_not_come_fail_and_the_probe_is_committed_by_asking(
    probe: Probe, context: Context
) -> None:
    assert isinstance(context.store, Bucket)
    context.store.announces = False

    levels = found(probe.check())

    assert (Level.FAILED, "probe: event") in levels
    assert (Level.OK, "probe: commit") in levels
    assert load(context, probe_stream("rabbit.1", 1)).root.next_offset == 1


def test_a_probe_stream_that_was_deleted_is_followed_by_another(
    probe: Probe, catalog: MemoryCatalog
) -> None:
    found(probe.check())
    change = StateChange(
        probe_stream("rabbit.1", 1), catalog.table_id(), 0, StreamState.LIVE, StreamState.DELETING,
        uid=7,
    )  # fmt: skip
    catalog.change_state(change)

    assert (Level.FAILED, "probe") not in found(probe.check())
    item = catalog.get(probe_stream("rabbit.1", 2))
    assert item is not None
    assert item.next_offset == 1


def test_a_full_probe_stream_takes_no_more_and_says_who_empties_it(
    probe: Probe, context: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    found(probe.check())
    item = context.catalog.get(probe_stream("rabbit.1", 1))
    assert item is not None
    full = replace(item, next_offset=MOST)
    monkeypatch.setattr(context.catalog, "get", lambda stream: full)
    assert isinstance(context.store, Bucket)
    before = dict(context.store.objects)

    (finding,) = perform([probe.check()])

    assert finding.level is Level.WARNING
    assert finding.remedy.startswith(f"`coldstream delete {item.stream}`")
    assert context.store.objects == before


def test_an_upload_that_is_refused_names_the_policy(
    probe: Probe, context: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    put = context.store.put

    def refuse(key: str, body: Any, *, write_id: str, crc: int | None = None) -> None:
        if key.endswith(".fragment"):
            raise PermissionDeniedError("S3 refused the request: AccessDenied", key=key)
        put(key, body, write_id=write_id)

    monkeypatch.setattr(context.store, "put", refuse)

    *_, last = perform([probe.check()])

    assert (last.level, last.about) == (Level.FAILED, "probe")
    assert "AgentPolicyArn" in last.remedy


def test_fragments_of_probes_join_so_that_consolidate_makes_few_of_many() -> None:
    stream = probe_stream("n", 1)
    made = [
        probe_fragment(stream, offset, floor=0, timestamp=NOW_MS - offset, uid=offset)[1]
        for offset in (0, 1, 2, 9_999_999_999, 10_000_000_000)
    ]
    trailers = [parse_trailer(each[-TRAILER_SIZE:]) for each in made]

    assert consolidate.joins(trailers[0], trailers[1])
    assert consolidate.joins(trailers[1], trailers[2])
    assert consolidate.joins(trailers[3], trailers[4])
    assert MOST * max(map(len, made)) < 4_000_000, "as the decision says"


def test_thousands_of_probes_are_some_dozens_of_objects_where_consolidate_runs() -> None:
    stream, sizes = probe_stream("n", 1), []
    made = probe_fragment(stream, 0, floor=0, timestamp=NOW_MS, uid=1)[1]
    first, most = parse_trailer(made[-TRAILER_SIZE:]), 0
    for _ in range(5000):
        sizes.append(1)
        begin, run = 0, []
        for size in sizes:
            trailer = replace(
                first,
                first_offset=begin,
                next_offset=begin + size,
                data_size=size * first.data_size,
                segment_position=first.segment_position + begin * first.data_size,
            )
            run.append(consolidate.SmallFragment(cast(Any, None), trailer))
            begin += size
        chosen = consolidate.choose([run], target_size=2**26, last_is_open=True)
        for pieces in chosen:
            at = run.index(pieces[0])
            sizes[at : at + len(pieces)] = [sum(sizes[at : at + len(pieces)])]
            del run[at + 1 : at + len(pieces)]
        most = max(most, len(sizes))

    assert 8 < most < 48


def test_the_log_of_a_probe_answers_as_one_whose_chunks_are_all_known() -> None:
    log = ProbeLog(3)

    assert [each.chunk_id for each in log.chunks_near(2)] == [1, 2]
    assert [each.chunk_id for each in log.chunks_near(9)] == [2]
    assert [each.chunk_id for each in log.chunks_near(1)] == [0, 2]
    assert [each.chunk_id for each in log.chunks_between(1, 9)] == [1, 2]
    assert [each.chunk_id for each in ProbeLog(1).chunks_near(0)] == [0]


@pytest.mark.parametrize("node", ["rabbit@a.example.org", "ü" * 300, "a_b", ""])
def test_a_probe_stream_is_told_from_every_stream_of_a_broker(node: str) -> None:
    stream = probe_stream(node, 1000)

    assert is_probe(stream) is bool(node)
    assert probe_name(node).fits(stream)
    assert not is_probe("coldstream_doctor-a_1745252105682952932")
    assert not is_probe(STREAM)


# --- what AWS answers


class Allowed:
    """Rights of a machine where all is well, unless a test says otherwise."""

    def __init__(self) -> None:
        self.found: str | None = "env"
        self.ahead = (0.1, 0.5)
        self.error: Exception | None = None
        self.last: Heartbeat | None = None

    def credentials(self) -> str | None:
        return self.found

    def clock(self) -> tuple[float, float]:
        return self.ahead

    def may_beat(self, node: str) -> Heartbeat | None:
        if self.error is not None:
            raise self.error
        return self.last

    def may_ask(self) -> None:
        if self.error is not None:
            raise self.error


def of_rights(rights: Allowed, *, queue: bool = True) -> dict[str, Finding]:
    checks = RightsChecks(rights, "n", queue).checks()
    return {each.about: each for each in perform(checks)}


def test_rights_that_are_there_are_well() -> None:
    assert {each.level for each in of_rights(Allowed()).values()} == {Level.OK}


def test_a_name_under_which_another_agent_tells_is_warned_of() -> None:
    rights, levels = Allowed(), []
    for shared in (0, 1):
        rights.last = Heartbeat("n", 0, 60_000, 1, 0, 0, 0, shared=shared)
        levels.append(of_rights(rights)["heartbeat"].level)

    assert levels == [Level.OK, Level.WARNING]


def test_each_right_that_lacks_fails_for_itself() -> None:
    rights = Allowed()
    rights.error = PermissionDeniedError("DynamoDB refused the request: AccessDeniedException")
    rights.found, rights.ahead = None, (400.0, 1.0)

    rows = of_rights(rights)

    assert {each.level for each in rows.values()} == {Level.FAILED}
    assert "AgentPolicyArn" in rows["heartbeat"].remedy
    assert "AgentPolicyArn" in rows["credentials"].remedy
    assert "chrony" in rows["clock and AWS"].remedy


def test_an_agent_without_a_queue_is_warned() -> None:
    assert of_rights(Allowed(), queue=False)["commit queue"].level is Level.WARNING


def of_tier(context: Context, function: Any) -> dict[str, Finding]:
    checks = TierChecks(context, "n", function).checks()
    return {each.about: each for each in perform(checks)}


def test_a_tier_that_answers_is_well_and_nothing_was_written(context: Context) -> None:
    function = OwnRights(context, no_pause, lambda: NOW_MS)

    rows = of_tier(context, function)

    assert [(each.about, each.level) for each in rows.values()] == [
        ("bucket", Level.OK), ("table", Level.OK), ("claim function", Level.OK),
    ]  # fmt: skip
    assert isinstance(context.store, Bucket)
    assert not context.store.objects
    assert not list(context.catalog.streams())


class Says:
    """A function that answers with these bytes."""

    def __init__(self, answer: bytes) -> None:
        self.answer = answer

    def invoke(self, request: bytes) -> bytes:
        del request
        return self.answer


@pytest.mark.parametrize("answer", [b"", b"null", b"[]", b'{"who": "another function"}'])
def test_a_function_that_is_another_one_is_found(context: Context, answer: bytes) -> None:
    assert of_tier(context, Says(answer))["claim function"].level is Level.FAILED


def test_an_agent_that_claims_itself_is_warned_of_its_rights(context: Context) -> None:
    assert of_tier(context, None)["claim function"].level is Level.WARNING
