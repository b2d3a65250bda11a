"""`coldstream erase` on the deployed app: no object and no version holds what was erased."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from coldstream import deployment, names
from coldstream.osiris.blank import is_blank
from coldstream.reader.verify import verify_stream
from tests.workflows.site import Site

pytestmark = pytest.mark.emulator

COLDSTREAM = Path(sys.executable).with_name("coldstream")
ALICE, BOB = b"alice@example.org", b"bob@example.org"


def body(offset: int) -> bytes:
    return b'{"who": "%b", "number": %d}' % (ALICE if offset % 4 == 1 else BOB, offset)


def coldstream(site: Site, *arguments: str) -> subprocess.CompletedProcess[bytes]:
    kept = {name: os.environ[name] for name in ("HOME", "PATH") if name in os.environ}
    environment = {
        **kept,
        **site.emulator.environment(),
        deployment.ENV_BUCKET: site.outputs[deployment.OUTPUT_BUCKET],
        deployment.ENV_TABLE: site.outputs[deployment.OUTPUT_TABLE],
        deployment.ENV_PREFIX: site.outputs[deployment.OUTPUT_PREFIX],
        deployment.ENV_WORKFLOWS: site.outputs[deployment.OUTPUT_WORKFLOWS],
    }
    return subprocess.run(
        [COLDSTREAM, *arguments], env=environment, capture_output=True, timeout=180, check=False
    )


def holding(site: Site, stream: str, *secrets: bytes) -> list[str]:
    """Keys of all objects and versions of a stream with one of the words."""
    s3, bucket = site.emulator.client("s3"), site.outputs[deployment.OUTPUT_BUCKET]
    under = names.stream_prefix(site.context.prefix, stream)
    rows: list[Any] = []
    for page in s3.get_paginator("list_object_versions").paginate(Bucket=bucket, Prefix=under):
        rows += page.get("Versions", [])
    found = []
    for row in rows:
        answer = s3.get_object(Bucket=bucket, Key=row["Key"], VersionId=row["VersionId"])
        data = answer["Body"].read()
        found += [row["Key"] for secret in secrets if secret in data]
    return found


def test_what_was_erased_is_nowhere_any_more_and_a_second_run_finds_nothing(site: Site) -> None:
    stream = site.stream(4, body=body)
    before = site.bodies(stream)
    number = b'"number": 6}'
    assert holding(site, stream, ALICE, number)

    done = coldstream(
        site, "erase", stream, "--json-path", f"who={ALICE.decode()}", "--range", "6..7", "--yes",
        "--json",
    )  # fmt: skip

    assert done.returncode == 0, done.stderr.decode()
    document = json.loads(done.stdout)
    assert len(document["fragments"]) == 4
    assert document["deleted"]["versions"] >= 4
    assert document["deleted"]["kept"] == {}
    assert holding(site, stream, ALICE, number) == []
    after = site.bodies(stream)
    erased = {offset for offset, _ in before if offset % 4 == 1 or offset == 6}
    assert {offset for offset, each in after if is_blank(each)} == erased
    assert [each for each in after if each[0] not in erased] == [
        each for each in before if each[0] not in erased
    ]
    context = site.fresh()
    report = verify_stream(context.store, context.catalog, context.prefix, stream, deep=True)
    assert report.sound, report.violations

    again = coldstream(site, "erase", stream, "--yes", "--keep-old", "--json")

    assert again.returncode == 0, again.stderr.decode()
    document = json.loads(again.stdout)
    assert (document["fragments"], document["others"]) == ([], [])
    assert site.bodies(stream) == after


@pytest.mark.slow
def test_one_that_ended_before_anything_was_deleted_is_finished_by_the_next(site: Site) -> None:
    stream = site.stream(2, body=body)
    begun = coldstream(site, "erase", stream, "--range", "1..2", "--yes", "--keep-old")
    assert begun.returncode == 0, begun.stderr.decode()
    # What `collect` has deleted stays as a version: consolidation leaves such objects behind.
    (old,) = (key for key in set(holding(site, stream, body(1))))
    site.emulator.client("s3").delete_object(Bucket=site.outputs[deployment.OUTPUT_BUCKET], Key=old)
    assert holding(site, stream, body(1)) == [old]

    done = coldstream(site, "erase", stream, "--yes")

    assert done.returncode == 0, done.stderr.decode()
    assert holding(site, stream, body(1)) == []
    site.run("consolidate", stream)
    site.collected(stream)
    site.assert_sound(stream)
    assert len(site.bodies(stream)) == 20
