"""What the steps of workflows share: their input, their loop over streams, their totals."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from functools import cache
from typing import Any

from aws_lambda_powertools.metrics import MetricUnit

from coldstream import deployment
from coldstream.adapters.dynamodb_policies import DynamoPolicies
from coldstream.adapters.s3_compose import S3Composer
from coldstream.adapters.s3_delete import S3Deleter
from coldstream.adapters.s3_versions import S3Versions
from coldstream.errors import (
    ColdstreamError,
    InternalError,
    InvalidInputError,
    PermissionDeniedError,
    UnavailableError,
)
from coldstream.names import check_stream
from coldstream.plans.policy import PolicySet
from functions._runtime import aws_client, count_for, logger, metrics, tell

#: Most streams that one call of a step takes.
_MAX_ITEMS = 1000
#: What an adapter adds to tell its starts apart.
_START = "start"
_LONGEST_TOLD = 100


@cache
def deleter() -> S3Deleter:
    """The bucket, for those who may delete."""
    s3 = aws_client("s3")
    return S3Deleter(client=s3, bucket=os.environ[deployment.ENV_BUCKET])


@cache
def version_deleter() -> S3Versions:
    """The bucket with all its versions, for `erase`."""
    return S3Versions(client=aws_client("s3"), bucket=os.environ[deployment.ENV_BUCKET])


@cache
def composer() -> S3Composer:
    """The bucket, for those who make objects out of parts of others."""
    s3 = aws_client("s3")
    return S3Composer(client=s3, bucket=os.environ[deployment.ENV_BUCKET])


@cache
def _policies() -> DynamoPolicies:
    return DynamoPolicies(
        client=aws_client("dynamodb"),
        table=os.environ[deployment.ENV_TABLE],
        prefix=os.environ[deployment.ENV_PREFIX],
    )


def policies() -> PolicySet:
    """The rules as they are now: a hold must work at once, so they are never kept."""
    return _policies().load()[0]


def policies_and_revision() -> tuple[PolicySet, int]:
    """The rules as they are now, and their revision, for what must not cross a change of them."""
    return _policies().load()


def work_items(event: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The work items of a step's input.

    Raises:
        InvalidInputError: there are none, too many, or one names no stream.
    """
    work = event.get("work")
    if not isinstance(work, list) or not 0 < len(work) <= _MAX_ITEMS:
        raise InvalidInputError(f"a step needs 1 to {_MAX_ITEMS} work items")
    for item in work:
        if not isinstance(item, dict) or not isinstance(item.get("stream"), str):
            raise InvalidInputError(f"a work item that names no stream: {str(item)[:200]}")
        check_stream(item["stream"])
    return work


def check_given(
    given: Any, *keys: str, of_item: Collection[str] = ("stream",), own: str = ""
) -> Mapping[str, Any]:
    """Return what a machine was given, if there is nothing in it that the machine does not know.

    A word that is misspelt would else be left out, and what runs is more than was asked for: on all
    streams, or no dry run.

    Args:
        given: the input.
        keys: what it may have.
        of_item: what each item of its `work` may have.
        own: what the machine itself hands from call to call beside them.

    Raises:
        InvalidInputError: it is no JSON object, or has something else or of another kind.
    """
    if not isinstance(given, dict):
        raise InvalidInputError(f"the input is no JSON object: {_told(given)}")
    for key in given.keys() - {*keys, own, _START}:
        raise InvalidInputError(f"the input may have {', '.join(keys)}, and not {_told(key)}")
    if not isinstance(given.get("dry_run", False), bool):
        raise InvalidInputError(f"dry_run is true or false, not {_told(given['dry_run'])}")
    if not isinstance(given.get("reason", ""), str):
        raise InvalidInputError(f"the reason is text, not {_told(given['reason'])}")
    for item in work_items(given) if "work" in given else ():
        for key in item.keys() - {*of_item}:
            raise InvalidInputError(
                f"an item of work may have {', '.join(of_item)}, and not {_told(key)}"
            )
    return given


def only_item(given: Mapping[str, Any]) -> dict[str, Any]:
    """The one work item of a step that takes one stream.

    Raises:
        InvalidInputError: there is none, there are more, or it names no stream.
    """
    first, *more = work_items(given)
    if more:
        raise InvalidInputError(f"one stream at a time, not {1 + len(more)}")
    return first


def _told(value: object) -> str:
    return ascii(value)[:_LONGEST_TOLD]


Totals = Counter[str]


def over_streams(
    event: Mapping[str, Any],
    totals: Totals,
    time_left: Callable[[], bool],
    act: Callable[[dict[str, Any]], dict[str, Any] | None],
) -> list[dict[str, Any]]:
    """Do `act` with one work item after the other while there is time; give what is left.

    `act` gives the item to go on with, or None where the stream is done. What goes wrong with one
    stream, be it a bug of ours that only its objects bring to light, is logged and counted, and
    does not stop the others. Where S3 or DynamoDB did not answer, or refused, the stream goes to
    the end of what is left, behind all that nobody has looked at.

    Raises:
        InvalidInputError: the step's input names no streams.
        UnavailableError, PermissionDeniedError: every single stream had this trouble; the machine
            tries the step again, and gives up in the end.
    """
    left: list[dict[str, Any]] = []
    troubled: list[dict[str, Any]] = []
    trouble: ColdstreamError | None = None
    done = 0
    for item in work_items(event):
        if not time_left():
            left.append(item)
            continue
        totals["streams"] += 1
        try:
            again = act(item)
        except (UnavailableError, PermissionDeniedError) as error:
            trouble = error.located(stream=item["stream"])
            tell(trouble)
            troubled.append(item)
        except ColdstreamError as error:
            totals["failed"] += 1
            tell(error.located(stream=item["stream"]))
            done += 1
        except Exception as error:  # noqa: BLE001 - a bug that one stream shows stops no other
            totals["failed"] += 1
            tell(InternalError(f"{type(error).__name__}: {error}", stream=item["stream"]))
            logger.warning("where that was", exc_info=True, extra={"stream": item["stream"]})
            done += 1
        else:
            done += 1
            if again is not None:
                left.append(again)
    if trouble is not None and not done and not left:
        raise trouble
    return left + troubled


def answer(event: Mapping[str, Any], left: list[dict[str, Any]], totals: Totals) -> dict[str, Any]:
    """A step's output; `failed` goes on from call to call, so that the machine can tell it."""
    return {"left": left, **totals, "failed": totals["failed"] + int(event.get("failed", 0))}


def report(workflow: str, values: Mapping[str, int], *, failed: int = 0) -> None:
    """Count what a step did in the metrics, and log it.

    Args:
        workflow: the step's.
        values: by the metric's name.
        failed: streams that it left undone. They are counted for the workflow alone, whose alarm
            knows how often it comes round, and only if there are any: a metric costs money.
    """
    if failed:
        count_for(workflow, deployment.METRIC_STREAMS_FAILED, failed)
    for name, value in values.items():
        unit = MetricUnit.Bytes if name.startswith("Bytes") else MetricUnit.Count
        metrics.add_metric(name=name, unit=unit, value=value)
    logger.info("step", extra={"workflow": workflow, **values, "failed": failed})
