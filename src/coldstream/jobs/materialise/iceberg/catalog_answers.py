"""What an error of an Iceberg catalog, or of its files, means to us; decided here and nowhere else.

Only the network and the service can leave it open whether a change landed. Everything else (a value
that pyiceberg cannot take, a mistake of ours) is no answer of a catalog, and is raised as it is: to
ask again would not help, and would hide what is wrong.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from pydantic import ValidationError  # pyiceberg brings it
from pyiceberg.exceptions import (
    AuthorizationExpiredError,
    BadRequestError,
    ForbiddenError,
    NoSuchIcebergTableError,
    NoSuchNamespaceError,
    NoSuchTableError,
    OAuthError,
    RESTError,
    UnauthorizedError,
)

from coldstream.adapters.aws_errors import AWS_ERRORS, FORBIDDEN, code_of, status_of
from coldstream.errors import (
    ColdstreamError,
    CorruptDataError,
    InvalidInputError,
    NotFoundError,
    PermissionDeniedError,
    UnavailableError,
)

_NOT_ALLOWED = (ForbiddenError, UnauthorizedError, AuthorizationExpiredError, OAuthError)
#: Answers below 500 that mean "later": the code of botocore's own retries.
_LATER = frozenset(
    {
        *("ThrottlingException", "Throttling", "ThrottledException", "TooManyRequestsException"),
        *("RequestThrottled", "RequestThrottledException", "SlowDown", "RequestTimeout"),
        *("RequestTimeoutException", "RequestLimitExceeded", "OperationTimeoutException"),
        *("LimitExceededException", "ProvisionedThroughputExceededException"),
    }
)

#: Request timeout, too early: as above, by HTTP.
_HTTP_LATER = frozenset({408, 425})


def meaning(error: Exception, table: str) -> ColdstreamError | None:
    """The error of ours that one of a catalog or of its files means; None if it is neither.

    Args:
        error: that was caught.
        table: its name, for the message.

    Returns:
        An UnavailableError where there was no answer, or none that settles anything.
    """
    if isinstance(error, ColdstreamError):
        return error
    words = f"{type(error).__name__}: {error}"
    answered = status_of(error)
    if answered is not None:
        return _of_aws(code_of(error), answered, table, words)
    if isinstance(error, _NOT_ALLOWED):
        return PermissionDeniedError(f"the catalog refused to serve {table}: {words}")
    if isinstance(error, BadRequestError):
        return InvalidInputError(f"the catalog refused what it was asked for {table}: {words}")
    if isinstance(error, NoSuchIcebergTableError):
        return InvalidInputError(f"{table} is there, and no Iceberg table: choose another name")
    if isinstance(error, NoSuchTableError | NoSuchNamespaceError):
        return NotFoundError(f"{table} is gone from the catalog: {words}")
    status = _status(error)
    if type(error) is RESTError and 400 <= status < 500 and status not in _HTTP_LATER:
        gone = status in (404, 410)
        kind = NotFoundError if gone else InvalidInputError
        return kind(f"the catalog refused what it was asked for {table}: {words}")
    if isinstance(error, FileNotFoundError):
        return CorruptDataError(f"a file of {table} is gone: {words}")
    # What pyarrow and requests raise about files and connections is an OSError.
    if isinstance(error, (OSError, RESTError, *AWS_ERRORS)) or _is_cut(error):
        return UnavailableError(f"no proper answer about {table}: {words}")
    return None


def _is_cut(error: Exception) -> bool:
    """Whether an answer with the code 200 was empty, cut, or something else altogether.

    What pyiceberg refuses of our own values is a mistake of ours, and its models have other names.
    """
    return isinstance(error, ValidationError) and error.title.endswith("Response")


def _status(error: Exception) -> int:
    """Of the HTTP answer that an error was made of; 0 if it was made of none."""
    response = getattr(error.__cause__, "response", None)
    status = getattr(response, "status_code", 0)
    return status if isinstance(status, int) else 0


def _of_aws(code: str, status: int, table: str, words: str) -> ColdstreamError:
    if code in FORBIDDEN:
        return PermissionDeniedError(f"AWS refused to serve {table}: {words}")
    if status >= 500 or code in _LATER:
        return UnavailableError(f"no proper answer about {table}: {words}")
    return InvalidInputError(f"AWS refused what it was asked for {table}: {words}")


@contextmanager
def answers(table: str) -> Iterator[None]:
    """Within it, errors of a catalog or of its files are raised as ours.

    Raises:
        UnavailableError, PermissionDeniedError, CorruptDataError, InvalidInputError: see `meaning`.
    """
    try:
        yield
    except Exception as error:
        known = meaning(error, table)
        if known is None or known is error:
            raise
        raise known from error
