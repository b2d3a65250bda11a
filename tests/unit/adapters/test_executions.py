"""How Step Functions tells what became of an execution, in the words of its API."""

from __future__ import annotations

from typing import Any

import pytest

from coldstream.adapters.stepfunctions import StepFunctionsWorkflows
from coldstream.deployment import ERROR_REPORTED
from coldstream.errors import UnavailableError
from coldstream.ports import Execution, ExecutionStatus

PREFIX = "arn:aws:states:eu-west-1:123456789012:stateMachine:coldstream-"


class States:
    """A client that gives one answer to DescribeExecution and remembers what it was asked."""

    def __init__(self, **answer: Any) -> None:
        self.answer = answer
        self.asked = ""

    def describe_execution(self, *, executionArn: str) -> Any:  # noqa: N803 - the API's name
        self.asked = executionArn
        return self.answer


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ({"status": "RUNNING"}, Execution(ExecutionStatus.RUNNING)),
        ({"status": "PENDING_REDRIVE"}, Execution(ExecutionStatus.RUNNING)),
        (
            {"status": "SUCCEEDED", "output": '{"left": []}'},
            Execution(ExecutionStatus.SUCCEEDED, {"left": []}),
        ),
        (
            {"status": "FAILED", "error": "States.Timeout", "cause": "why"},
            Execution(ExecutionStatus.FAILED, None, "States.Timeout", "why"),
        ),
        (
            {"status": "FAILED", "error": f"KeyError{ERROR_REPORTED}", "cause": "why"},
            Execution(ExecutionStatus.FAILED, None, "KeyError", "why"),
        ),
        ({"status": "TIMED_OUT"}, Execution(ExecutionStatus.TIMED_OUT)),
        (
            {"status": "ABORTED", "error": "Stopped", "cause": "by hand"},
            Execution(ExecutionStatus.ABORTED, None, "Stopped", "by hand"),
        ),
    ],
)
def test_each_status_is_told_with_its_output_or_its_error(
    answer: dict[str, Any], expected: Execution
) -> None:
    states: Any = States(**answer)

    found = StepFunctionsWorkflows(client=states, arn_prefix=PREFIX).describe("delete", "x-1")

    assert found == expected
    assert states.asked == ("arn:aws:states:eu-west-1:123456789012:execution:coldstream-delete:x-1")


def test_a_status_of_the_future_is_not_taken_for_an_end() -> None:
    states: Any = States(status="HIBERNATING")

    with pytest.raises(UnavailableError, match="HIBERNATING"):
        StepFunctionsWorkflows(client=states, arn_prefix=PREFIX).describe("delete", "x-1")
