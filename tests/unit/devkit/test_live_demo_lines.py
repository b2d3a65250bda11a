"""What the live demo shows of the agent's marks, and what it calls identical."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from coldstream_devkit.broker_release import no_service
from coldstream_devkit.campaign.life import Kind, Life
from coldstream_devkit.demo.live.comparison import identical
from coldstream_devkit.demo.live.watermarks import HEAD, Scrape, line, marks_of

PAGE = """\
# HELP coldstream_stream_committed_offset x
# TYPE coldstream_stream_committed_offset gauge
coldstream_stream_committed_offset{queue="live",stream="__live_1",vhost="/"} 5.0
coldstream_stream_committed_offset{queue="live",stream="__live_2",vhost="/"} 7.0
# HELP coldstream_stream_cut_offset x
# TYPE coldstream_stream_cut_offset gauge
coldstream_stream_cut_offset{queue="live",stream="__live_1",vhost="/"} 4.0
# HELP coldstream_stream_lag_bytes x
# TYPE coldstream_stream_lag_bytes gauge
coldstream_stream_lag_bytes{queue="live",stream="__live_1",vhost="/"} 9.0
"""


def test_marks_are_those_of_the_stream_and_nothing_else() -> None:
    assert marks_of(PAGE, "__live_1") == {"committed": 5, "cut": 4}
    assert marks_of(PAGE, "__other") == {}


def test_the_columns_of_a_line_stand_below_their_names_and_old_values_are_marked() -> None:
    marks = {"committed": 12345, "cut": 9}
    fresh, old = line(1.25, 12400, marks), line(1.25, 12400, marks, old=True, down=["agent"])

    assert len(fresh) == len(HEAD)
    assert fresh.split()[:5] == ["1.2", "s", "12,400", "12,345", "9"]
    assert old.split()[2:] == ["12,400", "(12,345)", "(9)", "-", "-", "-", "agent", "down"]


def test_marks_of_an_agent_that_does_not_answer_stay_and_are_never_called_equal() -> None:
    same = dict.fromkeys(("committed", "cut", "uploaded", "verified", "published"), 5)
    scrape = Scrape(port=1, stream="__live_1", marks=dict(same), old=False)
    assert scrape.equal()

    scrape.look()

    assert scrape.marks == same
    assert scrape.old
    assert not scrape.equal()


@pytest.mark.parametrize(
    ("tier", "count"),
    [
        ({0: (1, b"one"), 1: (2, b"two")}, 2),
        ({0: (1, b"one"), 1: (2, b"TWO")}, 1),  # other bytes
        ({0: (1, b"one"), 2: (2, b"two")}, 1),  # another offset than the broker's
        ({0: (1, b"one")}, 1),
        ({0: (1, b"one"), 1: (2, b"two"), 2: (3, b"three")}, 2),  # 3 was never confirmed
    ],
)
def test_identical_is_what_was_sent_where_the_broker_has_it(
    tier: dict[int, tuple[int, bytes]], count: int
) -> None:
    def digest(body: bytes) -> bytes:
        return hashlib.sha256(body).digest()

    life = Life("live", "live", Kind.NAMED, confirmed={1, 2})
    sent = {1: b"one", 2: b"two", 3: b"three"}
    life.digests = {number: digest(body) for number, body in sent.items()}
    life.delivered = {at: (at + 1, digest(sent[at + 1])) for at in range(3)}

    assert identical(life, {at: (n, digest(body)) for at, (n, body) in tier.items()}) == count


def testno_service_is_started_meanwhile_and_an_operators_policy_stays(tmp_path: Path) -> None:
    policy = tmp_path / "policy-rc.d"
    with no_service(policy):
        assert policy.stat().st_mode & 0o111
        assert "exit 101" in policy.read_text()
    assert not policy.exists()

    policy.write_text("theirs")
    with no_service(policy):
        pass
    assert policy.read_text() == "theirs"
