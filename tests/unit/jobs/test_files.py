"""Files of tables on this machine: what was saved is read again, and what is not there is told."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from coldstream.errors import InvalidInputError, NotFoundError
from coldstream.jobs.materialise.files import StoredFiles, bucket_of


def test_what_was_saved_is_read_again_and_what_is_gone_is_named(tmp_path: Path) -> None:
    files, path = StoredFiles(), f"file://{tmp_path}/a/b.parquet"
    files.save(path, io.BytesIO(b"content"), 7)
    with files.open(path, 7) as content:
        assert content.read() == b"content"
    with pytest.raises(NotFoundError) as caught:
        files.open(f"{path}x", 7)
    assert caught.value.key == f"{path}x"


@pytest.mark.parametrize("scheme", ["s3", "s3a", "s3n"])
def test_a_bucket_is_the_same_however_a_writer_of_the_table_calls_s3(scheme: str) -> None:
    assert bucket_of(f"{scheme}://shop/data/a.parquet") == "shop"


@pytest.mark.parametrize("path", ["http://a/b", "s3:///b", "file://host/b"])
def test_a_place_that_is_none_is_refused(path: str) -> None:
    for asked in (
        lambda: StoredFiles().open(path, 1),
        lambda: StoredFiles().save(path, io.BytesIO(b"x"), 1),
    ):
        with pytest.raises(InvalidInputError, match="no place for a file"):
            asked()
