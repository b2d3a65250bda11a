"""A Catch of a state machine, an event of one or of a job -> here: log and count the failure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from aws_lambda_powertools.metrics import MetricUnit
from aws_lambda_powertools.utilities.typing import LambdaContext

from coldstream import deployment
from functions._runtime import SERVICE, count_for, logger, metrics, tracer

# Step Functions takes causes of 32 KiB, and a stack trace says what it has to say at its end.
_LONGEST_CAUSE = 4000


@logger.inject_lambda_context
@tracer.capture_lambda_handler(capture_response=False)
@metrics.log_metrics
def handler(event: dict[str, Any], context: LambdaContext) -> dict[str, Any]:
    """Count the failure twice: for the alarm, and for each workflow by its name."""
    workflow, error = _failure(event)
    logger.error(
        f"the workflow {workflow} gives up",
        extra={
            "workflow": workflow,
            "error": error.get("Error"),
            "cause": str(error.get("Cause") or "")[-_LONGEST_CAUSE:],
            "streams": [item.get("stream") for item in event.get("work") or []],
        },
    )
    name = deployment.METRIC_WORKFLOW_FAILURES
    metrics.add_metric(name=name, unit=MetricUnit.Count, value=1)
    count_for(workflow, name, 1)
    return {}


def _failure(event: Mapping[str, Any]) -> tuple[str, Mapping[str, Any]]:
    """The name of what failed, and its error as a Catch has it."""
    detail = event.get("detail")
    if detail is None:
        return _name(str(event["workflow"])), event.get("error") or {}
    if "jobName" in detail:
        return str(detail["jobName"]), {"Error": detail["state"], "Cause": detail.get("message")}
    error = {"Error": detail["status"], "Cause": detail.get("cause")}
    return _name(str(detail["stateMachineArn"])), error


def _name(workflow: str) -> str:
    """The name of a workflow; events of Step Functions have the ARN of its machine."""
    _, is_arn, machine = workflow.rpartition(":stateMachine:")
    return machine.removeprefix(f"{SERVICE}-") if is_arn else workflow
