"""Settings from flags or the environment, and the adapters that they choose.

The SDKs are imported here, inside the function, so that `coldstream --help` stays quick.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

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
    from coldstream.usecases.load import World

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
        from coldstream.usecases.load import World

        return World(self.store, self.catalog, self.prefix, lambda: secrets.randbits(64))


def connect(*, bucket: str, table: str, prefix: str) -> Remote:
    """Adapters for a bucket and a table; credentials, region and endpoint as every AWS SDK.

    Nothing is sent yet.

    Raises:
        ConfigurationError: a setting is missing or malformed.
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

    import boto3
    from botocore.config import Config
    from botocore.exceptions import BotoCoreError

    from coldstream.adapters.dynamodb import DynamoCatalog
    from coldstream.adapters.dynamodb_policies import DynamoPolicies
    from coldstream.adapters.s3 import S3ObjectStore

    try:
        client = boto3.client(
            "dynamodb",
            config=Config(
                connect_timeout=5, read_timeout=20, retries={"mode": "standard", "max_attempts": 5}
            ),
        )
    except (BotoCoreError, ValueError) as exc:
        raise ConfigurationError(
            str(exc), remedy="set AWS_REGION and credentials as for every AWS SDK"
        ) from exc
    return Remote(
        store=S3ObjectStore(bucket=bucket),
        catalog=DynamoCatalog(client=client, table=table, prefix=prefix),
        prefix=prefix,
        policies=DynamoPolicies(client=client, table=table, prefix=prefix),
    )
