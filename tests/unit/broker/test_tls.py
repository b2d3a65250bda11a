"""What a broker's URI says of TLS; the handshakes are in tests/broker/test_tls.py."""

from __future__ import annotations

import ssl
from collections.abc import Callable
from pathlib import Path

import pytest

from coldstream.broker.connection import StreamUri
from coldstream.broker.management import Management
from coldstream.broker.tls import Tls
from coldstream.errors import InvalidInputError


def test_certificate_and_name_are_always_checked() -> None:
    context = Tls().context()

    assert context.verify_mode is ssl.CERT_REQUIRED
    assert context.check_hostname


def test_a_name_that_was_given_for_one_node_is_not_asked_of_another() -> None:
    uri = StreamUri.parse("rabbitmq-stream+tls://u:p@10.0.0.1?server_name_indication=a.example")

    assert uri.tls == Tls(name="a.example")
    assert uri.at("b.example", 5551) == StreamUri("b.example", 5551, "u", "p", Tls())
    assert StreamUri.parse("rabbitmq-stream://u:p@a").at("b", 1).tls is None


@pytest.mark.parametrize(
    ("parse", "plain", "tls"),
    [
        (StreamUri.parse, "rabbitmq-stream", "rabbitmq-stream+tls"),
        (Management.parse, "http", "https"),
    ],
)
def test_what_a_uri_cannot_say_is_refused_without_its_password(
    parse: Callable[[str], object], plain: str, tls: str, tmp_path: Path
) -> None:
    (tmp_path / "empty.pem").write_text("")

    for uri, why in (
        (f"{tls}://u:secret@h?verify=verify_none", "no parameter 'verify'"),
        (f"{tls}://u:secret@h?cacertfile={tmp_path / 'none.pem'}", "cannot be read"),
        (f"{tls}://u:secret@h?cacertfile={tmp_path / 'empty.pem'}", "no certificate"),
        (f"{plain}://u:secret@h?cacertfile=/etc/ssl/ca.pem", "without TLS"),
    ):
        with pytest.raises(InvalidInputError, match=why) as caught:
            parse(uri)
        assert "secret" not in str(caught.value)
