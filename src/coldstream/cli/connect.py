"""The adapters that the settings choose.

The SDKs are imported here, inside the function, so that `coldstream --help` stays quick.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from coldstream.adapters.place import (
    ELSEWHERE,
    OF_A_FUNCTION,
    Patience,
    Place,
    Remote,
    client,
    open_place,
)
from coldstream.cli.report import ConfigurationError
from coldstream.deployment import ENV_BUCKET, ENV_PREFIX, ENV_TABLE
from coldstream.names import check_prefix
from coldstream.ports import ClaimFunction

if TYPE_CHECKING:
    from coldstream.adapters.s3_send import Sender

__all__ = ["Remote", "aws_client", "check_place", "claim_function", "connect"]

_T = TypeVar("_T")


def connect(*, bucket: str, table: str, prefix: str, sender: Sender | None = None) -> Remote:
    """Adapters for a bucket and a table; credentials, region and endpoint as every AWS SDK.

    Nothing is sent yet.

    Args:
        bucket: of the fragments.
        table: of the catalog.
        prefix: of all keys.
        sender: as in `open_place`.

    Raises:
        ConfigurationError: a setting is missing or malformed.
        MisconfiguredError: a name that no bucket or table can have, or no credentials.
    """
    check_place(bucket=bucket, table=table, prefix=prefix)
    return _configured(lambda: open_place(Place(bucket, table, prefix), sender))


def check_place(*, bucket: str, table: str, prefix: str) -> None:
    """See that a remote tier is named.

    Raises:
        ConfigurationError: a name is missing, or the prefix is malformed.
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


def claim_function(name: str) -> ClaimFunction:
    """The function that claims and commits for agents; nothing is sent yet.

    Raises:
        ConfigurationError: as `aws_client`.
    """
    from coldstream.adapters.claim_function import LambdaClaimFunction

    return LambdaClaimFunction(client=aws_client("lambda", patience=OF_A_FUNCTION), name=name)


def aws_client(service: str, *, patience: Patience = ELSEWHERE) -> Any:
    """A boto3 client in the region that all clients of this process use; nothing is sent yet.

    Args:
        service: as boto3 calls it.
        patience: how long it waits.

    Raises:
        ConfigurationError: no region, no such profile, a malformed endpoint.
    """
    return _configured(lambda: client(service, patience=patience))


def _configured(make: Callable[[], _T]) -> _T:
    from coldstream.adapters.aws_errors import AWS_ERRORS

    try:
        return make()
    except AWS_ERRORS as exc:
        raise ConfigurationError(
            str(exc), remedy="set AWS_REGION and credentials as for every AWS SDK"
        ) from exc
    except ValueError as exc:  # of nothing but an endpoint that is no URL
        raise ConfigurationError(
            str(exc),
            remedy="set AWS_ENDPOINT_URL (or that of one service) to a URL such as"
            " https://HOST:PORT, or unset it",
        ) from exc
