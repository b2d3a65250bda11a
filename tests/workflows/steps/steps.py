"""Throw-away steps: each does what the work item that it is given says, and records its input.

{"stream": s, "calls": n}       comes back in `left` until it was seen n times (as `seen`)
{"stream": s, "raise": [...]}   the first call raises an error of the first class named, ...
{"stream": s, "states": [...]}  what a sweep answers, one call after the other
"""

import json
import os

import boto3


def _record(kind, event, context):
    boto3.client("s3").put_object(
        Bucket=os.environ["RECORDS"],
        Key=f"{kind}/{context.aws_request_id}",
        Body=json.dumps(event),
    )


def step(event, context):
    _record("step", event, context)
    left = []
    for item in event["work"]:
        if "raise" in item:
            name = f"{item['stream']}-raised"
            before = _count(name)
            if before < len(item["raise"]):
                boto3.client("s3").put_object(
                    Bucket=os.environ["RECORDS"], Key=f"{name}/{before}", Body=b""
                )
                raise type(item["raise"][before], (Exception,), {})("on purpose")
        seen = item.get("seen", 0) + 1
        if seen < item.get("calls", 1):
            left.append({**item, "seen": seen})
    return {"left": left, "failed": 0}


def sweep(event, context):
    _record("step", event, context)
    item = event["work"][0]
    state, *states = item["states"]
    ended = state in ("done", "called_off")
    return {"left": [] if ended else [{**item, "states": states}], "state": state, "objects": 1}


def scan(event, context):
    """Two pages: the cursor of the second one is "2"."""
    _record("scan", event, context)
    given = event["given"]
    how = {"dry_run": given.get("dry_run", False), "reason": given.get("reason", "")}
    if "work" in given:
        work = given["work"]
        return {"work": work, "cursor": None, "more": False, "failed": event["failed"], **how}
    first = event.get("cursor") is None
    work = [{"stream": f"{'first' if first else 'second'}-{i}"} for i in range(3)]
    failed = 0 if first else _total(event["failed"])
    cursor = "2" if first else None
    return {"work": work, "cursor": cursor, "more": first, "failed": failed, **how}


def _total(failed):
    return sum(map(_total, failed)) if isinstance(failed, list) else int(failed)


def report(event, context):
    _record("report", event, context)
    return {}


def _count(prefix):
    found = boto3.client("s3").list_objects_v2(Bucket=os.environ["RECORDS"], Prefix=f"{prefix}/")
    return found["KeyCount"]
