"""What every handler shares: logger, tracer, metrics and the tier, built once per container."""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable
from functools import cache
from typing import Any

import boto3
from aws_lambda_powertools import Logger, Metrics, Tracer
from aws_lambda_powertools.metrics import MetricUnit, single_metric
from aws_lambda_powertools.utilities.typing import LambdaContext

from coldstream import deployment
from coldstream.adapters.dynamodb import DynamoCatalog
from coldstream.adapters.place import IN_LAMBDA, client
from coldstream.adapters.s3_boto import BotoObjectStore
from coldstream.errors import ColdstreamError
from coldstream.remote.context import Context

# The stack's name: two clusters in one account have metrics of their own.
SERVICE = os.environ.get("POWERTOOLS_SERVICE_NAME", deployment.METRIC_SERVICE)
logger = Logger(service=SERVICE)
tracer = Tracer(service=SERVICE)
metrics = Metrics(namespace=deployment.METRIC_NAMESPACE, service=SERVICE)

_LAST_MS = 10_000

# The runtime's own, and AWS says nowhere which: a difference from what was tested shows here.
logger.info("started", boto3=boto3.__version__)


@cache
def _session() -> Any:
    return boto3.session.Session()


def aws_client(service: str) -> Any:
    """A boto3 client with the patience of a Lambda; all share one session, which loads faster."""
    return client(service, patience=IN_LAMBDA, session=_session())


@cache
def remote() -> Context:
    """The bucket, the table and a source of ids, from the function's environment.

    Raises:
        KeyError: a variable that the stack sets is missing.
    """
    prefix = os.environ[deployment.ENV_PREFIX]
    return Context(
        store=BotoObjectStore(client=aws_client("s3"), bucket=os.environ[deployment.ENV_BUCKET]),
        catalog=DynamoCatalog(
            client=aws_client("dynamodb"),
            table=os.environ[deployment.ENV_TABLE],
            prefix=prefix,
        ),
        prefix=prefix,
        new_uid=lambda: secrets.randbits(64),
    )


def tell(error: ColdstreamError, *, message_id: str | None = None) -> None:
    """Log an error with all that it knows in fields of their own, for queries.

    What UTF-8 cannot hold, as in an event that says that its key is a lone surrogate, is escaped:
    a line that cannot be written would be lost.
    """
    fields = {
        "kind": error.kind,
        "stream": _writable(error.stream),
        "offset": error.offset,
        "key": _writable(error.key),
        **({} if message_id is None else {"message_id": message_id}),
    }
    logger.error(_writable(str(error)), extra=fields)


def _writable(text: str | None) -> str | None:
    return None if text is None else text.encode(errors="backslashreplace").decode()


def count_for(workflow: str, name: str, value: int) -> None:
    """Count something in the metric of one workflow, at once and beside those of the handler."""
    with single_metric(
        name=name,
        unit=MetricUnit.Count,
        value=value,
        namespace=deployment.METRIC_NAMESPACE,
        default_dimensions={deployment.METRIC_DIMENSION_SERVICE: SERVICE},
    ) as of_workflow:
        of_workflow.add_dimension(name=deployment.METRIC_DIMENSION_WORKFLOW, value=workflow)


def setting(name: str) -> int:
    """A number that the stack sets.

    Raises:
        KeyError: the variable is missing.
    """
    return int(os.environ[name])


def time_left(context: LambdaContext) -> Callable[[], bool]:
    """Whether the invocation may begin something new: ten seconds before its end it may not."""
    return lambda: context.get_remaining_time_in_millis() > _LAST_MS
