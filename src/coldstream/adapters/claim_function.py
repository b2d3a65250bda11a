"""The function `claim`, invoked on AWS Lambda."""

from __future__ import annotations

from typing import TYPE_CHECKING

from coldstream.adapters.aws_errors import AWS_ERRORS, code_of, translated
from coldstream.adapters.settings import MisconfiguredError
from coldstream.errors import InvalidInputError, UnavailableError
from coldstream.plans.agent_requests import MAX_MESSAGE

if TYPE_CHECKING:
    from mypy_boto3_lambda import LambdaClient


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
        except AWS_ERRORS as exc:
            if code_of(exc) == "ResourceNotFoundException":
                raise MisconfiguredError(
                    f"there is no function {self._name} in this region and account",
                    remedy="set --claim-function to the stack's output ClaimFunctionName",
                ) from exc
            raise translated(exc, f"Lambda, asked for {self._name},") from exc
        if response.get("FunctionError") or len(answer) > MAX_MESSAGE:
            raise UnavailableError(
                f"the function {self._name} failed, see its log: {answer[:300]!r}"
            )
        return answer
