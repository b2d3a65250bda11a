"""What `coldstream doctor` says of a broker that is not there, or is something else."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from coldstream.agent.doctor.broker import BrokerChecks
from coldstream.agent.doctor.findings import Finding, Level, perform
from coldstream.broker.connection import StreamUri
from coldstream.broker.management import Management, StreamQueue
from coldstream.broker.tls import Tls
from coldstream_devkit.broker import free_ports
from coldstream_devkit.generator import write_stream


def looked(data_dir: Path, port: int, *, tls: bool = False) -> dict[str, Finding]:
    checks = BrokerChecks(
        StreamUri("127.0.0.1", port, "tier", "s3cret", Tls() if tls else None),
        Management("127.0.0.1", port, "tier", "s3cret", seconds=1),
        data_dir,
        clock=iter(range(0, 1000, 11)).__next__,
        sleep=lambda _: None,
    ).checks()
    rows = {each.about: each for each in perform(checks)}
    assert not any("s3cret" in f"{each.said} {each.remedy}" for each in rows.values())
    return rows


def test_a_broker_that_is_down_fails_every_check_with_what_to_do(tmp_path: Path) -> None:
    write_stream(tmp_path / "__orders_1745252105682952932", messages=10)

    rows = looked(tmp_path, free_ports(1)[0])

    failed = {about for about, each in rows.items() if each.level is Level.FAILED}
    assert failed == {"stream port", "management API", "broker", "committed"}
    assert all(rows[about].remedy for about in failed)
    assert "rabbitmq_stream" in rows["stream port"].remedy


def test_a_stream_without_a_chunk_is_not_asked_for(tmp_path: Path) -> None:
    assert looked(tmp_path, free_ports(1)[0])["committed"].level is Level.OK


def test_a_stream_with_chunks_is_tried_however_many_without_any_were_made_since(
    tmp_path: Path,
) -> None:
    write_stream(tmp_path / "__orders_1745252105682952932", messages=10)
    for number in range(7):
        write_stream(tmp_path / f"__empty_{number}", messages=0)

    assert "__orders_" in looked(tmp_path, free_ports(1)[0])["committed"].said


@pytest.fixture
def another_service() -> Iterator[int]:
    """A port where something answers that is no broker."""
    over = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(0.1)

        def serve() -> None:
            while not over.is_set():
                try:
                    connection, _ = listener.accept()
                except TimeoutError:
                    continue
                with connection:
                    connection.sendall(b"SSH-2.0-OpenSSH_9.2p1 Debian\r\n")

        thread = threading.Thread(target=serve)
        thread.start()
        yield int(listener.getsockname()[1])
        over.set()
        thread.join()


@pytest.mark.parametrize("tls", [False, True])
def test_another_service_at_the_port_is_told_from_a_broker(
    tmp_path: Path, another_service: int, tls: bool
) -> None:
    rows = looked(tmp_path, another_service, tls=tls)

    assert rows["stream port"].level is Level.OK
    assert rows["broker"].level is rows["management API"].level is Level.FAILED
    assert ("certificate" in rows["broker"].remedy) is tls


def test_directories_of_which_the_user_sees_no_stream_are_named_with_what_to_permit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing of them is uploaded, and every other line was ok."""
    write_stream(tmp_path / "__orders_1745252105682952932", messages=10)
    write_stream(tmp_path / "closed_hidden_1745252105682952933", messages=10)
    seen = [StreamQueue("/", "orders")]
    monkeypatch.setattr(Management, "streams", lambda _: seen)
    monkeypatch.setattr(Management, "closed_vhosts", lambda _: ["closed"])
    checks = BrokerChecks(
        StreamUri("127.0.0.1", 1, "tier", "s3cret"),
        Management("127.0.0.1", 1, "tier", "s3cret"),
        tmp_path,
    )

    def said() -> list[Finding]:
        assert checks.management is not None
        return [each for each in checks.managed(checks.management) if each.level is Level.WARNING]

    (warned,) = said()
    assert "closed_hidden_1745252105682952933" in warned.said
    assert "__orders_" not in warned.said
    assert "-p closed tier" in warned.remedy

    seen.append(StreamQueue("closed", "hidden"))
    assert said() == []
