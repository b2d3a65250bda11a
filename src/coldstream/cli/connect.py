"""Settings from flags or the environment, and the adapters that they choose.

The SDKs are imported here, inside the function, so that `coldstream --help` stays quick.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from coldstream.cli.report import ConfigurationError
from coldstream.names import (
    DEFAULT_PREFIX,
    ENV_BUCKET,
    ENV_PREFIX,
    ENV_TABLE,
    check_prefix,
)
from coldstream.ports import Catalog, ObjectStore, Policies

if TYPE_CHECKING:
    from coldstream.remote.context import World

_PANEL = "Where"

BucketOption = Annotated[
    str,
    typer.Option(
        "--bucket", envvar=ENV_BUCKET, help="S3 bucket of the fragments.", rich_help_panel=_PANEL
    ),
]
TableOption = Annotated[
    str,
    typer.Option(
        "--table", envvar=ENV_TABLE, help="DynamoDB table of the catalog.", rich_help_panel=_PANEL
    ),
]
PrefixOption = Annotated[
    str,
    typer.Option(
        "--prefix",
        envvar=ENV_PREFIX,
        help="What all keys of the cluster begin with.",
        rich_help_panel=_PANEL,
    ),
]
DEFAULT_PREFIX_VALUE = DEFAULT_PREFIX


@dataclass(frozen=True, slots=True)
class Remote:
    """The remote tier of one cluster.

    Attributes:
        store: its bucket.
        catalog: its table.
        prefix: of all its keys.
        policies: the operator's rules.
    """

    store: ObjectStore
    catalog: Catalog
    prefix: str
    policies: Policies

    def world(self) -> World:
        """What use cases that write work with; for the others see `read_only`."""
        from coldstream.remote.context import World

        return World(self.store, self.catalog, self.prefix, lambda: secrets.randbits(64))


def connect(*, bucket: str, table: str, prefix: str) -> Remote:
    """Adapters for a bucket and a table; credentials, region and endpoint as every AWS SDK.

    Nothing is sent yet.

    Raises:
        ConfigurationError: a setting is missing or malformed.
        MisconfiguredError: a name that no bucket or table can have, or no credentials.
    """
    missing = [name for name, value in ((ENV_BUCKET, bucket), (ENV_TABLE, table)) if not value]
    if missing:
        raise ConfigurationError(
            f"no {' and no '.join(missing)} is set",
            remedy=f"set {' and '.join(missing)}, or --bucket and --table (the stack's outputs "
            'name both); on one machine: eval "$(coldstream local env)"',
        )
    try:
        check_prefix(prefix)
    except ValueError as exc:
        raise ConfigurationError(
            str(exc), remedy=f"set --prefix or {ENV_PREFIX} to path parts that end in '/'"
        ) from exc

    from coldstream.adapters.dynamodb import DynamoCatalog
    from coldstream.adapters.dynamodb_policies import DynamoPolicies
    from coldstream.adapters.s3 import S3ObjectStore
    from coldstream.adapters.settings import check_table

    check_table(table)
    store = S3ObjectStore(bucket=bucket)
    client = aws_client("dynamodb")
    _name_missing(client, table)
    return Remote(
        store=store,
        catalog=DynamoCatalog(client=client, table=table, prefix=prefix),
        prefix=prefix,
        policies=DynamoPolicies(client=client, table=table, prefix=prefix),
    )


def aws_client(service: str) -> Any:
    """A boto3 client in the region that all clients of this process use; nothing is sent yet.

    Args:
        service: as boto3 calls it.

    Raises:
        ConfigurationError: no region, no such profile, a malformed endpoint.
    """
    import boto3
    from botocore.config import Config
    from botocore.exceptions import BotoCoreError

    from coldstream.adapters.settings import resolve_region

    config = Config(
        connect_timeout=5, read_timeout=20, retries={"mode": "standard", "max_attempts": 5}
    )
    try:
        # A session of its own: the process's would keep the profile that it was made with.
        session: Any = boto3.session.Session()  # its types know literal names only
        return session.client(service, region_name=resolve_region(), config=config)
    except (BotoCoreError, ValueError) as exc:
        raise ConfigurationError(
            str(exc), remedy="set AWS_REGION and credentials as for every AWS SDK"
        ) from exc


def _name_missing(client: Any, table: str) -> None:
    """Let every request of a DynamoDB client say which table is not there."""
    from coldstream.adapters.settings import no_table

    def look(parsed: dict[str, Any], **_: Any) -> None:
        if parsed.get("Error", {}).get("Code") == "ResourceNotFoundException":
            raise no_table(table)

    client.meta.events.register("after-call.dynamodb", look)
