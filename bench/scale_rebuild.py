"""The petabyte rebuilt from a synthetic LIST, against the plain cost of reading that LIST.

The LIST has what a real one would: uploads made twice, one range cut anew, stragglers of a deposed
writer, and a key that is none. Reading is parsing S3's answers, real ListObjectsV2 documents, with
botocore's parser, as boto3 does, and nothing else: no network, no TLS, no signature.
"""

from __future__ import annotations

import statistics
import time
import xml.etree.ElementTree
import zlib
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bench import synthetic_stream as synthetic
from bench.memory import peak
from coldstream.manifest.entries import EntryKind
from coldstream.manifest.node import Node
from coldstream.names import data_prefix
from coldstream.plans.rebuild import KnownManifest, Rebuild
from coldstream.ports import ObjectInfo

PAGE = 1000
_BLOCK = 2**15  # fragments whose keys are made at once
_LAST = np.uint64(2**63)  # makes a uid greater than those of the stream


def pages(fragments: int) -> Iterator[list[ObjectInfo]]:
    """Answers of LIST over all data keys of the stream, in key order."""
    waiting: list[ObjectInfo] = []
    for begin in range(0, fragments, _BLOCK):
        keys = _keys(begin, min(fragments, begin + _BLOCK))
        waiting += [ObjectInfo(key, synthetic.SIZE, 0) for key in keys]
        full = len(waiting) - len(waiting) % PAGE
        for at in range(0, full, PAGE):
            yield waiting[at : at + PAGE]
        del waiting[:full]
    yield waiting


def _keys(begin: int, end: int) -> list[str]:
    numbers = np.arange(begin, end, dtype=np.uint64)
    first, next_offset = synthetic.firsts(numbers), synthetic.firsts(numbers + np.uint64(1))
    epoch = np.full(len(numbers), synthetic.EPOCH, np.uint64)
    uid = synthetic.uids(numbers, 0)
    twice, cut, late = (numbers % np.uint64(n) == 7 for n in (211, 1021, 509))
    middle = (first + next_offset) >> np.uint64(1)
    columns = [
        np.concatenate([first, first[twice], first[cut], middle[cut], first[late] + np.uint64(1)]),
        np.concatenate(
            [
                next_offset,
                next_offset[twice],
                middle[cut],
                next_offset[cut],
                first[late] + np.uint64(9),
            ]
        ),
        np.concatenate([epoch, epoch[twice], epoch[cut], epoch[cut], epoch[late] - np.uint64(1)]),
        np.concatenate([uid, *(uid[each] | _LAST for each in (twice, cut, cut, late))]),
    ]
    order = np.lexsort(columns[::-1])
    keys = _texts([column[order] for column in columns])
    for number in range(4098, len(keys), 4099):
        keys.insert(number, f"{keys[number - 1]}.tmp")
    return keys


def _texts(columns: list[NDArray[np.uint64]]) -> list[str]:
    """Keys as text, a column of characters at a time."""
    begin = data_prefix(synthetic.PREFIX, synthetic.STREAM)
    sample = f"{begin}{0:020d}-{0:020d}.{0:010d}.{0:016x}.fragment"
    table = np.tile(np.frombuffer(sample.encode(), np.uint8), (len(columns[0]), 1))
    digits = np.frombuffer(b"0123456789abcdef", np.uint8)
    at = len(begin) - 1
    for column, (width, base) in zip(
        columns, [(20, 10), (20, 10), (10, 10), (16, 16)], strict=True
    ):
        rest = column
        for place in range(at + width, at, -1):
            rest, digit = np.divmod(rest, np.uint64(base))
            table[:, place] = digits[digit.astype(np.intp)]
        at += width + 1
    text = table.tobytes().decode("ascii")
    return [text[n : n + len(sample)] for n in range(0, len(text), len(sample))]


@dataclass(frozen=True, slots=True)
class RebuildFigures:
    """Times in seconds, sizes in bytes."""

    seconds: float
    pages: int
    keys: int
    fragments: int
    window: int
    groups: int
    group_bytes: int
    peak: int
    peak_before: int


def rebuild(fragments: int) -> RebuildFigures:
    """Rebuild from keys alone; each group is encoded and its checksum made, as for a PUT.

    Making the LIST's rows and checking the result against the stream are not counted.
    """
    before = peak()
    work = Rebuild(
        synthetic.PREFIX,
        synthetic.STREAM,
        KnownManifest(synthetic.LEDGER),
        branching=synthetic.M,
        uids=synthetic.group_uids(),
    )
    seconds = 0.0
    count = 0

    def untimed() -> Iterator[list[ObjectInfo]]:
        nonlocal seconds, count
        source = pages(fragments)
        while True:
            stopped = time.perf_counter()
            page = next(source, None)
            seconds -= time.perf_counter() - stopped
            if page is None:
                return
            count += 1
            yield page

    groups = group_bytes = leaves = 0
    began = time.perf_counter()
    for node in work.groups(untimed()):
        body = node.encode(catalog_version=1)
        zlib.crc32(body)
        group_bytes += len(body)
        groups += 1
        stopped = time.perf_counter()
        if node.kind is EntryKind.GROUP:
            _check(node, leaves)
            leaves += len(node.entries)
        seconds -= time.perf_counter() - stopped
    result = work.rebuilt(version=1)
    result.root.encode()
    seconds += time.perf_counter() - began
    assert (result.root.fragments, result.beyond) == (fragments, None)
    assert result.root.next_offset == synthetic.first_offset(fragments)
    assert len(result.root.entries) == len(synthetic.root(fragments).entries)
    return RebuildFigures(
        seconds=seconds,
        pages=count,
        keys=result.listed,
        fragments=result.fragments,
        window=result.window,
        groups=groups,
        group_bytes=group_bytes,
        peak=peak(),
        peak_before=before,
    )


def _check(node: Node, begin: int) -> None:
    """The group has the stream's own fragments, and no duplicate, straggler or piece."""
    found = node.entries.array()
    numbers = np.arange(begin, begin + len(found) + 1, dtype=np.uint64)
    offsets = synthetic.firsts(numbers)
    assert (found["first_offset"] == offsets[:-1]).all()
    assert (found["next_offset"] == offsets[1:]).all()
    assert (found["uid"] == synthetic.uids(numbers[:-1], 0)).all()


@dataclass(frozen=True, slots=True)
class ReadFigures:
    """Median seconds a page."""

    pages: int
    page_bytes: int
    botocore: float
    element_tree: float


def read(distinct: int) -> ReadFigures:
    """Parse so many different answers of LIST, each of 1,000 keys."""
    import botocore.loaders
    import botocore.model
    import botocore.parsers

    service = botocore.loaders.Loader().load_service_model("s3", "service-2")
    operation = botocore.model.ServiceModel(service, "s3").operation_model("ListObjectsV2")
    shape = operation.output_shape
    assert shape is not None
    parser = botocore.parsers.create_parser("rest-xml")
    documents = [_document(page) for page, _ in zip(pages(2**24), range(distinct), strict=False)]
    full, bare = [], []
    for document in documents:
        answer = {"body": document, "headers": {}, "status_code": 200}
        began = time.perf_counter()
        parsed = parser.parse(answer, shape)
        full.append(time.perf_counter() - began)
        assert len(parsed["Contents"]) == PAGE
        began = time.perf_counter()
        xml.etree.ElementTree.fromstring(document)  # noqa: S314 - made a moment ago
        bare.append(time.perf_counter() - began)
    return ReadFigures(
        pages=distinct,
        page_bytes=len(documents[0]),
        botocore=statistics.median(full),
        element_tree=statistics.median(bare),
    )


def _document(page: list[ObjectInfo]) -> bytes:
    """An answer of S3, with the fields that it gives for objects with a checksum."""
    rows = "".join(
        f"<Contents><Key>{row.key}</Key><LastModified>2026-11-21T08:{n % 60:02d}:00.000Z"
        f"</LastModified><ETag>&quot;{zlib.crc32(row.key.encode()):032x}&quot;</ETag>"
        "<ChecksumAlgorithm>CRC64NVME</ChecksumAlgorithm><ChecksumType>FULL_OBJECT</ChecksumType>"
        f"<Size>{row.size}</Size><StorageClass>STANDARD</StorageClass></Contents>"
        for n, row in enumerate(page)
    )
    return (
        '<?xml version="1.0" encoding="UTF-8"?>\n'
        '<ListBucketResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/"><Name>bucket</Name>'
        f"<Prefix>{data_prefix(synthetic.PREFIX, synthetic.STREAM)}</Prefix>"
        f"<NextContinuationToken>{page[-1].key}</NextContinuationToken><KeyCount>{len(page)}"
        f"</KeyCount><MaxKeys>{PAGE}</MaxKeys><IsTruncated>true</IsTruncated>{rows}"
        "</ListBucketResult>"
    ).encode()
