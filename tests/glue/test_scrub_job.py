"""The script glue_jobs/scrub.py as Glue starts it, on local Spark against the embedded AWS."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from coldstream import deployment
from coldstream.errors import CorruptDataError, NotFoundError
from coldstream.fragment import HEADER
from coldstream.jobs.scrub.findings import FINDINGS
from coldstream_devkit.emulator import Emulator
from glue_jobs.scrub import main
from tests.glue.in_process import MARKS, Site, deployed, last_line
from tests.glue.streams import DEEP, HOLED, STRAY

pytestmark = MARKS


@pytest.fixture(scope="module")
def site(emulator: Emulator) -> Iterator[Site]:
    with deployed(emulator, "scrubbed/") as made:
        yield made


def arguments(site: Site, **more: str) -> list[str]:
    return site.arguments("scrub", **{"task_bytes": "3000", "streams": f"{DEEP}|{HOLED}", **more})


def test_a_sound_remote_tier_ends_well_and_is_not_read_again(
    site: Site, capsys: pytest.CaptureFixture[str]
) -> None:
    fresh = f"{site.outputs[deployment.OUTPUT_WAREHOUSE]}scrub/fresh/"
    main(arguments(site, warehouse=fresh))
    said = last_line(capsys)

    assert said["ok"]
    assert (said["streams"], said["fragments"]) == (2, 43)
    assert said["findings"]["damaged"] == 0
    assert said["tasks"] > 5
    assert said["never_scrubbed"]

    main(arguments(site, warehouse=fresh))
    again = last_line(capsys)

    assert (again["fragments"], again["bytes"]) == (0, 0)
    assert not again["never_scrubbed"]


def test_damage_is_in_the_table_in_the_line_and_in_the_error_of_the_run(
    site: Site, capsys: pytest.CaptureFixture[str]
) -> None:
    path = site.key(DEEP, 7)
    s3, bucket = site.emulator.client("s3"), site.outputs[deployment.OUTPUT_BUCKET]
    good = s3.get_object(Bucket=bucket, Key=path)["Body"].read()
    bad = bytearray(good)
    bad[len(HEADER) + 70] ^= 4
    s3.put_object(Bucket=bucket, Key=path, Body=bytes(bad))

    with pytest.raises(CorruptDataError) as caught:
        main(arguments(site, every="0", JOB_NAME="coldstream-scrub", JOB_RUN_ID="jr_1"))

    assert (caught.value.stream, caught.value.offset, caught.value.key) == (DEEP, 70, path)
    said = last_line(capsys)
    assert (said["ok"], said["run_id"]) == (True, "jr_1")  # the run itself has done its work
    assert said["findings"]["damaged"] == 1
    assert said["worst"][0]["key"] == path
    damaged = [row for row in site.rows(FINDINGS) if row["severity"] == "damaged"]
    assert [(row["kind"], row["key"]) for row in damaged] == [("chunk_crc", path)]
    assert (damaged[0]["first_offset"], damaged[0]["next_offset"]) == (70, 80)

    s3.put_object(Bucket=bucket, Key=path, Body=good)
    main(arguments(site, every="0"))


def test_a_budget_takes_what_was_longest_unchecked(
    site: Site, capsys: pytest.CaptureFixture[str]
) -> None:
    main(arguments(site, every="0", **{"max-bytes": "4000"}))
    said = last_line(capsys)

    assert 0 < said["bytes"] <= 4000


def test_a_quick_run_reads_no_data(site: Site, capsys: pytest.CaptureFixture[str]) -> None:
    main(arguments(site, every="0", quick="true"))
    said = last_line(capsys)

    assert said["fragments"] == 43
    assert 0 < said["bytes"] < 43 * 300


def test_a_stream_that_the_table_lacks_is_a_finding(
    site: Site, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(CorruptDataError) as caught:
        main(arguments(site, streams=STRAY))

    assert caught.value.stream == STRAY
    said = last_line(capsys)
    assert (said["kinds"], said["streams_without_item"]) == ({"stream_without_item": 1}, [STRAY])
    (row,) = site.rows(FINDINGS)
    assert (row["stream"], row["severity"], row["key"]) == (STRAY, "damaged", "")


def test_a_target_that_is_not_there_is_refused_before_anything_is_read(
    site: Site, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(NotFoundError, match="no database for nowhere"):
        main(arguments(site, database="nowhere"))

    assert "fragments" not in last_line(capsys)
