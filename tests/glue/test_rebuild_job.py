"""The script glue_jobs/rebuild.py as Glue starts it, on local Spark against the embedded AWS."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from coldstream import names
from coldstream.errors import CorruptDataError, InvalidInputError, NotFoundError
from coldstream.jobs.rebuild_differences import DIFFERENCES
from coldstream.manifest.catalog import StreamState
from coldstream.manifest.tree import leaves
from coldstream.names import metadata_prefix
from coldstream.usecases.load import load
from coldstream_devkit.emulator import Emulator
from glue_jobs.rebuild import main
from tests.glue.in_process import MARKS, Site, deployed, last_line
from tests.glue.streams import DEEP, HOLED

pytestmark = MARKS


@pytest.fixture(scope="module")
def site(emulator: Emulator) -> Iterator[Site]:
    with deployed(emulator, "rebuilt/") as made:
        yield made


@pytest.mark.parametrize("trailers", ["false", "true"])
def test_sound_streams_have_no_difference(
    site: Site, capsys: pytest.CaptureFixture[str], trailers: str
) -> None:
    main(site.arguments("rebuild", shadow="true", **{"verify-trailers": trailers}))
    said = last_line(capsys)

    assert said["ok"]
    assert (said["streams"], said["fragments"], said["failed"]) == (3, 43, {})
    # One fragment of the stream with the hole was uploaded twice; the manifest names one of them.
    assert said["differences"] == {}


def test_a_missing_object_is_a_difference_in_table_line_and_error(
    site: Site, capsys: pytest.CaptureFixture[str]
) -> None:
    path = site.key(DEEP, 7)
    s3, bucket = site.emulator.client("s3"), site.outputs[names.OUTPUT_BUCKET]
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


@pytest.mark.parametrize("trailers", ["true", "false"])
def test_a_manifest_without_its_groups_is_installed_anew(
    site: Site, capsys: pytest.CaptureFixture[str], trailers: str
) -> None:
    before = load(site.world, DEEP)
    wanted = [
        (each.first_offset, each.next_offset, each.uid, each.size)
        for each in leaves(before.root, site.world.fetch(DEEP))
    ]
    s3, bucket = site.emulator.client("s3"), site.outputs[names.OUTPUT_BUCKET]
    under = metadata_prefix(site.world.prefix, DEEP)
    for row in site.world.store.list(under):
        if row.key.endswith("group"):
            s3.delete_object(Bucket=bucket, Key=row.key)

    more = {"verify-trailers": trailers, "wait": "1s"}
    main(site.arguments("rebuild", install=DEEP, branching="4", **more))

    [said] = last_line(capsys)["installed"]
    assert (said["landed"], said["fragments"]) == (True, 40)
    # Whatever was asked for: no manifest is installed from keys alone.
    assert said["unverified"] == 0
    after = load(site.new_world(), DEEP)
    assert after.item.state is StreamState.LIVE
    assert after.item.version > before.item.version
    found = [
        (each.first_offset, each.next_offset, each.uid, each.size)
        for each in leaves(after.root, site.new_world().fetch(DEEP))
    ]
    assert found == wanted


def test_a_stream_that_is_nowhere_cannot_be_installed(site: Site) -> None:
    with pytest.raises(NotFoundError):
        main(site.arguments("rebuild", install="__nothing_1", wait="1s"))


def test_a_shadow_that_installs_is_refused(site: Site) -> None:
    with pytest.raises(InvalidInputError):
        main(site.arguments("rebuild", install=HOLED, shadow="true"))
