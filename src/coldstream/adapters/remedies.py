"""What to do about an error of AWS that is no missing right, by its code."""

from __future__ import annotations

from coldstream.adapters.answers import ForeignAnswerError

_EXPIRED = (
    "renew the credentials, which have expired: by `aws sso login`, or by new keys; those of a role"
    " are renewed by themselves, while IMDS or its process answers"
)
_UNKNOWN = "set AWS_PROFILE, or the access key in the environment, to one that AWS knows"
_SIGNATURE = (
    "set the clock of this machine, then look whether the secret key belongs to the access key:"
    " AWS refuses the signature"
)
_SKEWED = "let chrony or systemd-timesyncd set the clock of this machine, by which it signs"
_SLOWER = (
    "wait: AWS asks for fewer requests for a while; if it goes on, see what else asks this bucket"
    " or table"
)
_FOREIGN = (
    "see who answers in AWS's stead: check AWS_ENDPOINT_URL, HTTPS_PROXY and NO_PROXY, and whether"
    " this network wants a login"
)
_BY_CODE = {
    **dict.fromkeys(("ExpiredToken", "ExpiredTokenException", "RequestExpired"), _EXPIRED),
    **dict.fromkeys(
        (
            "InvalidAccessKeyId", "InvalidClientTokenId", "InvalidToken",
            "UnrecognizedClientException",
        ),
        _UNKNOWN,
    ),
    **dict.fromkeys(("SignatureDoesNotMatch", "InvalidSignatureException"), _SIGNATURE),
    "RequestTimeTooSkewed": _SKEWED,
    **dict.fromkeys(
        (
            "SlowDown", "ThrottlingException", "ProvisionedThroughputExceededException",
            "RequestThrottled",
        ),
        _SLOWER,
    ),
}  # fmt: skip


def remedy_for(code: str, exc: BaseException | None = None) -> str | None:
    """What to do, where a code or an error says more than its kind; None where it does not."""
    return _FOREIGN if isinstance(exc, ForeignAnswerError) else _BY_CODE.get(code)
