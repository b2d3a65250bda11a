"""What the agent does next with a stream: each rule by itself, and what holds whatever comes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coldstream.agent.faults import LostLocallyError
from coldstream.agent.settings import AgentSettings
from coldstream.agent.stream.between import failing, given_back, landed, vanished
from coldstream.agent.stream.cutting import OwnClaim
from coldstream.agent.stream.due import LEVEL_SECONDS, Reasons, settled, wake_at
from coldstream.agent.stream.effects import (
    BeginsAbove,
    Begun,
    Bridge,
    Claimed,
    Compare,
    Cut,
    CutTo,
    Effect,
    Event,
    Failed,
    Follow,
    Help,
    Helped,
    Hold,
    OpenStream,
    ReadItem,
    ReadTurn,
    Rest,
    Restart,
    Rested,
    Seen,
    TellTakeOver,
    TurnRead,
    Unclaimed,
    Watch,
    Watching,
)
from coldstream.agent.stream.gaps import Bridged
from coldstream.agent.stream.opening import Opened
from coldstream.agent.stream.state import (
    Behind,
    Blocked,
    Course,
    Cutting,
    Draining,
    Missed,
    Opening,
    Suspect,
    Waiting,
)
from coldstream.agent.stream.step import placed, step
from coldstream.errors import CorruptDataError, FencedError, UnavailableError
from coldstream.manifest.catalog import CatalogItem, QueueName
from coldstream.manifest.ledger import Ledger
from coldstream.manifest.root import Root
from coldstream.usecases.commit_runs import CommitReport

SETTINGS = AgentSettings(flush_ms=10_000, takeover_seconds=60.0, rescan_seconds=30.0)
LEDGER = Ledger.of([(2, 50)])
CLAIM = OwnClaim(2, 0, LEDGER)
FAULT = UnavailableError("no answer")
DAMAGE = CorruptDataError("a CRC does not hold", offset=70)


def seen(now: float = 100.0, **more: Any) -> Seen:
    given_ = {
        "now_ms": 0,
        "most": 3,
        "committed": 1000,
        "writer": True,
        "oldest_at": None,
        "unproved_at": None,
        "store_at": now,
        "stuck": None,
        "settings": SETTINGS,
    }
    return Seen(now=now, **(given_ | more))


def opened(next_offset: int = 50, *, waiting: bool = False, waits_at: int | None = None) -> Claimed:
    root = Root(first_offset=0, next_offset=next_offset, epoch=2, ledger=LEDGER)
    report = CommitReport("s", 0, 0, 0, 0, 1, next_offset, root, (), waiting=waiting)
    return Claimed(Opened(2, 0, LEDGER, next_offset, report, waits_at))


def item(next_offset: int, *, epoch: int = 2, ledger: Ledger = LEDGER) -> CatalogItem:
    return CatalogItem("s", "t", epoch=epoch, next_offset=next_offset, ledger=ledger)


#: Claimed up to 50, cut up to 80; [50, 60) and [60, 80) are under way.
UNDER_WAY = Course(Cutting(CLAIM), next_offset=50, position=80, cut_offset=80, flying=(50, 60))


def kinds(effects: tuple[Effect, ...]) -> list[type]:
    return [type(each) for each in effects]


# --- to open, and to cut ---


def test_a_stream_is_claimed_and_cut_from_where_its_manifest_ends() -> None:
    course, effects = step(Course(), seen(), Begun())
    assert effects == (OpenStream(1000),)

    course, effects = step(course, seen(), opened(50))

    assert course.state == Cutting(CLAIM)
    assert (course.next_offset, course.position) == (50, 50)
    assert effects == (
        Restart(50),
        Cut(CLAIM, 1000, 3, hurry=False),
        Watch(),
        Hold(),
        Compare(2, 1000),
    )


def test_a_stream_without_a_committed_chunk_waits() -> None:
    course, _ = step(Course(), seen(), Begun())

    course, effects = step(course, seen(), Unclaimed(unproved=True))

    assert (course.state, effects) == (Waiting(unproved=True), ())


def test_what_is_cut_is_under_way_until_it_is_back() -> None:
    course, _ = step(replace(UNDER_WAY, flying=()), seen(), CutTo(90, (80,), over=False))
    assert (course.flying, course.position, course.cut_offset) == ((80,), 90, 90)

    assert landed(course, 80, 101.0).flying == ()


def test_a_chunk_of_a_higher_epoch_ends_the_claim_once_all_is_back() -> None:
    course, _ = step(UNDER_WAY, seen(), CutTo(80, (), over=True))
    assert course.state == Draining(CLAIM)
    assert step(course, seen(), Begun()) == (course, (Hold(),))

    course = landed(landed(course, 50, 101.0), 60, 102.0)
    course, effects = step(course, seen(103.0), Begun())

    assert (course.state, kinds(effects)) == (Opening(CLAIM), [OpenStream])


def test_behind_what_is_suspect_nothing_is_cut_before_it_is_there() -> None:
    course, effects = step(Course(Opening()), seen(), opened(50, waiting=True))
    assert effects[1] == Cut(CLAIM, 1000, 1, hurry=False)

    course, _ = step(course, seen(), CutTo(60, (50,), over=False))
    assert Cut not in kinds(step(course, seen(), Begun())[1])

    course = landed(course, 50, 101.0)
    assert course.state == Cutting(CLAIM)


def test_what_waits_above_is_taken_by_a_claim_once_what_is_missing_is_there() -> None:
    course, _ = step(Course(Opening()), seen(), opened(50, waits_at=60))
    assert course.suspect == Suspect(59, joins=True)

    course, _ = step(course, seen(), CutTo(60, (50,), over=False))
    course = landed(course, 50, 101.0)
    assert course.state == Draining(CLAIM)

    course, _ = step(course, seen(), Begun())
    course, _ = step(course, seen(), opened(50, waits_at=60))
    assert course.suspect == Suspect(59, joins=False), "it did not help, so not again and again"


def test_of_a_stream_that_is_gone_the_tail_is_cut_only_where_the_rules_say_so() -> None:
    gone = vanished(replace(UNDER_WAY, flying=()), 100.0)
    keep = replace(SETTINGS, upload_tail=False)

    assert Cut(CLAIM, 1000, 3, hurry=True) in step(gone, seen(), Begun())[1]
    assert Cut not in kinds(step(gone, seen(settings=keep), Begun())[1])


# --- faults ---


def test_after_a_fault_nothing_is_cut_and_the_stream_is_claimed_anew_later() -> None:
    course, effects = step(UNDER_WAY, seen(), Failed(FAULT, 130.0))
    assert (course.state, course.error, effects) == (Draining(CLAIM, 130.0), FAULT, (Hold(),))

    course, effects = step(course, seen(129.0), Begun())
    assert effects == (Watch(), Hold()), "what was uploaded may still enter the manifest"

    course, effects = step(replace(course, flying=()), seen(130.0), Begun())
    assert kinds(effects) == [OpenStream]
    course, _ = step(course, seen(130.0), opened(80))
    assert course.error is None


def test_a_second_fault_while_the_first_waits_is_not_the_one_that_is_told() -> None:
    course = failing(UNDER_WAY, FAULT, 130.0)

    course, _ = step(course, seen(), Failed(DAMAGE, 999.0))

    assert (course.error, course.until, course.gave_up) == (FAULT, 130.0, True)


def test_a_fault_before_any_claim_waits() -> None:
    course = failing(Course(Opening()), FAULT, 130.0)

    assert course.state == Waiting(130.0)
    assert step(course, seen(), Begun()) == (course, (Hold(),))


def test_a_stream_that_the_store_failed_waits_until_the_store_is_worth_asking() -> None:
    course = failing(Course(), FAULT, 90.0)

    course, effects = step(course, seen(100.0, store_at=500.0), Begun())

    assert (course.until, effects) == (500.0, (Hold(),))


def test_before_a_damaged_chunk_all_is_cut_at_once_and_nothing_from_it_on() -> None:
    course = given_back(UNDER_WAY, 60, DAMAGE, 100.0, 130.0)
    assert (course.state, course.position, course.error) == (Blocked(CLAIM, 70, 130.0), 60, DAMAGE)

    course, effects = step(course, seen(), Begun())

    assert effects[0] == Cut(CLAIM, 70, 3, hurry=True)
    assert course.error is DAMAGE


def test_a_damaged_chunk_is_tried_again_alone() -> None:
    course = given_back(UNDER_WAY, 60, DAMAGE, 100.0, 130.0)
    course = replace(course, flying=())

    course, effects = step(course, seen(130.0), Begun())

    assert course.state == Cutting(CLAIM, Suspect(70))
    assert effects[0] == Cut(CLAIM, 1000, 1, hurry=False)


def test_one_run_does_not_try_a_damaged_chunk_again() -> None:
    once = replace(SETTINGS, once=True)
    course = given_back(UNDER_WAY, 60, DAMAGE, 100.0, 130.0)

    assert step(course, seen(500.0, settings=once), Begun())[0].state == Blocked(CLAIM, 70, 130.0)


def test_the_lowest_damaged_chunk_counts() -> None:
    course = given_back(UNDER_WAY, 60, DAMAGE, 100.0, 130.0)

    course = given_back(course, 50, CorruptDataError("x", offset=55), 101.0, 131.0)

    assert course.state == Blocked(CLAIM, 55, 131.0)


def test_a_fault_elsewhere_does_not_forget_the_damaged_chunk() -> None:
    course = given_back(UNDER_WAY, 60, DAMAGE, 100.0, 130.0)
    course, _ = step(course, seen(), Failed(FAULT, 140.0))
    course, _ = step(replace(course, flying=()), seen(140.0), Begun())

    course, effects = step(course, seen(140.0), opened(60))

    assert course.suspect == Suspect(70)
    assert effects[1] == Cut(CLAIM, 1000, 1, hurry=False)


# --- the manifest ---


def test_a_manifest_of_a_newer_epoch_ends_the_claim() -> None:
    course, effects = step(UNDER_WAY, seen(), item(90, epoch=3))

    assert (course.state, course.next_offset, effects) == (Draining(CLAIM), 50, ())


def test_a_ledger_without_the_claim_has_it_made_again_but_not_at_every_look() -> None:
    other = Ledger.of([(2, 40)])
    course, _ = step(UNDER_WAY, seen(100.0), item(50, ledger=other))
    assert course.state == Draining(CLAIM)

    again = replace(course, state=Cutting(CLAIM))
    assert step(again, seen(129.0), item(50, ledger=other))[0].state == Cutting(CLAIM)
    assert step(again, seen(130.0), item(50, ledger=other))[0].state == Draining(CLAIM)


def test_a_manifest_that_does_not_follow_is_helped() -> None:
    course, effects = step(UNDER_WAY, seen(), item(60))

    assert course.next_offset == 60
    assert effects == (Follow(moved=True), Help(item(60)))


def test_a_manifest_that_another_agent_has_moved_on_restarts_nothing_under_way() -> None:
    assert step(UNDER_WAY, seen(), item(95))[0].position == 80

    course, effects = step(replace(UNDER_WAY, flying=()), seen(), item(95))
    assert (course.position, course.cut_offset) == (95, 95)
    assert effects == (Follow(moved=True), Restart(95), Follow(moved=True))


def test_what_is_cut_a_second_time_still_counts_as_cut() -> None:
    course, effects = step(UNDER_WAY, seen(), Helped(50))

    assert (course.position, course.cut_offset, effects) == (50, 80, (Restart(50),))


def test_a_level_manifest_is_read_only_now_and_then() -> None:
    level = replace(UNDER_WAY, next_offset=80, flying=(), watched_at=100.0)

    assert step(level, seen(LEVEL_SECONDS), Watching(trying=False))[1] == (Follow(moved=False),)
    assert ReadItem in kinds(step(level, seen(101.0 + LEVEL_SECONDS), Watching(trying=False))[1])
    assert ReadItem in kinds(step(level, seen(200.0), Watching(trying=True))[1])


def test_a_gap_below_the_log_is_looked_into_once_nothing_is_under_way() -> None:
    assert step(UNDER_WAY, seen(), BeginsAbove(90)) == (UNDER_WAY, ())

    idle = replace(UNDER_WAY, flying=())
    assert step(idle, seen(), BeginsAbove(90)) == (idle, (Bridge(2, 90, 1000),))

    course, effects = step(idle, seen(), Bridged(80, 2, 90, waiting=True))
    assert (course.next_offset, course.position, course.hole_end) == (80, 90, 90)
    assert effects == (Restart(90),)
    assert step(course, seen(), Begun())[1][0] == Cut(CLAIM, 1000, 3, hurry=False, hole_end=90)
    assert step(idle, seen(), Bridged(80, 3, 90))[0].state == Draining(CLAIM)


def test_below_a_gap_that_others_had_their_time_for_nothing_is_cut_as_if_a_hole_waited_for_it() -> (
    None
):
    """The log may have got older data meanwhile: then no hole ends where the gap did."""
    idle = replace(UNDER_WAY, flying=())
    missed = Missed(160.0, LostLocallyError("they are waited for"))
    waiting = Bridged(80, 2, 90, waiting=True, missed=missed)
    course, _ = step(idle, seen(), waiting)
    assert step(course, seen(159.0), Begun())[1][0] == Cut(CLAIM, 1000, 3, hurry=False, hole_end=90)

    course, effects = step(course, seen(160.0), Begun())

    assert effects[:2] == (Restart(80), Cut(CLAIM, 1000, 3, hurry=False))
    assert (course.position, course.hole_end, course.missed) == (80, None, None)


# --- whose work it is ---


def test_another_nodes_stream_is_left_to_it() -> None:
    course, effects = step(Course(), seen(writer=False), Begun())

    assert (course, effects) == (Course(), (Rest(), Hold()))
    assert step(course, seen(writer=False), Rested(unproved=True))[0].state == Waiting(
        unproved=True
    )


def test_what_was_begun_before_the_writer_went_elsewhere_is_finished() -> None:
    assert step(UNDER_WAY, seen(writer=False), Begun()) == (UNDER_WAY, (Watch(), Hold()))
    behind = replace(UNDER_WAY, flying=())
    assert step(behind, seen(writer=False), Begun()) == (behind, (Watch(), Hold()))
    level = replace(behind, next_offset=80)
    assert kinds(step(level, seen(writer=False), Begun())[1]) == [Rest, Hold]


def test_where_the_writers_agent_does_nothing_its_work_is_done() -> None:
    waits = seen(100.0, writer=False, oldest_at=30.0)
    course, effects = step(replace(Course(), next_offset=50), waits, Begun())
    assert effects == (ReadTurn(),)

    alive, effects = step(course, waits, TurnRead(60))
    assert (alive.next_offset, kinds(effects)) == (60, [Rest, Hold])
    assert kinds(step(alive, waits, Begun())[1]) == [Rest, Hold], "it is given time once more"

    acts, effects = step(course, waits, TurnRead(50))
    assert kinds(effects) == [TellTakeOver, OpenStream]
    assert kinds(step(acts, seen(699.0, writer=False), Begun())[1]) == [OpenStream]
    assert kinds(step(acts, seen(700.0, writer=False), Begun())[1]) == [Rest, Hold]


def test_a_manifest_of_a_newer_epoch_has_moved_although_it_ends_where_it_did() -> None:
    waits = seen(100.0, writer=False, oldest_at=30.0)
    course = replace(Course(), next_offset=50, epoch=3)
    alive, effects = step(course, waits, TurnRead(50, 5))
    assert (alive.epoch, kinds(effects)) == (5, [Rest, Hold])
    assert kinds(step(alive, waits, TurnRead(50, 5))[1]) == [TellTakeOver, OpenStream]


def test_one_of_whose_log_nothing_is_proved_looks_at_the_manifest_and_takes_nothing_over() -> None:
    waits = seen(100.0, writer=False, unproved_at=30.0)
    course, effects = step(Course(), waits, Begun())
    assert effects == (ReadTurn(),)

    for end in (0, 50):
        course, effects = step(Course(), waits, TurnRead(end))
        assert (course.next_offset, kinds(effects)) == (end, [Rest, Hold])
        assert kinds(step(course, waits, Begun())[1]) == [Rest, Hold], "not at once again"


def test_a_writers_node_that_proves_nothing_sees_what_others_have_published() -> None:
    waits = seen(100.0, unproved_at=30.0)
    assert step(Course(), waits, Begun())[1] == (ReadTurn(),)

    course, effects = step(Course(), waits, TurnRead(50))
    assert (course.next_offset, kinds(effects)) == (50, [OpenStream])
    assert kinds(step(course, waits, Begun())[1]) == [OpenStream]
    assert kinds(step(UNDER_WAY, waits, Begun())[1])[0] is not ReadTurn, "it watches anyway"


def test_one_run_and_a_stream_that_is_gone_are_everybodys_work() -> None:
    once = replace(SETTINGS, once=True)

    assert kinds(step(Course(), seen(writer=False, settings=once), Begun())[1]) == [OpenStream]
    assert kinds(step(vanished(Course(), 100.0), seen(writer=False), Begun())[1]) == [OpenStream]


# --- when it is looked at, and when it is done ---

NOTHING = Reasons(
    stands_by=False,
    turn_at=float("inf"),
    compare_at=float("inf"),
    more=False,
    ripe_at=None,
    unproved=False,
    ask_at=0.0,
    stands=False,
)
LEVEL = replace(UNDER_WAY, next_offset=80, flying=(), watched_at=100.0)


@pytest.mark.parametrize(
    ("course", "reasons", "at"),
    [
        (LEVEL, NOTHING, 100.0 + LEVEL_SECONDS),
        (LEVEL, replace(NOTHING, more=True), 110.0),
        (LEVEL, replace(NOTHING, ripe_at=125.0), 125.0),
        (LEVEL, replace(NOTHING, unproved=True, ask_at=112.0), 112.0),
        (LEVEL, replace(NOTHING, stands=True), 125.0),
        (LEVEL, replace(NOTHING, compare_at=400.0), 400.0),
        (LEVEL, replace(NOTHING, stands_by=True, turn_at=170.0, compare_at=120.0), 170.0),
        (replace(LEVEL, position=90), NOTHING, 110.0),
        (replace(LEVEL, state=Draining(CLAIM)), NOTHING, 110.0),
        (replace(LEVEL, state=Draining(CLAIM, 150.0)), replace(NOTHING, more=True), 150.0),
        (Course(Waiting(unproved=True)), replace(NOTHING, ask_at=115.0), 110.0),
        (Course(Waiting(unproved=True), watched_at=0.0), replace(NOTHING, ask_at=115.0), 115.0),
        (vanished(LEVEL, 100.0), NOTHING, 110.0),
    ],
)
def test_a_stream_is_looked_at_when_there_is_a_reason(
    course: Course, reasons: Reasons, at: float
) -> None:
    assert wake_at(course, 110.0, reasons, once=False) == at


@pytest.mark.parametrize(
    ("course", "done"),
    [
        (LEVEL, True),
        (UNDER_WAY, False),
        (replace(LEVEL, position=90), False),
        (replace(LEVEL, state=Draining(CLAIM)), False),
        (failing(LEVEL, FAULT, 1.0), True),
        (failing(replace(LEVEL, position=90), FAULT, 1.0), False),
        (replace(failing(replace(LEVEL, position=90), FAULT, 1.0), gave_up=True), True),
        (failing(replace(LEVEL, position=90), FencedError("x"), 1.0), True),
        (failing(Course(), FAULT, 1.0), True),
    ],
)
def test_one_run_is_done_when_all_is_there_or_something_failed(course: Course, done: bool) -> None:
    assert settled(course, more=False, hopeless=False) == done


def test_a_stream_is_behind_while_all_is_cut_and_the_manifest_has_not_followed() -> None:
    behind = placed(UNDER_WAY, more=False)

    assert behind.state == Behind(CLAIM)
    assert placed(UNDER_WAY, more=True).state == Cutting(CLAIM)
    assert placed(behind, more=True).state == Cutting(CLAIM)
    assert placed(replace(behind, next_offset=80), more=False).state == Cutting(CLAIM)


# --- whatever comes ---


class Play:
    """Performs effects as an environment that may do anything, and checks every one of them."""

    def __init__(self, draw: Any) -> None:
        self.draw, self.course, self.now = draw, Course(), 100.0
        self.flying: set[int] = set()

    def chance(self) -> bool:
        return bool(self.draw(st.booleans()))

    def offset(self, least: int = 0) -> int:
        return least + int(self.draw(st.integers(0, 20)))

    def look(self) -> None:
        now = seen(
            self.now,
            most=self.draw(st.integers(0, 3)),
            committed=self.offset(),
            writer=self.chance(),
            oldest_at=self.now - 200 if self.chance() else None,
            unproved_at=self.now - 200 if self.chance() else None,
            store_at=self.now + 50 * self.chance(),
            settings=replace(SETTINGS, upload_tail=self.chance()),
        )
        self.course, effects = step(self.course, now, Begun())
        left = list(effects)
        while left:
            effect, *left = left
            self.check(effect)
            for event in self.perform(effect):
                self.course, more = step(self.course, now, event)
                left = [] if isinstance(event, Failed) else [*more, *left]
        assert set(self.course.flying) == self.flying
        self.course = placed(self.course, more=self.chance())

    def check(self, effect: Effect) -> None:
        state, claim = self.course.state, self.course.claim
        if isinstance(effect, OpenStream):
            assert isinstance(state, Opening)
            assert not self.flying, "a claim while something is under way may cut it off"
        if isinstance(effect, Cut):
            assert isinstance(state, Cutting | Behind | Blocked)
            assert effect.claim == claim
            assert claim.epoch
            assert effect.most > 0
            if isinstance(state, Blocked):
                assert effect.limit <= state.at
            if isinstance(state, Cutting | Behind) and state.suspect is not None:
                assert effect.most == 1
                assert not self.flying
        if isinstance(effect, Bridge):
            assert not self.flying, "what is under way may be what is missing"
            assert effect.epoch == claim.epoch > 0

    def perform(self, effect: Effect) -> list[Event]:
        if self.draw(st.integers(0, 5)) == 0:
            return [Failed(FAULT, self.now + 30)]
        at = self.course.position
        match effect:
            case OpenStream():
                return (
                    [opened(self.offset(), waiting=self.chance())]
                    if self.chance()
                    else [Unclaimed(self.chance())]
                )
            case Cut(most=most):
                if self.draw(st.integers(0, 4)) == 0:
                    return [BeginsAbove(self.offset(at + 1))]
                begun = tuple(range(at, at + most))
                self.flying.update(begun)
                done: list[Event] = [CutTo(at + most, begun, over=self.chance())]
                return [*done, Failed(FAULT, self.now + 30)] if self.chance() else done
            case Bridge(epoch=epoch, begin=begin):
                return [Bridged(begin, epoch + self.chance(), begin, waiting=self.chance())]
            case ReadTurn():
                return [TurnRead(self.offset())]
            case Rest():
                return [Rested(self.chance())]
            case Watch():
                return [Watching(self.chance())]
            case ReadItem():
                return [item(self.offset(), epoch=2 + self.chance())]
            case Help():
                return [Helped(self.course.next_offset if self.chance() else None)]
        return []

    def come_back(self) -> None:
        if not self.flying:
            return
        first = self.draw(st.sampled_from(sorted(self.flying)))
        self.flying.remove(first)
        if self.chance():
            self.course = landed(self.course, first, self.now)
            return
        error = self.draw(st.sampled_from([FAULT, DAMAGE, CorruptDataError("x", offset=first)]))
        self.course = given_back(self.course, first, error, self.now, self.now + 30)
        assert self.course.position <= first
        assert self.course.error is error


@given(st.data())
def test_whatever_comes_nothing_is_cut_or_claimed_out_of_turn(data: st.DataObject) -> None:
    play = Play(data.draw)
    for _ in range(data.draw(st.integers(1, 25))):
        play.now += data.draw(st.sampled_from([0.1, 1.0, 31.0, 2000.0]))
        match data.draw(st.sampled_from(["look", "look", "back", "gone"])):
            case "look":
                play.look()
            case "back":
                play.come_back()
            case "gone" if data.draw(st.integers(0, 9)) == 0:
                play.course = vanished(play.course, play.now)
    assert set(play.course.flying) == play.flying


def test_a_partition_that_was_claimed_before_it_was_bound_is_claimed_again_for_its_name() -> None:
    """Nothing else would put it among the partitions that a table or a query means."""
    bound = seen(20_000.0, super_stream="orders")

    course, effects = step(UNDER_WAY, bound, item(50))

    assert (type(course.state), effects) == (Draining, ())
    course = replace(course, state=UNDER_WAY.state)
    course, _ = step(course, replace(bound, now=20_060.0), item(50))
    assert course.state == UNDER_WAY.state, "where the name does not arrive, it is tried seldom"
    named = replace(item(50), name=QueueName("c", "/", "orders-1", "orders", "1"))
    assert step(UNDER_WAY, bound, named)[0].state == UNDER_WAY.state


def test_a_stream_that_was_claimed_before_its_name_was_known_is_claimed_again_for_it() -> None:
    """It has a namesake whose chunks were the same at first."""
    known = seen(20_000.0, named=True)

    course, effects = step(UNDER_WAY, known, item(50))

    assert (type(course.state), effects) == (Draining, ())
    course = replace(course, state=UNDER_WAY.state)
    course, _ = step(course, replace(known, now=20_060.0), item(50))
    assert course.state == UNDER_WAY.state, "where the name does not arrive, it is tried seldom"
    named = replace(item(50), name=QueueName("c", "/", "orders"))
    assert step(UNDER_WAY, known, named)[0].state == UNDER_WAY.state
    assert step(UNDER_WAY, seen(20_000.0), item(50))[0].state == UNDER_WAY.state
