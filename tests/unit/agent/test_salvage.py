"""What a broker had committed and has lost: what is still held of it is uploaded first, or told."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from coldstream.agent.broker.committed import AllCommitted, Known
from coldstream.agent.disk.files import DISK
from coldstream.agent.disk.held import Held
from coldstream.agent.disk.log import StreamLog
from coldstream.agent.stream.salvage import Proved, lost_from
from coldstream.errors import UnavailableError
from coldstream.usecases.quarantine import current_record

from .conftest import Site
from .test_holes import STREAM, Steps, claimed, tree, write


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

    def __init__(self, site: Site) -> None:
        claimed(site, 100)
        self.site, self.proves = site, Proves(200)
        write(site, 200)
        self.held = Held(DISK, budget=2**30, most=1000)
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
        return list(self.steps.follower.progress.notices)

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


def test_nothing_is_claimed_while_the_store_does_not_take_what_is_to_be_kept(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene.lose(0, 60)
    put, away = scene.site.store.put, True

    def fails(*arguments: Any, **more: Any) -> Any:
        if away:
            raise UnavailableError("nobody answers")
        return put(*arguments, **more)

    monkeypatch.setattr(scene.site.store, "put", fails)
    assert scene.go_on() == []
    assert tree(scene.site) == [(0, 100, "FRAGMENT")]

    away = False
    scene.go_on()
    assert tree(scene.site) == [(0, 60, "FRAGMENT")]
    assert scene.cut_off() == [(0, 200)]


def test_a_log_that_begins_above_what_was_committed_shows_nothing_of_it(tmp_path: Path) -> None:
    site = Site(tmp_path)
    write(site, 50, start_offset=200, epochs=((2, 200),))
    log = StreamLog(tmp_path / STREAM, DISK)
    assert lost_from(log, Proved(1, 200), committed=250, durable=100) is None
    assert lost_from(log, Proved(1, 201), committed=250, durable=100) == 200
