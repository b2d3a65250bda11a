"""List prices in us-east-1, in US dollars, without the free tier.

Written on 2026-11-23 from memory of AWS's pages, `https://aws.amazon.com/SERVICE/pricing/` for s3,
dynamodb, sqs, step-functions, lambda, eventbridge and cloudwatch. Compared on 2026-11-25 with
copies of pages whose own dates are not known: step-functions with AWS's, dynamodb (requests) and
cloudwatch (alarms, metrics) with what others quote. The rest has been compared with nothing: check
it before you rely on a sum.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

MONTH_HOURS = 730

#: Of one request, transition, invocation or unit.
PRICES: Mapping[str, float] = MappingProxyType(
    {
        "s3.PutObject": 5e-6,
        "s3.ListObjectsV2": 5e-6,
        "s3.CreateMultipartUpload": 5e-6,
        "s3.UploadPart": 5e-6,
        "s3.UploadPartCopy": 5e-6,
        "s3.CompleteMultipartUpload": 5e-6,
        "s3.GetObject": 0.4e-6,
        "s3.HeadObject": 0.4e-6,
        "dynamodb.PutItem": 0.625e-6,  # for each KB of the item, as the next one
        "dynamodb.UpdateItem": 0.625e-6,
        "dynamodb.GetItem": 0.125e-6,
        "dynamodb.scanned": 0.125e-6 / 8,  # an item; half a unit is 4 KB, an item 1 KB at most
        "sqs.messages": 0.4e-6,  # a request, also one that finds nothing
        "states.Transition": 25e-6,
        "lambda.requests": 0.2e-6,
        "lambda.gb_seconds": 13.3334e-6,  # arm64
        "scheduler.invocations": 1e-6,
        "alarm": 0.10,  # a month, for each metric that it looks at
        "metric": 0.30,  # a month
        "logs.bytes": 0.50e-9,
    }
)
#: Not billed, or by what is counted under another name.
FREE = frozenset(
    {
        "dynamodb.DescribeTable",
        "dynamodb.Query",
        "dynamodb.Scan",
        "lambda.Invoke",
        "s3.DeleteObject",
        "states.StartExecution",
    }
)
