"""The parts of the bill that no embedded AWS counts: idle polls, the agents' words, the alarms."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from statistics import fmean
from typing import Any

import boto3

from bench.prices import MONTH_HOURS, PRICES
from bench.site import ROOT
from coldstream.plans.stream_words import MARKS, StreamWord, pack, page_count, paged
from coldstream_devkit.local.synth import synth

#: Long polls that Lambda keeps open for an idle queue, and how long one waits, in seconds.
POLLERS, POLL_SECONDS = 5, 20
#: Broker nodes with an agent, and how often each says something, in seconds.
NODES, BEAT_SECONDS = 3, 60
#: Most pages of words that an agent writes at one heartbeat (`coldstream.agent.telling.heartbeat`).
PAGES_AT_ONCE = 8
#: Of a page or a heartbeat beside what it says: names of attributes, keys, numbers.
_ITEM_BYTES = 200
_SECONDS = MONTH_HOURS * 3600


def deployed_memory_gb() -> dict[str, float]:
    """The memory of each function that was deployed, by its module's name."""
    pages = boto3.client("lambda").get_paginator("list_functions").paginate()
    return memory_gb(each for page in pages for each in page["Functions"])


def memory_gb(functions: Iterable[Mapping[str, Any]]) -> dict[str, float]:
    """The memory of functions as Lambda or CloudFormation describes them, by their modules."""
    return {each["Handler"].split(".")[1]: each["MemorySize"] / 1024 for each in functions}


def alarm_metrics(alarms: Iterable[Mapping[str, Any]]) -> int:
    """How many metrics some alarms look at: each is paid for, also those that are added up.

    Args:
        alarms: as CloudFormation has their properties.
    """
    return sum(
        sum("MetricStat" in each for each in alarm["Metrics"]) if "Metrics" in alarm else 1
        for alarm in alarms
    )


def template_alarms() -> list[Mapping[str, Any]]:
    """The alarms of the template that was deployed."""
    (path,) = synth(ROOT, progress=lambda text: None).glob("*.template.json")
    resources = json.loads(path.read_text("utf-8"))["Resources"].values()
    return [one["Properties"] for one in resources if one["Type"] == "AWS::CloudWatch::Alarm"]


def polls() -> float:
    """Dollars a month for Lambda's looks at the commit queue while no message comes."""
    return POLLERS * _SECONDS / POLL_SECONDS * PRICES["sqs.messages"]


def words(streams: int, *, moving: bool) -> float:
    """Dollars a month for what the agents of all nodes say: heartbeats, and pages of streams.

    Args:
        streams: that each of them follows.
        moving: whether there is something new to say of each at each heartbeat; else of none.
    """
    kilobytes = 1.0
    if moving:
        pages = paged(map(_word, range(streams)), page_count(streams)).values()
        sizes = [-(-(len(pack(page)) + _ITEM_BYTES) // 1024) for page in pages]
        kilobytes += fmean(sizes) * min(PAGES_AT_ONCE, len(sizes))
    return NODES * _SECONDS / BEAT_SECONDS * kilobytes * PRICES["dynamodb.PutItem"]


def _word(number: int) -> StreamWord:
    """What an agent says of a stream of 10 messages a second that goes well."""
    now, offset = 1_760_000_000_000 + 97 * number, 1_000_000 + 7919 * number
    return StreamWord(
        stream=f"__orders-{number}_{1_745_252_105_682_952 + 104_729 * number}",
        writer=number % NODES == 0,
        offsets=tuple(offset - 601 * place for place in range(len(MARKS))),
        times_ms=tuple(now - 1013 * place for place in range(len(MARKS))),
        lag_ms=61 * number % 60_000,
        lag_bytes=4099 * number % 1_000_000,
    )
