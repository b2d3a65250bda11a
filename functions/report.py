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


_LONGEST_NAME = 255


@logger.inject_lambda_context
@tracer.capture_lambda_handler(capture_response=False)
def handler(event: dict[str, Any], context: LambdaContext) -> dict[str, Any]:
    """Count the failure twice: for the alarm, and for each workflow by its name.

    Who starts a machine gives it what he likes, and it comes here as it is: whatever an event
    holds, the failure is told.
    """
    workflow, error = _failure(event)
    if str(error.get("Error") or "").endswith(deployment.ERROR_REPORTED):
        logger.info(f"the workflow {workflow} has reported this itself")
        return {}
    logger.error(
        f"the workflow {workflow} gives up",
        extra={
            "workflow": workflow,
            "error": error.get("Error"),
            "cause": str(error.get("Cause") or "")[-_LONGEST_CAUSE:],
            "streams": _streams(event),
        },
    )
    name = deployment.METRIC_WORKFLOW_FAILURES
    metrics.add_metric(name=name, unit=MetricUnit.Count, value=1)
    metrics.flush_metrics()
    count_for(workflow, name, 1)
    return {}


def _failure(event: Mapping[str, Any]) -> tuple[str, Mapping[str, Any]]:
    """The name of what failed, and its error as a Catch has it."""
    detail = event.get("detail")
    if not isinstance(detail, Mapping):
        return _name(event.get("workflow")), _mapping(event.get("error"))
    if "jobName" in detail:
        error = {"Error": detail.get("state"), "Cause": detail.get("message")}
        return _name(detail["jobName"]), error
    error = {"Error": detail.get("error") or detail.get("status"), "Cause": detail.get("cause")}
    return _name(detail.get("stateMachineArn")), error


def _streams(event: Mapping[str, Any]) -> list[str]:
    """What the work names, as far as it names anything: a machine that has just begun has its
    work in what it was given.
    """
    work = event.get("work") or _mapping(event.get("given")).get("work")
    names = [_mapping(item).get("stream") for item in work] if isinstance(work, list) else []
    # Escaped: a line that cannot be written would be lost.
    return [ascii(name)[1:-1][:_LONGEST_NAME] for name in names if isinstance(name, str)]


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _name(workflow: object) -> str:
    """The name of a workflow; events of Step Functions have the ARN of its machine."""
    text = str(workflow or "unknown")
    _, is_arn, machine = text.rpartition(":stateMachine:")
    return machine.removeprefix(f"{SERVICE}-") if is_arn else text
