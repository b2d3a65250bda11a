from __future__ import annotations

import base64
import hashlib
import json
import socket
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from coldstream.broker.management import Management
from coldstream.errors import InvalidInputError, UnavailableError
from coldstream.gateway import passwords
from coldstream.gateway.broker_users import BrokerUsers
from coldstream.gateway.users import parse_users, read_users

SALT = bytes(range(16))


def rabbit(password: str, algorithm: str = "sha256") -> str:
    """As a broker makes it."""
    salt = b"salt"
    return base64.b64encode(
        salt + hashlib.new(algorithm, salt + password.encode()).digest()
    ).decode()


@pytest.mark.parametrize(
    "stored",
    [
        "secret",
        passwords.hashed("secret", SALT),
        "{rabbit_password_hashing_sha256}" + rabbit("secret"),
        "{rabbit_password_hashing_sha512}" + rabbit("secret", "sha512"),
    ],
)
def test_a_password_holds_however_it_is_stored_and_no_other_does(stored: str) -> None:
    users = parse_users(f"app:{stored}:.*")
    assert users.log_in("app", "secret") is not None
    assert users.log_in("app", "Secret") is None
    assert users.log_in("app", "") is None
    assert users.log_in("app", stored + "x") is None
    assert users.log_in("other", "secret") is None


def test_the_hash_of_a_password_is_no_password() -> None:
    stored = passwords.hashed("secret", SALT)
    assert parse_users(f"app:{stored}:.*").log_in("app", stored) is None


def test_how_long_a_login_takes_does_not_tell_who_is_a_user(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    hashed: list[tuple[int, ...]] = []
    real = passwords._scrypt

    def counted(password: str, salt: bytes, *cost: int) -> bytes:
        hashed.append(cost)
        return real(password, salt, *cost)

    users = parse_users(f"app:{passwords.hashed('secret', SALT)}:.*\nplain:word:.*")
    monkeypatch.setattr(passwords, "_scrypt", counted)
    for user in ("app", "nobody", "plain"):
        hashed.clear()
        assert users.log_in(user, "wrong") is None
        assert hashed == [(2**14, 8, 1)], user


def test_a_password_that_was_right_is_not_hashed_again_and_any_other_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Else hundreds of clients that come back at once wait for as many hashes, and give up."""
    hashed: list[str] = []
    real = passwords._scrypt

    def counted(password: str, salt: bytes, *cost: int) -> bytes:
        hashed.append(password)
        return real(password, salt, *cost)

    line = f"app:{passwords.hashed('secret', SALT)}:.*"
    users = parse_users(f"{line}\nplain:word:.*")
    monkeypatch.setattr(passwords, "_scrypt", counted)
    assert all(users.log_in("app", "secret") is not None for _ in range(100))
    assert hashed == ["secret"]
    assert users.log_in("app", "Secret") is None
    assert users.log_in("plain", "secret") is None
    assert users.log_in("nobody", "secret") is None
    assert hashed == ["secret", "Secret", "secret", "secret"]
    assert "secret" not in repr(users)
    assert parse_users(line.replace("app:", "other:")).log_in("app", "secret") is None


@pytest.mark.parametrize(
    ("pattern", "vhost", "name", "may"),
    [
        ("orders", "/", "orders", True),
        ("orders", "/", "orders2", False),
        ("orders", "/", "my-orders", False),
        ("orders", "x", "orders", False),
        ("x/orders", "x", "orders", True),
        ("^orders.*$", "/", "orders2", True),
        ("orders|invoices[.].*", "/", "invoices.eu", True),
        (".*", "x", "anything", True),
        ("x/secret", "/", "x/secret", False),  # a queue of another virtual host
        ("x/secret", "x", "secret", True),
        ("%2F/x/secret", "/", "x/secret", True),
        ("a/b/c", "a", "b/c", True),
        ("a/b/c", "a/b", "c", False),
        ("a%2Fb/c", "a/b", "c", True),
        ("a%2Fb/c", "a%2Fb", "c", False),
    ],
)
def test_a_pattern_must_match_all_of_a_name(pattern: str, vhost: str, name: str, may: bool) -> None:
    rights = parse_users(f"app:secret:{pattern}").log_in("app", "secret")
    assert rights is not None
    assert rights.may_read(vhost, name) is may


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("app", "line 2 is not"),
        ("app:secret", "line 2 is not"),
        ("app:secret:", "line 2 is not"),
        (":secret:.*", "line 2 is not"),
        ("app::.*", "password is empty"),
        ("app:secret:(", "'\\(' is no regular expression of RE2: missing \\)"),
        ("app:{scrypt}1$2$3:.*", "must be a hash"),
        ("app:{scrypt}1048576$8$1$c2FsdHNhbHQ=$aGFzaA==:.*", "must be a hash"),
        ("app:{md5}abc:.*", "must be a hash"),
        ("first:other:.*", "a second time"),
    ],
)
def test_a_line_that_is_none_is_named_but_not_shown(line: str, words: str) -> None:
    with pytest.raises(InvalidInputError, match=words) as error:
        parse_users(f"first:x:.*\n{line}")
    assert "secret" not in str(error.value)


def test_comments_and_empty_lines_are_passed_over(tmp_path: Path) -> None:
    path = tmp_path / "users"
    path.write_text("# users\n\napp:secret:a:b\n")
    rights = read_users(path).log_in("app", "secret")
    assert rights is not None
    assert rights.may_read("/", "a:b"), "a pattern may have colons"


@pytest.mark.parametrize("content", [None, b"", b"# nobody\n", b"\xff"])
def test_a_file_without_users_is_refused_by_its_name(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "users"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(InvalidInputError, match="users"):
        read_users(path)


class _Api(BaseHTTPRequestHandler):
    """The management API, as far as a login asks it."""

    def do_GET(self) -> None:
        known = {
            "/api/users/app": {
                "name": "app",
                "password_hash": rabbit("secret"),
                "hashing_algorithm": "rabbit_password_hashing_sha256",
            },
            "/api/users/app/permissions": [{"user": "app", "vhost": "/", "read": "^orders"}],
            "/api/users/external": {"name": "external", "password_hash": ""},
        }
        body = json.dumps(known.get(self.path)).encode()
        self.send_response(200 if self.path in known else 404)
        if self.headers["Authorization"] != "Basic " + base64.b64encode(b"boss:pw").decode():
            self.send_error(401)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        pass


@pytest.fixture
def api() -> Iterator[int]:
    with ThreadingHTTPServer(("127.0.0.1", 0), _Api) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield server.server_port
        server.shutdown()
        thread.join()


def test_where_one_node_does_not_answer_the_next_says_who_may_log_in(api: int) -> None:
    with socket.create_server(("127.0.0.1", 0)) as nobody:
        port = nobody.getsockname()[1]
    first, second = (Management.parse(f"http://boss:pw@127.0.0.1:{each}") for each in (port, api))

    assert BrokerUsers(first, [second]).log_in("app", "secret") is not None
    with pytest.raises(UnavailableError, match=str(port)):
        BrokerUsers(first, [first]).log_in("app", "secret")


def test_a_broker_says_who_may_log_in_and_read_what(api: int) -> None:
    users = BrokerUsers(Management.parse(f"http://boss:pw@127.0.0.1:{api}"))
    rights = users.log_in("app", "secret")
    assert rights is not None
    assert rights.may_enter("/")
    assert not rights.may_enter("x")
    assert rights.may_read("/", "orders2"), "its patterns match anywhere, as the broker's"
    assert not rights.may_read("/", "invoices")
    assert not rights.may_read("x", "orders")
    assert users.log_in("app", "wrong") is None
    assert users.log_in("nobody", "secret") is None
    assert users.log_in("external", "") is None, "a user without a password has none here"
    assert users.log_in("../overview", "secret") is None
