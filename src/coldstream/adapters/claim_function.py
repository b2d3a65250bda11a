"""The function `claim`, invoked on AWS Lambda."""

from __future__ import annotations

from typing import TYPE_CHECKING

from botocore.exceptions import BotoCoreError, ClientError

from coldstream.adapters.remedies import remedy_for
from coldstream.adapters.settings import MisconfiguredError
from coldstream.errors import InvalidInputError, PermissionDeniedError, UnavailableError
from coldstream.plans.agent_requests import MAX_MESSAGE

if TYPE_CHECKING:
    from mypy_boto3_lambda import LambdaClient

_FORBIDDEN = frozenset(
    {
        "AccessDenied",
        "AccessDeniedException",
        "ExpiredTokenException",
        "InvalidClientTokenId",
        "InvalidSignatureException",
        "UnrecognizedClientException",
    }
)


class LambdaClaimFunction:
    """The `ClaimFunction` port on one Lambda function.

    Args:
        client: a boto3 Lambda client that waits as long as the function may run.
        name: of the function, or its ARN.
    """

    def __init__(self, *, client: LambdaClient, name: str) -> None:
        self._client = client
        self._name = name

    def invoke(self, request: bytes) -> bytes:
        if len(request) > MAX_MESSAGE:
            raise InvalidInputError(f"a request of {len(request)} bytes is too large for Lambda")
        try:
            response = self._client.invoke(FunctionName=self._name, Payload=request)
            answer = response["Payload"].read(MAX_MESSAGE + 1)
        except ClientError as exc:
            code = str(exc.response.get("Error", {}).get("Code", ""))
            if code in _FORBIDDEN:
                raise PermissionDeniedError(
                    f"Lambda refused to invoke {self._name}: {code}", remedy=remedy_for(code)
                ) from exc
            if code == "ResourceNotFoundException":
                raise MisconfiguredError(
                    f"there is no function {self._name} in this region and account",
                    remedy="set --claim-function to the stack's output ClaimFunctionName",
                ) from exc
            raise UnavailableError(f"Lambda did not answer properly: {exc}") from exc
        except BotoCoreError as exc:
            raise UnavailableError(f"Lambda did not answer properly: {exc}") from exc
        if response.get("FunctionError") or len(answer) > MAX_MESSAGE:
            raise UnavailableError(
                f"the function {self._name} failed, see its log: {answer[:300]!r}"
            )
        return answer
