"""Agents that cut one log at different places: no hole, no word of loss, over what was uploaded.

Found by a stranger: a one-shot run beside a long-running agent moved the manifest into the middle
of a fragment that the other had uploaded; local retention took the rest, and it was declared lost.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from coldstream.agent.broker.committed import CommittedFile
from coldstream.errors import LostRangeError
from coldstream.names import parse_data_key
from coldstream_devkit.fragments import build_fragment
from coldstream_devkit.generator import write_stream

from .conftest import Site

STREAM = "__orders_1745252105682952932"


def write(site: Site, messages: int = 100, **more: Any) -> None:
    write_stream(
        site.data_dir / STREAM, messages=messages, chunk_messages=10, segment_bytes=30_000, **more
    )


def segments(site: Site) -> list[Path]:
    return sorted((site.data_dir / STREAM).glob("*.segment"))


def retire_all_but_the_last(site: Site) -> int:
    """Local retention; where the log begins then."""
    for path in segments(site)[:-1]:
        path.with_suffix(".index").unlink()
        path.unlink()
    return int(segments(site)[0].stem)


def holes(site: Site) -> list[str]:
    return [key for key in site.store.objects if key.endswith(".hole")]


def cut_differently(site: Site, tmp_path: Path) -> bytes:
    """What the log has, after an agent with large fragments has uploaded all of it, and another
    with small ones has moved the manifest into the middle of the first fragment."""
    write(site)
    whole = site.local_chunks(STREAM)
    large = Site(site.data_dir)
    large.run(target_size=10**6)
    offsets = tmp_path / "offsets.json"
    offsets.write_text(json.dumps({STREAM: 9}))
    site.run(committed=CommittedFile(offsets), target_size=1_000)
    assert site.catalog.items[STREAM].next_offset == 10
    for key, body in large.store.objects.items():
        if key.endswith(".fragment"):
            site.store.put(key, body, write_id=key)
    return whole


@pytest.mark.parametrize("last_copy", [False, True])
@pytest.mark.parametrize("epoch", [1, 2])
def test_what_another_agent_has_uploaded_is_taken_and_never_lost(
    site: Site, tmp_path: Path, last_copy: bool, epoch: int
) -> None:
    """Also where a new writer claims: its floor would shut out what the old one has uploaded."""
    whole = cut_differently(site, tmp_path)
    begin = retire_all_but_the_last(site)
    assert begin > 20
    if epoch == 2:
        for path in (site.data_dir / STREAM).iterdir():
            path.unlink()
        write(site, 20, start_offset=100, epochs=((2, 100),))
        whole += site.local_chunks(STREAM)

    progress = site.run(last_copy=last_copy)[STREAM]

    assert progress.error is None
    assert (progress.holes, holes(site)) == ([], [])
    assert site.remote_chunks(STREAM) == whole


def test_two_nodes_with_different_cuts_lose_nothing_in_a_fail_over(
    site: Site, tmp_path: Path
) -> None:
    """The first uploads under epoch 1 until it dies; the second has followed with other cuts."""
    other = Site(tmp_path / "other", site.store, site.catalog, seed=1000)
    write(other)
    whole = other.local_chunks(STREAM)
    cut_differently(site, tmp_path)
    for where in (site, other):
        for path in (where.data_dir / STREAM).iterdir():
            path.unlink()
    write(other, 30, start_offset=100, epochs=((2, 100),))

    progress = other.run(target_size=5_000)[STREAM]

    assert progress.error is None
    assert other.remote_chunks(STREAM) == whole + other.local_chunks(STREAM)
    assert site.catalog.items[STREAM].ledger.floor(2) == 100


def test_what_cannot_be_taken_is_named_and_not_called_never_uploaded(
    site: Site, tmp_path: Path
) -> None:
    write(site)
    site.run()
    for path in (site.data_dir / STREAM).iterdir():
        path.unlink()
    across = build_fragment(95, 130, stream=STREAM, uid=7)
    fenced = build_fragment(90, 125, stream=STREAM, epoch=9, uid=8)
    for each in (across, fenced):
        site.store.put(each.path("rabbitmq/"), each.data, write_id="w")
    write(site, 50, start_offset=150)

    error = site.run()[STREAM].error

    assert isinstance(error, LostRangeError)
    assert "never uploaded" not in str(error)
    for part in (
        across.path("rabbitmq/"),
        fenced.path("rabbitmq/"),
        "inside chunk 90",
        "the ledger does not accept it",
        "offsets 100 to 149",
    ):
        assert part in str(error)
    progress = site.run(last_copy=True)[STREAM]
    assert progress.holes == [(100, 150)]
    assert across.path("rabbitmq/") in progress.notices[0]
    assert "inside chunk 90" in progress.notices[0]


def test_only_what_no_object_holds_is_declared_lost(site: Site) -> None:
    write(site)
    site.run(target_size=10**6)
    whole = {parse_data_key(k, "rabbitmq/") for k in site.store.objects if "/data/" in k}
    assert max(key.next_offset for key in whole) == 100
    other = Site(site.data_dir)
    for path in (site.data_dir / STREAM).iterdir():
        path.unlink()
    write(site, 130)
    other.run(target_size=10**6)
    longer = next(
        (key, body)
        for key, body in other.store.objects.items()
        if key.endswith(".fragment")
        and parse_data_key(key, "rabbitmq/").first_offset
        < 100
        < parse_data_key(key, "rabbitmq/").next_offset
    )
    site.store.put(longer[0], longer[1], write_id="w")
    end = parse_data_key(longer[0], "rabbitmq/").next_offset
    for path in (site.data_dir / STREAM).iterdir():
        path.unlink()
    write(site, 50, start_offset=150)

    progress = site.run(last_copy=True)[STREAM]

    assert progress.error is None
    assert progress.holes == [(end, 150)]
