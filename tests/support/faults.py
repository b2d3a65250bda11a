"""Lost requests and lost answers in a boto3 client, by botocore's own events.

`before-send` is before the service sees a request, `needs-retry` after it has answered and before
anybody above has seen the answer; `before-call` can answer in the service's stead.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

from botocore.exceptions import ConnectTimeoutError, ReadTimeoutError


def _times(count: int, action: Callable[[], Any]) -> Callable[..., Any]:
    left = [count]

    def handler(**_: Any) -> Any:
        if left[0] <= 0:
            return None
        left[0] -= 1
        return action()

    return handler


def lose_answers(
    client: Any, operation: str, count: int, between: Callable[[], object] | None = None
) -> None:
    """The service performs the next `count` requests; the client times out."""

    def lose() -> None:
        if between is not None:
            between()
        raise ReadTimeoutError(endpoint_url="http://lost.answer")

    client.meta.events.register_first(f"needs-retry.*.{operation}", _times(count, lose))


def lose_requests(client: Any, operation: str, count: int) -> None:
    """The next `count` requests never reach the service."""

    def lose() -> None:
        raise ConnectTimeoutError(endpoint_url="http://lost.request")

    client.meta.events.register_first(f"before-send.*.{operation}", _times(count, lose))


def repeat_request(
    client: Any, operation: str, between: Callable[[], object] | None = None
) -> None:
    """The client forgets the next answer and sends the request once more."""

    def forget() -> float:
        if between is not None:
            between()
        return 0.0

    client.meta.events.register_first(f"needs-retry.*.{operation}", _times(1, forget))


def answer_error(client: Any, operation: str, status: int, code: str, count: int = 1) -> None:
    """The next `count` requests are answered with an error, and the service never sees them."""

    def answer() -> tuple[Any, dict[str, Any]]:
        return SimpleNamespace(status_code=status), {
            "Error": {"Code": code, "Message": code},
            "ResponseMetadata": {"HTTPStatusCode": status},
        }

    client.meta.events.register_first(f"before-call.*.{operation}", _times(count, answer))


def leave_keys(client: Any, keys: Sequence[str], code: str, count: int) -> None:
    """The next `count` DeleteObjects leave these keys and give an error for each, none if "".

    S3 answers 200 to a request that it could perform in part only.
    """
    left = [count]
    nothing = "no-such-object"  # a request for no key at all would be malformed

    def drop(params: dict[str, Any], **_: Any) -> None:
        if left[0] > 0:
            asked = params["Delete"]["Objects"]
            params["Delete"]["Objects"] = [row for row in asked if row["Key"] not in keys] or [
                {"Key": nothing}
            ]

    def tell(parsed: dict[str, Any], **_: Any) -> None:
        if left[0] > 0:
            left[0] -= 1
            gone = [row for row in parsed.get("Deleted", []) if row["Key"] != nothing]
            parsed["Deleted"] = gone
            parsed["Errors"] = [{"Key": key, "Code": code} for key in keys if code]

    client.meta.events.register("before-parameter-build.*.DeleteObjects", drop)
    client.meta.events.register("after-call.*.DeleteObjects", tell)
