"""A remote tier copied to a directory is read as from the bucket; nothing can be written."""

from __future__ import annotations

import threading
from dataclasses import replace
from pathlib import Path

import pytest

from coldstream.adapters.directory import DirectoryStore
from coldstream.adapters.place import connect
from coldstream.errors import (
    CorruptDataError,
    InvalidInputError,
    NotFoundError,
    PermissionDeniedError,
)
from coldstream.fragment import Buffer
from coldstream.spark.options import parse_options
from coldstream.spark.plan import decode_split, encode_split
from coldstream.spark.query import plan_query
from coldstream.spark.read import read, read_split
from coldstream.spark.window import Window
from tests.support.tier import PREFIX, Tier
from tests.unit.spark.context import reference
from tests.unit.spark.test_read import in_groups, small_chunks

STREAM = "__copied_1"


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    tier = Tier()
    tier.add_tree(STREAM, in_groups(small_chunks(60), 2))
    for key, body in tier.store.objects.items():
        path = tmp_path / key
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(body)
    return tmp_path


def test_a_copy_of_a_bucket_is_read_without_aws(copy: Path) -> None:
    given = {"stream": "__copied.*", "endpoint": f"file://{copy}", "partitionBytes": "9k"}
    options = parse_options({**given, "columns": "offset,body"}, {})

    works = plan_query(options, ("offset", "body"), Window(), connect(options.place))
    rows = [
        row for work in works for batch in read(work.task, work.split) for row in batch.to_pylist()
    ]

    assert len(works) > 5
    assert rows == reference(small_chunks(60), ["offset", "body"])


class BusyStore(DirectoryStore):
    """Knows the most reads that were under way at once; each waits a little for a third one."""

    def __init__(self, directory: str) -> None:
        super().__init__(directory)
        self.lock, self.now, self.most = threading.Lock(), 0, 0
        self.third = threading.Event()

    def get(self, key: str, start: int, end: int) -> Buffer:
        with self.lock:
            self.now += 1
            self.most = max(self.most, self.now)
            if self.most > 2:
                self.third.set()
        try:
            self.third.wait(0.02)
            return super().get(key, start, end)
        finally:
            with self.lock:
                self.now -= 1


def test_a_task_reads_two_ranges_of_a_directory_at_once_at_most(copy: Path) -> None:
    options = parse_options({"stream": STREAM, "endpoint": f"file://{copy}"}, {})
    remote = connect(options.place)
    (work,) = plan_query(options, ("body",), Window(), remote)
    store = BusyStore(str(copy))

    split = decode_split(work.split)
    rows = sum(
        batch.num_rows for batch in read_split(work.task, split, replace(remote, store=store))
    )

    assert rows == 180
    assert store.most == 2


def test_a_directory_says_what_is_missing_as_a_bucket_does(copy: Path) -> None:
    store = DirectoryStore(str(copy))
    key = store.list(f"{PREFIX}stream/{STREAM}/data/")[0].key

    with pytest.raises(NotFoundError):
        store.get("nothing/here", 0, 1)
    with pytest.raises(CorruptDataError):
        store.get(key, 0, 2**30)
    with pytest.raises(CorruptDataError):
        store.get_all(key, limit=5)
    with pytest.raises(PermissionDeniedError):
        store.put("a", b"b", write_id="c")
    with pytest.raises(InvalidInputError):
        DirectoryStore(str(copy / "nowhere"))
    whole = store.get_all(key, limit=2**20)
    assert store.get_suffix(key, 7) == whole[-7:]
    assert bytes(store.get(key, 3, 9)) == whole[3:9]


def test_listing_goes_on_page_by_page(copy: Path) -> None:
    store = DirectoryStore(str(copy))
    prefix = f"{PREFIX}stream/{STREAM}/data/"
    whole = [row.key for row in store.list(prefix)]

    pages: list[str] = []
    while rows := store.list(prefix, start_after=pages[-1] if pages else "", limit=7):
        pages += [row.key for row in rows]

    assert pages == whole == sorted(whole)
    assert len(whole) == 30
    assert store.list("nowhere/") == []


def test_a_split_survives_its_bytes_and_others_are_refused(copy: Path) -> None:
    options = parse_options({"stream": STREAM, "endpoint": f"file://{copy}"}, {})
    (work,) = plan_query(options, ("offset",), Window(), connect(options.place))

    assert encode_split(decode_split(work.split)) == work.split
    for wrong in (b"", work.split[:-1], work.split + b"x"):
        with pytest.raises(CorruptDataError):
            decode_split(wrong)


def test_what_is_no_stream_of_a_copy_is_passed_over(copy: Path) -> None:
    for name in (".complete/metadata/x.table", "odd name/x", "a file"):
        path = copy / PREFIX / "stream" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"")
    options = parse_options({"table": "streams", "endpoint": f"file://{copy}"}, {})

    (work,) = plan_query(options, ("stream", "next_offset"), Window(), connect(options.place))

    rows = [row for batch in read(work.task, work.split) for row in batch.to_pylist()]
    assert rows == [{"stream": STREAM, "next_offset": 180}]
