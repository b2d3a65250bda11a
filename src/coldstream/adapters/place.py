"""The one way to open a remote tier: its bucket, its table, and clients with bounded waiting.

Credentials never travel: each process asks its environment or its instance, as every AWS SDK does.
The SDKs are imported inside the functions, so that `coldstream --help` stays quick.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any, NamedTuple

from coldstream.adapters.forks import own_connections
from coldstream.adapters.sessions import new_session
from coldstream.adapters.settings import check_table, no_table, resolve_region
from coldstream.deployment import CLAIM_TIMEOUT_SECONDS
from coldstream.names import DEFAULT_PREFIX
from coldstream.ports import Catalog, Composer, ConsumerOffsets, Heartbeats, ObjectStore, Policies
from coldstream.remote.context import Context

if TYPE_CHECKING:
    from botocore.config import Config

    from coldstream.adapters.s3 import S3ObjectStore
    from coldstream.adapters.s3_send import Sender


class Patience(NamedTuple):
    """How long a client waits.

    Attributes:
        connect_seconds: for a connection.
        read_seconds: for an answer.
        attempts: requests in all, with botocore's backoff between them.
    """

    connect_seconds: int
    read_seconds: int
    attempts: int

    def config(self) -> Config:
        """As botocore takes it."""
        from botocore.config import Config

        return Config(
            connect_timeout=self.connect_seconds,
            read_timeout=self.read_seconds,
            retries={"mode": "standard", "max_attempts": self.attempts},
            max_pool_connections=20,
        )


FILE_SCHEME = "file://"
#: A Lambda dies after minutes, and its events come again.
IN_LAMBDA = Patience(3, 10, 4)
#: Commands, agents and jobs.
ELSEWHERE = Patience(5, 20, 5)
#: Who invokes a function waits for as long as it may run, and a little longer.
OF_A_FUNCTION = Patience(5, CLAIM_TIMEOUT_SECONDS + 10, 2)


@dataclass(frozen=True, slots=True)
class Place:
    """Where a remote tier is. It pickles, so that workers of Spark can open it themselves.

    Attributes:
        bucket: name.
        table: name or ARN.
        prefix: of all keys, ends in "/".
        region: of both; "" for what the environment says.
        endpoint: URL of both services, "" for what the environment says; or file:// and a directory
            that holds the bucket's objects, and then there is no table.
    """

    bucket: str
    table: str
    prefix: str = DEFAULT_PREFIX
    region: str = ""
    endpoint: str = ""

    @property
    def directory(self) -> str:
        """The directory of a remote tier that is one; "" otherwise."""
        if not self.endpoint.startswith(FILE_SCHEME):
            return ""
        return self.endpoint.removeprefix(FILE_SCHEME)


@dataclass(frozen=True, slots=True)
class Remote:
    """The remote tier of one cluster.

    Attributes:
        store: its bucket.
        catalog: its table.
        policies: the operator's rules.
        place: where it is.
        heartbeats: of the agents; None where nobody would look at them.
        offsets: of consumers that have no broker; None where nobody may store them.
    """

    store: ObjectStore
    catalog: Catalog
    policies: Policies
    place: Place
    heartbeats: Heartbeats | None = None
    offsets: ConsumerOffsets | None = None

    @property
    def prefix(self) -> str:
        """Of all its keys."""
        return self.place.prefix

    def context(self) -> Context:
        """What use cases that write work with."""
        return Context(self.store, self.catalog, self.prefix, lambda: secrets.randbits(64))

    def composer(self) -> Composer:
        """What makes objects of others inside the bucket; nothing is sent yet.

        Raises:
            As `client`.
        """
        from coldstream.adapters.s3_compose import S3Composer

        return S3Composer(client=client("s3", self.place), bucket=self.place.bucket)


@lru_cache(maxsize=8)
def connect(place: Place) -> Remote:
    """`open_place`, once a process: a worker of Spark runs many tasks of one place."""
    return open_place(place)


def open_place(place: Place, sender: Sender | None = None) -> Remote:
    """Adapters for a remote tier. Nothing is sent yet.

    Args:
        place: where it is.
        sender: sends objects, for as long as their bytes move; without it a PUT has a deadline.

    Raises:
        InvalidInputError: it is a directory that is not there.
        MisconfiguredError: a name that no bucket or table can have, or no credentials.
        botocore.exceptions.BotoCoreError, ValueError: no region, no such profile, a malformed
            endpoint.
    """
    if place.directory:
        from coldstream.adapters.directory import DirectoryCatalog, DirectoryStore
        from coldstream.adapters.memory import MemoryPolicies

        files = DirectoryStore(place.directory)
        return Remote(files, DirectoryCatalog(files, place.prefix), MemoryPolicies(), place)
    from coldstream.adapters.dynamodb import DynamoCatalog
    from coldstream.adapters.dynamodb_heartbeats import DynamoHeartbeats
    from coldstream.adapters.dynamodb_offsets import DynamoOffsets
    from coldstream.adapters.dynamodb_policies import DynamoPolicies
    from coldstream.adapters.s3 import S3ObjectStore

    check_table(place.table)
    if sender is None:
        store = S3ObjectStore(bucket=place.bucket, region=place.region, endpoint=place.endpoint)
    else:
        store = _sending(place, sender)
    dynamodb = client("dynamodb", place)
    _name_missing(dynamodb, place.table)
    return Remote(
        store=store,
        catalog=DynamoCatalog(client=dynamodb, table=place.table, prefix=place.prefix),
        policies=DynamoPolicies(client=dynamodb, table=place.table, prefix=place.prefix),
        place=place,
        heartbeats=DynamoHeartbeats(client=dynamodb, table=place.table, prefix=place.prefix),
        offsets=DynamoOffsets(client=dynamodb, table=place.table, prefix=place.prefix),
    )


def _sending(place: Place, sender: Sender) -> S3ObjectStore:
    from coldstream.adapters.s3_send import SendingObjectStore

    return SendingObjectStore(
        bucket=place.bucket,
        region=place.region,
        endpoint=place.endpoint,
        make_client=partial(_client_with, place),
        sender=sender,
    )


def _client_with(place: Place, options: Mapping[str, Any]) -> Any:
    return client("s3", place, options=options)


def client(
    service: str,
    place: Place | None = None,
    *,
    patience: Patience = ELSEWHERE,
    session: Any = None,
    options: Mapping[str, Any] | None = None,
) -> Any:
    """A boto3 client with bounded waiting; nothing is sent yet.

    Args:
        service: as boto3 calls it.
        place: its region and endpoint; those of the environment by default.
        patience: how long it waits.
        session: of boto3; one of its own by default, because the process's default session would
            keep the profile that it was made with.
        options: more of botocore's `Config`.

    Raises:
        botocore.exceptions.BotoCoreError, ValueError: no region, no such profile, a malformed
            endpoint.
    """
    from botocore.config import Config

    from coldstream.adapters.answers import only_of_aws

    session = session or new_session()
    made = own_connections(
        session.client(
            service,
            region_name=(place.region if place else "") or resolve_region(),
            endpoint_url=(place.endpoint if place else "") or None,
            config=patience.config().merge(Config(**(options or {}))),
        )
    )
    return only_of_aws(made)


def _name_missing(dynamodb: Any, table: str) -> None:
    """Let every request of a DynamoDB client say which table is not there."""

    def look(parsed: dict[str, Any], **_: Any) -> None:
        if parsed.get("Error", {}).get("Code") == "ResourceNotFoundException":
            raise no_table(table)

    dynamodb.meta.events.register("after-call.dynamodb", look)
