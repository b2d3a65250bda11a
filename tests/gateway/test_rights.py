"""Who may read what is something else while clients are connected: by the file, or the broker."""

from __future__ import annotations

import asyncio
import base64
import hashlib
from collections.abc import Callable, Sequence
from contextlib import suppress
from types import SimpleNamespace
from typing import Any, cast

import pytest

from coldstream.broker.frames import Code, Fields, Key, string
from coldstream.broker.management import Management
from coldstream.errors import NotFoundError, PermissionDeniedError, UnavailableError
from coldstream.gateway import passwords
from coldstream.gateway.broker_users import BrokerRights, BrokerUsers
from coldstream.gateway.users import Users, parse_users
from coldstream.manifest.catalog import QueueName
from tests.support.gateway import Gateway
from tests.support.probe_stack import eventually
from tests.support.raw_client import RawClient
from tests.support.tier import Tier, chunk

BEFORE = "app:secret:a|b\n"


@pytest.fixture
def tier() -> Tier:
    made = Tier()
    for each in ("a", "b"):
        made.add(f"__{each}_1", [[chunk(0, each.encode())]], name=QueueName("test", "/", each))
    return made


def replaced(gateway: Gateway, text: str) -> None:
    """As SIGHUP does it."""

    async def replace() -> None:
        gateway.site.replace_users(parse_users(text))

    asyncio.run_coroutine_threadsafe(replace(), gateway.loop).result(60)


def test_what_may_not_be_read_any_more_ends_and_the_rest_goes_on(tier: Tier) -> None:
    with (
        Gateway(tier, users=parse_users(BEFORE)) as gateway,
        RawClient(gateway.port).log_in("app", "secret") as client,
    ):
        for number, stream in enumerate("ab"):
            assert client.subscribe(stream, credit=10, number=number) == Code.OK
            assert client.chunk().endswith(stream.encode())
        replaced(gateway, "app:secret:b|c\n")

        key, fields = client.frame()
        assert key == Key.METADATA_UPDATE
        assert fields.number("H") == Code.NOT_AVAILABLE
        assert fields.string() == "a"
        assert client.subscribe("a", number=5) == Code.ACCESS_REFUSED
        assert client.ask(Key.QUERY_OFFSET, string("me") + string("a"))[0] == Code.ACCESS_REFUSED
        assert client.subscribe("b", number=7) == Code.OK
        assert client.chunk().endswith(b"b")
        assert gateway.metrics.subscriptions == 2


@pytest.mark.parametrize("after", ["other:secret:.*\n", "app:changed:.*\n"], ids=["user", "word"])
def test_who_could_not_log_in_any_more_is_hung_up_on(tier: Tier, after: str) -> None:
    with (
        Gateway(tier, users=parse_users(BEFORE)) as gateway,
        RawClient(gateway.port).log_in("app", "secret") as client,
        RawClient(gateway.port) as new,
    ):
        assert client.subscribe("a", credit=10) == Code.OK
        assert client.chunk()
        replaced(gateway, after)

        assert client.hung_up()
        assert new.authenticate("app", "secret") == Code.AUTHENTICATION_FAILED
        assert any("would have to log in anew" in each for each in gateway.said)


def test_who_keeps_user_and_password_notices_nothing(tier: Tier) -> None:
    with (
        Gateway(tier, users=parse_users(BEFORE)) as gateway,
        RawClient(gateway.port).log_in("app", "secret") as client,
    ):
        assert client.subscribe("a", credit=10) == Code.OK
        assert client.chunk()
        replaced(gateway, "# nothing new\nother:x:.*\n" + BEFORE)

        assert client.silent()
        assert client.subscribe("b", number=2) == Code.OK
        assert client.chunk()


@pytest.mark.parametrize("key", [Key.PARTITIONS, Key.ROUTE])
def test_the_streams_of_a_super_stream_are_told_to_who_may_read_them_all(
    tier: Tier, key: Key
) -> None:
    """Of the default exchange, whose name is empty, a broker tells every queue that there is."""

    class Broker:
        async def names(self, vhost: str, key: Key, *words: str) -> Sequence[str]:
            del vhost, key
            return ["a", "b"] if words[-1] == "ab" else ["a", "b", "secret"]

        async def close(self) -> None:
            pass

    def asked(name: str) -> tuple[int, Any]:
        return client.ask(key, (string("k") if key is Key.ROUTE else b"") + string(name))

    with (
        Gateway(tier, users=parse_users(BEFORE)) as gateway,
        RawClient(gateway.port).log_in("app", "secret") as client,
    ):
        gateway.site.streams.broker = Broker()  # type: ignore[assignment]
        code, fields = asked("ab")
        assert (code, fields.array(Fields.string)) == (Code.OK, ["a", "b"])
        code, fields = asked("")
        assert (code, fields.rest()) == (Code.ACCESS_REFUSED, bytes(4))


def test_a_stream_whose_queue_nobody_has_said_is_not_one_of_the_virtual_host_that_was_opened(
    tier: Tier,
) -> None:
    tier.add("prod_orders_1", [[chunk(0, b"of prod")]])
    users = parse_users("own:x:x/.*\ncopy:x:prod_.*\n")
    rights = BrokerRights({"x": ".*"})

    def code(user: str, vhost: str) -> int:
        with RawClient(gateway.port).log_in(user, "x", vhost) as client:
            return client.subscribe("prod_orders_1")

    with Gateway(tier, users=users) as gateway:
        assert code("own", "x") == Code.ACCESS_REFUSED
        assert code("copy", "x") == Code.OK
        assert code("copy", "/") == Code.OK
        gateway.site.users = cast(Users, SimpleNamespace(log_in=lambda *_: rights))
        assert code("anybody", "x") == Code.ACCESS_REFUSED


class Api:
    """A management API with one user, who is called app.

    Attributes:
        secret: his password; None if there is no such user.
        read: his pattern; None for no right in the virtual host.
        fails: raised for every request.
        asked: requests so far.
    """

    def __init__(self) -> None:
        self.secret: str | None = "secret"
        self.read: str | None = "^(a|b)$"
        self.fails: Exception | None = None
        self.asked = 0

    def get(self, path: str) -> Any:
        self.asked += 1
        if self.fails is not None:
            raise self.fails
        if self.secret is None:
            raise NotFoundError("there is nothing")
        if path == "/api/users/app/permissions":
            return [] if self.read is None else [{"vhost": "/", "read": self.read}]
        assert path == "/api/users/app"
        algorithm = "rabbit_password_hashing_sha256"
        digest = hashlib.sha256(b"salt" + self.secret.encode()).digest()
        secret = base64.b64encode(b"salt" + digest).decode()
        assert passwords.holds(passwords.of_broker(algorithm, secret), self.secret)
        return {"hashing_algorithm": algorithm, "password_hash": secret}

    def users(self) -> BrokerUsers:
        return BrokerUsers(cast(Management, self))


def taken_right(api: Api) -> None:
    api.read = "^b$"


def taken_all(api: Api) -> None:
    api.read = None


@pytest.mark.parametrize("change", [taken_right, taken_all], ids=["pattern", "virtual host"])
def test_what_the_broker_permits_no_more_ends_for_who_is_connected_too(
    tier: Tier, change: Callable[[Api], None]
) -> None:
    api = Api()
    with (
        Gateway(tier, users=api.users()) as gateway,
        RawClient(gateway.port).log_in("app", "secret") as client,
    ):
        assert client.subscribe("a", credit=10) == Code.OK
        assert client.chunk().endswith(b"a")
        change(api)

        key, fields = client.frame()
        assert key == Key.METADATA_UPDATE
        assert fields.number("H") == Code.NOT_AVAILABLE
        assert fields.string() == "a"
        assert client.subscribe("a", number=5) == Code.ACCESS_REFUSED
        rest = Code.OK if change is taken_right else Code.ACCESS_REFUSED
        assert client.subscribe("b", number=7) == rest


@pytest.mark.parametrize("secret", [None, "changed"], ids=["user", "word"])
def test_whom_the_broker_would_not_let_in_any_more_is_hung_up_on(
    tier: Tier, secret: str | None
) -> None:
    api = Api()
    with (
        Gateway(tier, users=api.users()) as gateway,
        RawClient(gateway.port).log_in("app", "secret") as client,
    ):
        assert client.subscribe("a", credit=10) == Code.OK
        assert client.chunk()
        api.secret = secret

        assert client.hung_up()
        assert any("would have to log in anew" in each for each in gateway.said)


class Guest:
    """A client of one user."""

    def __init__(self, user: str) -> None:
        self.user = user
        self.rights: Any = BrokerRights({"/": "a"}, "word")

    def changed(self, rights: Any) -> None:
        self.rights = rights


def test_a_user_of_whom_the_broker_does_not_say_keeps_nobody_else_from_being_asked_for(
    tier: Tier,
) -> None:
    class Some:
        def log_in(self, user: str, password: str) -> Any:
            raise AssertionError(user)

        def known(self, user: str) -> Any:
            if user == "b":
                raise UnavailableError("no answer")
            return None

    with Gateway(tier, users=Some()) as gateway:
        gateway.site.rights_seconds = 1e9
        guests = [Guest(each) for each in "cab"]
        gateway.site.guests.update(guests)
        for _ in range(2):
            with suppress(UnavailableError):
                asyncio.run_coroutine_threadsafe(gateway.site.look_again(), gateway.loop).result(60)

        assert [each.user for each in guests if each.rights is not None] == ["b"]
        gateway.site.guests.clear()


@pytest.mark.parametrize("error", [UnavailableError("down"), PermissionDeniedError("no")], ids=str)
def test_who_is_connected_keeps_his_rights_while_the_broker_does_not_say(
    tier: Tier, error: Exception
) -> None:
    api = Api()
    with (
        Gateway(tier, users=api.users()) as gateway,
        RawClient(gateway.port).log_in("app", "secret") as client,
    ):
        assert client.subscribe("a", credit=10) == Code.OK
        assert client.chunk()
        api.fails, asked = error, api.asked
        assert eventually(lambda: api.asked > asked + 3, seconds=60)

        assert client.silent()
        assert client.subscribe("b", number=2) == Code.OK
        assert client.chunk()
        assert sum("stay as they are" in each for each in gateway.said) == 1
        api.read, api.fails = "^b$", None
        assert client.frame()[0] == Key.METADATA_UPDATE


def test_users_that_are_connected_twice_are_asked_for_once(tier: Tier) -> None:
    api = Api()
    with (
        Gateway(tier, users=api.users()) as gateway,
        RawClient(gateway.port).log_in("app", "secret") as one,
        RawClient(gateway.port).log_in("app", "secret") as two,
    ):
        gateway.site.rights_seconds = 1e9
        seen = api.asked
        asyncio.run_coroutine_threadsafe(gateway.site.look_again(), gateway.loop).result(60)
        assert api.asked - seen <= 4, "perhaps with a look that was under way"
        assert one.subscribe("a") == two.subscribe("a") == Code.OK
