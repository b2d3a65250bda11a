"""The script glue_jobs/rebuild.py as Glue starts it, on local Spark against the embedded AWS."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from coldstream import deployment
from coldstream.errors import CorruptDataError, NotFoundError
from coldstream.jobs.rebuild_differences import DIFFERENCES
from coldstream_devkit.emulator import Emulator
from glue_jobs.rebuild import main
from tests.glue.in_process import MARKS, Site, deployed, last_line
from tests.glue.streams import DEEP, EMPTY, HOLED, STRAY

pytestmark = MARKS
SOUND = f"{DEEP}|{HOLED}|{EMPTY}"


@pytest.fixture(scope="module")
def site(emulator: Emulator) -> Iterator[Site]:
    with deployed(emulator, "rebuilt/") as made:
        yield made


@pytest.mark.parametrize("trailers", ["false", "true"])
def test_sound_streams_have_no_difference(
    site: Site, capsys: pytest.CaptureFixture[str], trailers: str
) -> None:
    main(site.arguments("rebuild", streams=SOUND, **{"verify-trailers": trailers}))
    said = last_line(capsys)

    assert said["ok"]
    assert (said["streams"], said["fragments"], said["failed"]) == (3, 43, {})
    # One fragment of the stream with the hole was uploaded twice; the manifest names one of them.
    assert said["differences"] == {}


def test_a_stream_that_the_table_lacks_is_a_difference_and_a_metric(
    site: Site, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(CorruptDataError, match="a stream that the table lacks") as caught:
        main(site.arguments("rebuild"))

    assert caught.value.stream == STRAY
    said = last_line(capsys)
    assert (said["differences"], said["streams_without_item"]) == ({"no_item": 1}, [STRAY])
    [row] = site.rows(DIFFERENCES)
    assert (row["stream"], row["kind"]) == (STRAY, "no_item")


def test_what_cannot_work_is_refused_before_anything_is_read(site: Site) -> None:
    with pytest.raises(NotFoundError, match="no database for nowhere"):
        main(site.arguments("rebuild", database="nowhere"))
    with pytest.raises(NotFoundError, match="'nothing' matches none of 3 streams"):
        main(site.arguments("rebuild", streams="nothing"))


def test_a_missing_object_is_a_difference_in_table_line_and_error(
    site: Site, capsys: pytest.CaptureFixture[str]
) -> None:
    path = site.key(DEEP, 7)
    s3, bucket = site.emulator.client("s3"), site.outputs[deployment.OUTPUT_BUCKET]
    good = s3.get_object(Bucket=bucket, Key=path)["Body"].read()
    s3.delete_object(Bucket=bucket, Key=path)

    with pytest.raises(CorruptDataError) as caught:
        main(site.arguments("rebuild", streams=DEEP))
    s3.put_object(Bucket=bucket, Key=path, Body=good)

    assert (caught.value.stream, caught.value.offset) == (DEEP, 70)
    said = last_line(capsys)
    assert said["differences"] == {"absent": 1}
    [row] = site.rows(DIFFERENCES)
    assert (row["kind"], row["first_offset"], row["next_offset"]) == ("absent", 70, 80)
