"""A function that does what it is asked to, for tests of what runs it."""

import json
import os
import sys
import time

import boto3


class ProbeError(Exception):
    pass


def handler(event, context):
    return globals()[f"do_{event['do']}"](event, context)


def do_about(event, context):
    return {
        "executable": sys.executable,
        "first_path": sys.path[0],
        "task_root": os.environ["LAMBDA_TASK_ROOT"],
        "environment": dict(os.environ),
        "file": __file__,
    }


def do_nothing(event, context):
    return {}


def do_raise(event, context):
    raise ProbeError("on purpose")


def do_metrics(event, context):
    print(
        json.dumps(
            {
                "_aws": {
                    "Timestamp": int(time.time() * 1000),
                    "CloudWatchMetrics": [
                        {
                            "Namespace": event["namespace"],
                            "Dimensions": [["service"]],
                            "Metrics": [
                                {"Name": "Fragments", "Unit": "Count"},
                                {"Name": "Sizes", "Unit": "Bytes"},
                            ],
                        }
                    ],
                },
                "service": "probe",
                "Fragments": 3,
                "Sizes": [1, 2, 4],
            }
        )
    )
    print("not a metric", '{"_aws": {"CloudWatchMetrics": 1}}')
    return {}


def do_echo(event, context):
    return event


def on_records(event, context):
    """Record which items a batch of stream records is about; fail if one is called fail-..."""
    names = [record["dynamodb"]["Keys"]["name"]["S"] for record in event["Records"]]
    boto3.client("s3").put_object(
        Bucket=os.environ["RECORDS"],
        Key=f"records/{context.aws_request_id}",
        Body=json.dumps({"bodies": names}),
    )
    if any(name.startswith("fail") for name in names):
        raise ProbeError("on purpose")


def on_messages(event, context):
    """Record the batch; answer as its messages say."""
    bodies = [record["body"] for record in event["Records"]]
    boto3.client("s3").put_object(
        Bucket=os.environ["RECORDS"],
        Key=f"batches/{context.aws_request_id}",
        Body=json.dumps({"bodies": bodies, "records": event["Records"]}),
    )
    failures = []
    for record in event["Records"]:
        if record["body"].startswith("fail"):
            failures.append({"itemIdentifier": record["messageId"]})
        elif record["body"].startswith("garble"):
            failures.append({"itemIdentifier": ""})
        elif record["body"].startswith("raise"):
            raise ProbeError("on purpose")
    return {"batchItemFailures": failures}
