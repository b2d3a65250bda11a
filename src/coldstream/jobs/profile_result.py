"""What a worker of the job profile sends to the driver: JSON, for reading JSON runs no code."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from coldstream.jobs.profile_count import Bucket, Counted, Histogram
from coldstream.jobs.profile_sample import Compression, Sample, Seen

_BUCKET = ("chunks", "offsets", "bytes", "longest_gap_ms")
_COUNTED = ("first_ms", "last_ms", "fragments", "back")
_SAMPLE = (
    "chunks",
    "tracking_chunks",
    "messages",
    "simple",
    "bytes",
    "headers",
    "trailers",
    "message_bytes",
    "errors",
)
_COMPRESSION = ("sub_batches", "records", "size", "inflated")
_SEEN = ("value", "chunk_id", "timestamp")


def encode_result(counted: Counted, sample: Sample) -> bytes:
    """What was counted and what was learnt, as JSON in UTF-8."""
    buckets = {
        number: {
            **_fields(each, _BUCKET),
            "sizes": each.sizes.counts,
            "lengths": each.lengths.counts,
        }
        for number, each in counted.buckets.items()
    }
    learnt = {
        **_fields(sample, _SAMPLE),
        "sizes": sample.sizes.counts,
        "codecs": {name: _fields(each, _COMPRESSION) for name, each in sample.codecs.items()},
        "publishers": {name: _fields(each, _SEEN) for name, each in sample.publishers.items()},
        "consumers": {
            name: [_fields(each, _SEEN) for each in positions]
            for name, positions in sample.consumers.items()
        },
    }
    whole = {"counted": {**_fields(counted, _COUNTED), "buckets": buckets}, "sample": learnt}
    return json.dumps(whole).encode()


def decode_result(encoded: bytes) -> tuple[Counted, Sample]:
    """What `encode_result` was given."""
    whole = json.loads(encoded)
    counted, learnt = whole["counted"], whole["sample"]
    buckets = {
        int(number): Bucket(
            **_fields_of(each, _BUCKET),
            sizes=_histogram(each["sizes"]),
            lengths=_histogram(each["lengths"]),
        )
        for number, each in counted["buckets"].items()
    }
    sample = Sample(
        **_fields_of(learnt, _SAMPLE),
        sizes=_histogram(learnt["sizes"]),
        codecs={name: Compression(**each) for name, each in learnt["codecs"].items()},
        publishers={name: Seen(**each) for name, each in learnt["publishers"].items()},
        consumers={
            name: [Seen(**each) for each in positions]
            for name, positions in learnt["consumers"].items()
        },
    )
    return Counted(buckets=buckets, **_fields_of(counted, _COUNTED)), sample


def _fields(value: object, names: tuple[str, ...]) -> dict[str, Any]:
    return {name: getattr(value, name) for name in names}


def _fields_of(value: Mapping[str, Any], names: tuple[str, ...]) -> dict[str, Any]:
    return {name: value[name] for name in names}


def _histogram(counts: Mapping[str, int]) -> Histogram:
    return Histogram({int(number): count for number, count in counts.items()})
