"""What a broker had committed and has lost: what is still held of it is uploaded first, or told."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from coldstream.agent.broker.committed import AllCommitted, Known
from coldstream.agent.disk.files import DISK
from coldstream.agent.disk.held import Held
from coldstream.agent.disk.log import StreamLog
from coldstream.agent.sending.slices import Job
from coldstream.agent.stream.cutting import Look
from coldstream.agent.stream.salvage import Proved, lost
from coldstream.errors import CorruptDataError, PermissionDeniedError, UnavailableError
from coldstream.osiris.segment import segment_name
from coldstream.usecases.quarantine import current_record
from coldstream_devkit.generator import write_stream

from .conftest import Site
from .test_holes import SEGMENT, STREAM, Steps, claimed, tree, write


class Proves(AllCommitted):
    """A gate: all below an offset is proved, by a chunk of an epoch."""

    def __init__(self, offset: int, epoch: int = 1) -> None:
        self.offset, self.epoch = offset, epoch

    def limit(self, stream: str) -> int:
        del stream
        return self.offset

    def known(self, stream: str) -> Known:
        del stream
        return Known(epoch=self.epoch, whole=False)


class Scene:
    """Offsets below 100 are published, 200 are proved, and the rest waits for its upload."""

    def __init__(self, site: Site, segment_bytes: int = SEGMENT, budget: int = 2**30) -> None:
        claimed(site, 100)
        self.site, self.proves = site, Proves(200)
        write_stream(
            site.data_dir / STREAM, messages=200, chunk_messages=10, segment_bytes=segment_bytes
        )
        self.held = Held(DISK, budget=budget, most=1000)
        self.steps = Steps(site, held=self.held, committed=self.proves)
        self.steps.step(most=0)

    def lose(self, below: int, then: int, **more: Any) -> None:
        """The broker loses what it has from an offset on, and goes on in epoch 2."""
        directory = self.site.data_dir / STREAM
        for path in directory.iterdir():
            if int(path.stem) >= below:
                path.unlink()
        self.steps.step(most=0)
        write(self.site, then - below, start_offset=below, epochs=((2, below),), seed=2, **more)
        self.proves.offset, self.proves.epoch = then, 2

    def go_on(self) -> list[str]:
        """What the agent says while it uploads all that there is."""
        self.steps.go_on(12)
        told = self.steps.follower.progress.notices
        return [each for each in told if "no progress" not in each]

    def cut_off(self) -> list[tuple[int, int]]:
        _, record = current_record(self.site.context(), STREAM)
        return [(each.floor, each.next_offset) for each in record.timelines]


@pytest.fixture
def scene(site: Site) -> Scene:
    return Scene(site)


def test_what_is_held_of_a_log_that_was_made_anew_is_in_quarantine_and_not_nowhere(
    scene: Scene,
) -> None:
    scene.lose(0, 60)

    said = scene.go_on()

    assert tree(scene.site) == [(0, 60, "FRAGMENT")]
    assert scene.cut_off() == [(0, 200)]
    assert "offsets 100 to 199 were committed in epoch 1" in said[0]
    assert "has uploaded them" in said[0]
    assert STREAM in said[0]


def test_a_broker_that_keeps_what_it_had_committed_makes_nobody_upload_it_for_another_epoch(
    scene: Scene,
) -> None:
    scene.lose(200, 260)

    said = scene.go_on()

    assert tree(scene.site) == [(0, 260, "FRAGMENT")]
    assert scene.cut_off() == []
    assert said == []


def test_a_tail_that_is_lost_is_uploaded_from_where_the_new_history_parts(scene: Scene) -> None:
    scene.lose(150, 170)

    said = scene.go_on()

    assert tree(scene.site) == [(0, 170, "FRAGMENT")]
    assert scene.cut_off() == [(150, 200)]
    assert "offsets 150 to 199 were committed in epoch 1" in said[0]


def test_what_is_not_held_any_more_is_told_to_be_in_no_tier(scene: Scene) -> None:
    scene.held.forget(scene.site.data_dir / STREAM)
    scene.lose(0, 60)
    scene.held.forget(scene.site.data_dir / STREAM)

    said = scene.go_on()

    assert scene.cut_off() == [(0, 100)]
    assert "offsets 100 to 199 were committed in epoch 1" in said[0]
    assert "in no tier" in said[0]


def test_what_another_agent_has_cut_off_already_is_told_and_not_uploaded(scene: Scene) -> None:
    scene.lose(0, 60)
    other = Steps(scene.site, committed=scene.proves)
    other.go_on(2)
    assert tree(scene.site) == [(0, 60, "FRAGMENT")]
    objects = set(scene.site.store.objects)

    said = scene.go_on()

    assert tree(scene.site) == [(0, 60, "FRAGMENT")]
    assert {key for key in objects ^ set(scene.site.store.objects) if "fragment" in key} == set()
    assert "in no tier" in said[0]


def test_what_was_never_known_to_be_committed_is_not_uploaded_for_an_older_epoch(
    scene: Scene,
) -> None:
    """A tail that its deposed writer alone had lies in the very files that are held."""
    scene.proves.offset = 150
    scene.steps = Steps(scene.site, held=scene.held, committed=scene.proves)
    scene.lose(0, 60)

    said = scene.go_on()

    assert scene.cut_off() == [(0, 150)]
    assert "offsets 100 to 149" in said[0]


def test_what_does_not_reach_the_store_is_tried_again_and_the_new_history_waits_for_ten_tries(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene.lose(0, 60)
    refused = refuse(scene, monkeypatch, above=150)
    scene.steps.go_on(6)
    assert tree(scene.site) == [(0, 150, "FRAGMENT")]

    refused.clear()
    scene.go_on()
    assert tree(scene.site) == [(0, 60, "FRAGMENT")]
    assert scene.cut_off() == [(0, 200)]


def test_what_the_store_refuses_for_good_holds_up_no_new_history(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene.lose(0, 60)
    refuse(scene, monkeypatch, above=150)

    said = [*scene.go_on(), *scene.go_on(), *scene.go_on()]

    assert tree(scene.site) == [(0, 60, "FRAGMENT")]
    assert scene.cut_off() == [(0, 150)]
    assert any("offsets 100 to 149" in each and "has uploaded them" in each for each in said)
    (lost,) = {each for each in said if "in no tier" in each}
    assert "offsets 150 to 199" in lost
    assert "could not be uploaded (nobody may put that)" in lost


def refuse(scene: Scene, monkeypatch: pytest.MonkeyPatch, *, above: int) -> set[int]:
    """Refuse what of epoch 1 begins above an offset, while the set has one."""
    upload, refused = scene.steps.upload, {above}

    def fails(job: Job) -> None:
        if job.placement.epoch == 1 and refused and job.piece.first_offset >= min(refused):
            error = PermissionDeniedError("nobody may put that")
            scene.steps.follower.failed(job.piece, error, scene.steps.now)
        else:
            upload(job)

    monkeypatch.setattr(scene.steps, "upload", fails)
    return refused


def test_damage_in_what_is_held_costs_what_is_behind_it_and_is_told(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = scene.site.data_dir / STREAM
    path = directory / segment_name(150)
    data = bytearray(path.read_bytes())
    data[200] ^= 1
    path.write_bytes(data)
    scene.lose(0, 60)
    upload = scene.steps.upload

    def tries(job: Job) -> None:
        try:
            upload(job)
        except CorruptDataError as exc:
            scene.steps.follower.failed(job.piece, exc, scene.steps.now)

    monkeypatch.setattr(scene.steps, "upload", tries)
    said = [*scene.go_on(), *scene.go_on()]

    assert scene.cut_off() == [(0, 150)]
    (lost,) = {each for each in said if "in no tier" in each}
    assert "offsets 150 to 199" in lost
    assert "could not be uploaded" in lost


@pytest.mark.parametrize(("chunks", "segment"), [(7, 11_000), (7, 22_000), (10, 10_000)])
@pytest.mark.parametrize("old", [30_000, 90_000])
def test_a_log_that_was_made_anew_and_is_longer_hides_nothing_of_what_is_held(
    site: Site, old: int, chunks: int, segment: int
) -> None:
    """Its segments lie between the old ones, and have their names."""
    scene = Scene(site, segment_bytes=old)
    directory = site.data_dir / STREAM
    for path in directory.iterdir():
        path.unlink()
    for messages in (50, 301):
        scene.steps.step(most=0)
        scene.held.keep_new(directory, proved=200)
        for path in directory.iterdir():
            path.unlink()
        write_stream(
            directory, messages=messages, chunk_messages=chunks, epochs=((2, 0),), seed=2,
            segment_bytes=segment,
        )  # fmt: skip
    scene.proves.offset, scene.proves.epoch = 301, 2

    said = scene.go_on()

    assert scene.cut_off() == [(0, 200)]
    assert "offsets 100 to 199 were committed in epoch 1" in said[0]
    assert scene.held.unlinked_bytes == 0
    assert not any("in no tier" in each for each in said)


def test_of_two_losses_before_a_claim_the_claimed_history_is_kept_and_the_other_is_told(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as away:
        away.setattr(scene.site.catalog, "get", no_answer)
        scene.lose(0, 260)
        scene.steps.step(100, most=0)
        scene.steps.step(100, most=0)
        scene.proves.epoch = 2
        for path in (scene.site.data_dir / STREAM).iterdir():
            path.unlink()
        write(scene.site, 40, epochs=((3, 0),), seed=3)
        scene.proves.offset, scene.proves.epoch = 40, 3
        scene.steps.step(100, most=0)

    said = scene.go_on()

    assert tree(scene.site) == [(0, 40, "FRAGMENT")]
    assert scene.cut_off() == [(0, 200)]
    assert any("offsets 100 to 199 were committed in epoch 1" in each for each in said)
    (lost,) = {each for each in said if "in no tier" in each}
    assert "offsets 0 to 259 were committed in epoch 2" in lost


def no_answer(stream: str) -> None:
    raise UnavailableError("nobody answers", stream=stream)


def test_what_another_agent_has_saved_is_not_called_lost(scene: Scene) -> None:
    held = Held(DISK, budget=2**30, most=1000)
    other = Steps(scene.site, held=held, committed=scene.proves)
    other.step(most=0)
    scene.lose(0, 60)
    other.step(most=0)
    other.go_on(12)
    assert scene.cut_off() == [(0, 200)]

    assert not any("no tier" in each for each in scene.go_on())


def test_what_cannot_be_uploaded_again_and_again_takes_no_memory(scene: Scene) -> None:
    """The frames of an error hold what was there when it was raised, and the error before it."""
    errors = []
    for _ in range(3):
        scene.steps.follower.trouble(_raised(), scene.steps.now)
        errors.append(scene.steps.follower.progress.error)
    assert [getattr(each, "__traceback__", "none") for each in errors] == [None] * 3


def _raised() -> Exception:
    try:
        raise UnavailableError("nobody answers")
    except UnavailableError as exc:
        return exc


def test_a_log_that_begins_above_what_was_committed_shows_nothing_of_it(tmp_path: Path) -> None:
    site = Site(tmp_path)
    write(site, 50, start_offset=200, epochs=((2, 200),))
    log = StreamLog(tmp_path / STREAM, DISK)
    assert not lost(log, Proved(1, 200), committed=250, durable=100)
    assert lost(log, Proved(1, 201), committed=250, durable=100) == range(200, 201)


def test_a_damaged_log_holds_up_no_claim(scene: Scene) -> None:
    """What lies before the damage is uploaded, and the damage is told, as without a new epoch."""
    scene.lose(200, 260)
    path = scene.site.data_dir / STREAM / segment_name(190)
    path.write_bytes(path.read_bytes()[:-100])

    scene.go_on()

    assert tree(scene.site) == [(0, 190, "FRAGMENT")]
    assert "190" in str(scene.steps.follower.progress.error)
    item = scene.site.catalog.get(STREAM)
    assert item is not None
    assert item.epoch == 2
    assert scene.cut_off() == []


def test_a_damaged_record_of_what_was_cut_off_holds_up_no_claim(scene: Scene) -> None:
    other = Steps(scene.site, committed=scene.proves)
    scene.lose(0, 60)
    other.go_on(2)
    for key in scene.site.store.objects:
        if "quarantine" in key:
            scene.site.store.objects[key] = b"damaged"

    said = scene.go_on()

    assert scene.steps.follower.progress.error is None
    assert any("in no tier" in each for each in said)


def test_a_new_epoch_that_goes_on_from_all_that_was_committed_asks_nobody(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene.lose(200, 260)
    salvage = scene.steps.follower._performer.salvage
    salvage.note(2, 260)
    monkeypatch.setattr(scene.site.catalog, "get", no_answer)

    assert not salvage.cut(Look(0.0, 0, 260, 3, flush=True, hole_end=None), [])


def test_what_does_not_fit_beside_what_is_held_is_told(site: Site) -> None:
    scene = Scene(site, budget=10_000)
    scene.lose(0, 301)
    scene.steps.step(most=0)

    assert scene.held.dropped > 0
