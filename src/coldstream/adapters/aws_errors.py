"""What boto3's errors mean at every service: the code, and which codes are a missing right."""

from __future__ import annotations

from botocore.exceptions import BotoCoreError, ClientError

from coldstream.adapters.remedies import remedy_for
from coldstream.errors import ColdstreamError, PermissionDeniedError, UnavailableError

#: All that a request raises: AWS has answered with an error, or has not answered.
AWS_ERRORS = (ClientError, BotoCoreError)
#: Of any service: a missing right, a session that is over, a key or a secret that is not known.
FORBIDDEN = frozenset(
    {
        "403",
        "AccessDenied",
        "AccessDeniedException",
        "ExpiredToken",
        "ExpiredTokenException",
        "InvalidAccessKeyId",
        "InvalidClientTokenId",
        "InvalidSignatureException",
        "InvalidToken",
        "SignatureDoesNotMatch",
        "UnrecognizedClientException",
    }
)


def code_of(exc: BaseException) -> str:
    """AWS's own code of an error, "" if there was no answer."""
    return (
        str(exc.response.get("Error", {}).get("Code", "")) if isinstance(exc, ClientError) else ""
    )


def status_of(exc: BaseException) -> int | None:
    """HTTP status of AWS's answer, 500 if it names none; None if AWS has not answered."""
    if not isinstance(exc, ClientError):
        return None
    return int(exc.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 500))


def translated(exc: BaseException, service: str) -> ColdstreamError:
    """The error of ours for what is no answer of one service only.

    Args:
        exc: that the request raised.
        service: which was asked, for the message.
    """
    code = code_of(exc)
    if code in FORBIDDEN:
        return PermissionDeniedError(
            f"{service} refused the request: {code}", remedy=remedy_for(code)
        )
    return UnavailableError(
        f"{service} did not answer properly: {exc}", remedy=remedy_for(code, exc)
    )
