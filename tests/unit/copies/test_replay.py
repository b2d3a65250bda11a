"""History published into another broker: each message once, in order, whatever dies meanwhile."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

import pytest

from coldstream.broker.publishing import MAX_ENTRY
from coldstream.copies.replay import OtherHistoryError, Publishing, Replay
from coldstream.copies.runs import HistoryChangedError
from coldstream.errors import InvalidInputError, LostRangeError, UnavailableError
from coldstream.manifest.entries import Entries
from coldstream.osiris.chunk import Buffer, ChunkType, iter_chunks
from coldstream.osiris.entry import Codec, encode_simple, encode_sub_batch, iter_messages
from coldstream.plans.replay import rows
from coldstream.reader import Gap, GapReason, Offset, StreamReader
from coldstream.reader.follow import RangeRead
from coldstream_devkit.generator import join_chunk
from tests.support.tier import FIXTURES, Tier, chunk


@dataclass
class Broker:
    """A log that drops what it has, as Osiris does; what is not committed may be lost.

    Attributes:
        log: publishing id and entry.
        committed: how many entries of it.
        dies: says whether a connection breaks now.
    """

    dies: Callable[[], bool] = lambda: False
    log: list[tuple[int, bytes]] = field(default_factory=list)
    committed: int = 0

    @property
    def last(self) -> int:
        return self.log[-1][0] if self.log else 0

    def connect(self) -> Publishing:
        if self.dies():
            raise UnavailableError("it does not answer")
        return _Connection(self)


@dataclass
class _Connection:
    broker: Broker
    waiting: dict[int, int] = field(default_factory=dict)
    confirmed: int = 0

    def sequence(self) -> int:
        self._may_break()
        return self.broker.last

    def publish(self, rows: list[tuple[int, Buffer]]) -> None:
        for number, entry in rows:
            self._may_break()
            self.waiting[number] = len(entry)
            if number > self.broker.last:
                self.broker.log.append((number, bytes(entry)))

    def take(self, seconds: float) -> None:
        self._may_break()
        if seconds:
            self.broker.committed = len(self.broker.log)
        last = self.broker.log[self.broker.committed - 1][0] if self.broker.committed else 0
        for number in [each for each in self.waiting if each <= last]:
            del self.waiting[number]
            self.confirmed = max(self.confirmed, number)

    def close(self) -> None:
        pass

    def _may_break(self) -> None:
        if self.broker.dies():
            # The next leader may lack what was not committed.
            del self.broker.log[self.broker.committed :]
            raise UnavailableError("the broker hung up")


def replay(
    reader: StreamReader, broker: Broker, start: int = 0, end: int | None = None, **more: Any
) -> Any:
    root = reader.snapshot().root
    end = root.next_offset if end is None else end
    more = {"largest": MAX_ENTRY, "sleep": lambda _: None} | more
    return Replay(reader, broker.connect, max(start, root.first_offset), end, **more).run()


def messages(broker: Broker) -> list[bytes]:
    """Of what is committed, as a consumer gets them."""
    found: list[bytes] = []
    for at, (_, entry) in enumerate(broker.log[: broker.committed]):
        records = int.from_bytes(entry[1:3], "big") if entry[0] & 0x80 else 1
        (one,) = iter_chunks(join_chunk(at, 1, 1, [entry], records))
        found += map(bytes, iter_messages(one))
    return found


def everything(reader: StreamReader, start: int = 0, end: int = 2**63) -> list[bytes]:
    return [bytes(m.body) for m in reader.messages(Offset(start), Offset(end))]


@pytest.mark.parametrize("name", ["subgzip-4.3.6", "codecs-4.3.6", "dedup-3.10.8", "filter-4.3.6"])
def test_messages_and_sub_batches_are_the_same_bytes(name: str) -> None:
    tier, broker = Tier(), Broker()
    reader = tier.reader(tier.add_fixture(name))

    done = replay(reader, broker)

    assert messages(broker) == everything(reader)
    assert done.messages == FIXTURES[name]["messages"]
    numbers = [number for number, _ in broker.log]
    assert numbers == sorted(set(numbers))
    if "gzip" in name:
        assert len(broker.log) < done.messages / 10


@pytest.mark.parametrize("seed", range(10))
def test_each_message_is_there_once_whatever_breaks(seed: int) -> None:
    random = Random(seed)
    tier = Tier()
    reader = tier.reader(tier.add_fixture(random.choice(["subgzip-4.3.6", "dedup-4.3.6"])))
    broker = Broker(lambda: random.random() < 0.004)
    for _ in range(100):
        try:
            done = replay(reader, broker)
            break
        except UnavailableError:
            continue
    else:
        pytest.fail("it was never done")

    assert messages(broker) == everything(reader)
    assert done.next_offset == reader.snapshot().root.next_offset


def test_what_the_broker_has_is_not_relied_on_before_it_is_committed() -> None:
    tier = Tier()
    tier.add("s", [[chunk(0, b"a", b"b")]])
    broker = Broker()
    replay(tier.reader("s"), broker)
    broker.committed = 1  # a fail-over may still take the last one

    calls = itertools.count()
    broker.dies = lambda: next(calls) == 3  # once, after the new session has asked where to go on
    replay(tier.reader("s"), broker)

    assert messages(broker) == [b"a", b"b"]


def test_a_sub_batch_goes_message_by_message_where_a_bound_lies_inside_it() -> None:
    tier, broker = Tier(), Broker()
    entries = [
        encode_simple(b"0"),
        encode_sub_batch([b"1", b"2", b"3"], Codec.GZIP),
        encode_sub_batch([b"4", b"5"], Codec.GZIP),
        encode_simple(b"6"),
        encode_sub_batch([b"7", b"8", b"9"], Codec.GZIP),
    ]
    tier.add("s", [[join_chunk(0, 1, 1000, entries, 10)]])

    replay(tier.reader("s"), broker, 2, 9)

    assert messages(broker) == [b"2", b"3", b"4", b"5", b"6", b"7", b"8"]
    assert [number for number, _ in broker.log] == [3, 4, 6, 7, 8, 9]
    replay(tier.reader("s"), broker, 2)
    assert messages(broker) == [b"2", b"3", b"4", b"5", b"6", b"7", b"8", b"9"]


def test_a_sub_batch_that_no_frame_can_hold_goes_message_by_message() -> None:
    (one,) = iter_chunks(
        join_chunk(0, 1, 1000, [encode_sub_batch([b"a" * 60, b"b" * 60], Codec.NONE)], 2)
    )

    assert [row.number for row in rows(one, 0, 2, largest=1000)] == [2]
    assert [row.number for row in rows(one, 0, 2, largest=100)] == [1, 2]


def test_a_message_that_no_frame_can_hold_is_told_with_its_offset() -> None:
    tier, broker = Tier(), Broker()
    tier.add("s", [[chunk(0, b"small")], [chunk(1, b"x" * 500)]])

    with pytest.raises(InvalidInputError, match="offset 1"):
        replay(tier.reader("s"), broker, largest=100)
    assert len(broker.log) <= 1


def test_a_hole_stops_it_unless_it_may_be_passed_over() -> None:
    tier, broker = Tier(), Broker()
    tier.add("s", [[chunk(0, b"0")], tier.hole(1, 5), [chunk(5, b"5")]])

    with pytest.raises(LostRangeError, match="1 to 4"):
        replay(tier.reader("s"), broker)

    told: list[Gap] = []
    replay(tier.reader("s"), broker, skip_gaps=True, on_gap=told.append)
    assert messages(broker) == [b"0", b"5"]
    assert told == [Gap(1, 5)]


def test_what_retention_has_taken_between_two_runs_stops_it_unless_it_may_be_passed_over() -> None:
    """The second one began behind what the target had, and said that all of it was there."""
    tier, broker, gaps = Tier(), Broker(), list[Gap]()
    root = tier.add("s", [[chunk(n, b"%d" % n)] for n in range(20)])
    replay(tier.reader("s"), broker, 0, 5)
    tier.commit("s", replace(root, first_offset=12, entries=Entries.of(list(root.entries)[12:])))

    with pytest.raises(LostRangeError, match="begins at 12: 7 offsets"):
        replay(tier.reader("s"), broker)
    replay(tier.reader("s"), broker, skip_gaps=True, on_gap=gaps.append)

    assert [(gap.first_offset, gap.next_offset) for gap in gaps] == [(5, 12)]
    assert messages(broker) == [b"%d" % n for n in (*range(5), *range(12, 20))]


@pytest.mark.parametrize(("start", "until", "missed"), [(0, 9, (0, 5)), (2, 4, (2, 4))])
def test_what_is_missing_where_a_replay_begins_stops_it_unless_it_may_be_passed_over(
    start: int, until: int, missed: tuple[int, int]
) -> None:
    """`--from 0` said of the target that it had all messages."""
    tier, broker, gaps = Tier(), Broker(), list[Gap]()
    tier.add("s", [[chunk(n, b"%d" % n)] for n in range(5, 9)])
    words = tier.reader("s"), broker.connect, start, until, MAX_ENTRY

    with pytest.raises(LostRangeError, match=f"offsets {missed[0]} to {missed[1] - 1} were") as no:
        Replay(*words).run()
    Replay(*words, skip_gaps=True, on_gap=gaps.append).run()

    assert "--from first" in no.value.remedy
    assert "--skip-gaps" in no.value.remedy
    assert gaps == [Gap(*missed, GapReason.RETENTION)]
    assert messages(broker) == [b"%d" % n for n in range(5, until)]


@pytest.mark.parametrize("first", [0, 4, 5, 6])
def test_a_beginning_that_moves_from_run_to_run_is_that_of_the_first_run(first: int) -> None:
    """`--from -8`, killed, and the stream has grown: what lies between was never sent."""
    tier, broker = Tier(), Broker()
    root = tier.add("s", [[chunk(n, b"%d" % n)] for n in range(20)])
    replay(tier.reader("s"), broker, 3, 5)
    entries = Entries.of(list(root.entries)[first:])
    tier.commit("s", replace(root, first_offset=first, entries=entries))
    reader = tier.reader("s")

    if first > 5:
        with pytest.raises(LostRangeError):
            replay(reader, broker, 12, goes_on=True)
    else:
        replay(reader, broker, 12, goes_on=True)
        assert messages(broker) == [b"%d" % n for n in range(3, 20)]


@pytest.mark.parametrize(("first", "until"), [(5, 20), (6, 20), (5, 5)])
def test_what_the_target_has_already_is_not_missed_where_retention_takes_it_between_two_sessions(
    first: int, until: int
) -> None:
    """The last entry is sent once more; only where nothing follows, nothing else confirms it."""
    tier, connects = Tier(), itertools.count()
    root = tier.add("s", [[chunk(n, b"%d" % n)] for n in range(20)])
    broker = Broker()
    replay(tier.reader("s"), broker, 0, 5)
    broker.dies = lambda: next(connects) == 0

    def retain(_: float) -> None:
        entries = Entries.of(list(root.entries)[first:])
        tier.commit("s", replace(root, first_offset=first, entries=entries))

    missed = {(6, 20): "offsets 5 to 5", (5, 5): "offsets 4 to 4"}.get((first, until))
    if missed is not None:
        with pytest.raises(LostRangeError, match=f"^{missed} were"):
            replay(tier.reader("s"), broker, 0, until, sleep=retain)
        return
    replay(tier.reader("s"), broker, 0, until, sleep=retain)
    assert messages(broker) == [b"%d" % n for n in range(20)]


def test_a_name_that_stands_for_another_history_is_refused() -> None:
    tier = Tier()
    tier.add("s", [[chunk(0, b"0")]])

    with pytest.raises(OtherHistoryError):
        replay(tier.reader("s"), Broker(log=[(7, b"")], committed=1))


def test_a_rate_is_kept_to() -> None:
    tier, broker = Tier(), Broker()
    tier.add("s", [[chunk(at, *[b"x"] * 10)] for at in range(0, 200, 10)])
    now = [0.0]

    def sleep(seconds: float) -> None:
        now[0] += seconds

    replay(tier.reader("s"), broker, rate=10, clock=lambda: now[0], sleep=sleep)

    assert 19 < now[0] < 21
    assert len(messages(broker)) == 200


@pytest.mark.parametrize("late", [False, True])
def test_what_was_sent_and_is_cut_off_before_the_next_session_is_told(
    monkeypatch: pytest.MonkeyPatch, late: bool
) -> None:
    """Else the rest would be of another history, whose messages 5 to 9 nobody has sent.

    It may come after the look at the manifest, if what that has is gone at the first range.
    """
    tier = Tier()
    reader, broken = tier.reader("s"), list[bool]()
    root = tier.add("s", [[chunk(n, b"old")] for n in range(20)])
    cut = replace(
        root,
        epoch=2,
        ledger=root.ledger.claimed(2, 5),
        entries=Entries.of(
            [
                *list(root.entries)[:5],
                *(
                    tier.upload("s", [chunk(n, b"new", epoch=2)], epoch=2, floor=5)
                    for n in range(5, 20)
                ),
            ]
        ),
    )
    calls = itertools.count()

    def dies() -> bool:
        if next(calls) != 12:
            return False
        if not late:
            tier.commit("s", cut)
        broken.append(True)
        return True

    def begin(*bounds: Offset) -> RangeRead:
        read = StreamReader.begin(reader, *bounds)
        if late and broken:
            tier.commit("s", cut)
            for number in range(5, 20):
                tier.store.objects.pop(tier.key(root, "s", number), None)
        return read

    broker = Broker(dies)
    monkeypatch.setattr(reader, "begin", begin)
    with pytest.raises(HistoryChangedError, match="5 on have been cut off"):
        replay(reader, broker)
    assert b"new" not in messages(broker)


def test_a_claim_that_cuts_off_nothing_stops_no_replay() -> None:
    tier = Tier()
    root = tier.add("s", [[chunk(n, b"old")] for n in range(20)])
    calls = itertools.count()

    def dies() -> bool:
        if next(calls) != 12:
            return False
        tier.commit("s", replace(root, epoch=2, ledger=root.ledger.claimed(2, 20)))
        return True

    broker = Broker(dies)
    replay(tier.reader("s"), broker)
    assert messages(broker) == [b"old"] * 20


def test_a_replay_that_goes_on_far_below_its_beginning_is_given_up_no_sooner() -> None:
    """It saw no progress before it had come to the beginning that was meant today."""
    tier, calls = Tier(), itertools.count(1)
    tier.add("s", [[chunk(n, b"%d" % n)] for n in range(200)])
    reader, broker = tier.reader("s"), Broker()
    replay(reader, broker, 0, 5)

    def dies() -> bool:
        broker.committed = len(broker.log)
        return next(calls) % 40 == 0

    broker.dies, now = dies, [0.0]
    done = replay(
        reader, broker, 190, goes_on=True, rate=10, clock=lambda: now[0],
        sleep=lambda seconds: now.append(now.pop() + seconds),
    )  # fmt: skip

    assert messages(broker) == everything(reader)
    assert done.first == 4
    assert done.sessions > 6


def test_offsets_of_tracking_data_are_no_gap_between_two_replays() -> None:
    tier, broker = Tier(), Broker()
    tracking = chunk(5, b"o", kind=ChunkType.TRACKING_DELTA)
    tier.add("s", [[*(chunk(n, b"%d" % n) for n in range(5)), tracking, chunk(6, b"6")]])
    replay(tier.reader("s"), broker, 0, 6)

    replay(tier.reader("s"), broker, 6)

    assert messages(broker) == [b"0", b"1", b"2", b"3", b"4", b"6"]
