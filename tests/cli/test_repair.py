"""`coldstream repair`: what it says, and what it does only when it is told twice."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from coldstream.adapters.place import Place, Remote
from coldstream.cli import options
from coldstream.cli.exit_codes import ExitCode
from coldstream_devkit.generator import append_chunks
from tests.cli.conftest import Run
from tests.support.corruptions import CORRUPTIONS
from tests.support.scrub_site import STREAM, groups_of, scrub_all
from tests.support.tier import PREFIX, Tier


@pytest.fixture
def damaged(tier: Tier, run: Run, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A stream with one damaged chunk, at offsets 152 to 161."""
    monkeypatch.setattr(
        options,
        "connect",
        lambda **_: Remote(tier.store, tier.catalog, None, Place("b", "t", PREFIX)),  # type: ignore[arg-type]
    )
    tier.add(STREAM, groups_of(14))
    return CORRUPTIONS["a raw flip in the data"](tier)


def test_without_a_source_it_names_the_range_and_exits_with_65(
    damaged: Any, run: Run, tier: Tier
) -> None:
    before = dict(tier.catalog.items)

    result = run("repair", STREAM, "--range", "152..162")

    assert result.exit_code == ExitCode.DATA
    assert "nobody has 152 to 161" in result.stderr
    assert "152..162" in result.stdout
    assert tier.catalog.items == before


def test_a_data_directory_gives_it_back(damaged: Any, run: Run, tier: Tier, tmp_path: Path) -> None:
    for group in groups_of(14):
        append_chunks(tmp_path / STREAM, group)

    result = run("repair", STREAM, "--from-dir", str(tmp_path), "--json")

    assert result.exit_code == 0, result.stderr
    document = json.loads(result.stdout)
    assert document["landed"]
    [row] = document["repairs"]
    assert (row["action"], row["proved"]) == ("replace", True)
    assert row["new_keys"][0] in tier.store.objects
    assert scrub_all(tier).bad == []
    again = run("repair", STREAM)
    assert "nothing to repair" in again.stderr


def test_to_give_a_range_up_takes_two_words(damaged: Any, run: Run, tier: Tier) -> None:
    before = dict(tier.catalog.items)
    assert run("repair", STREAM, "--lost").exit_code == ExitCode.USAGE
    dry = run("repair", STREAM, "--lost", "--dry-run")
    assert "offsets 152 to 161 of __orders_1 would be declared lost" in dry.stderr
    assert tier.catalog.items == before

    result = run("repair", STREAM, "--range", "152..162", "--lost", "--yes")

    assert result.exit_code == 0, result.stderr
    assert "offsets 152 to 161 of __orders_1 are declared lost" in result.stderr
    assert scrub_all(tier).bad == []


def test_findings_of_scrub_say_where(damaged: Any, run: Run, tier: Tier, tmp_path: Path) -> None:
    path = tmp_path / "findings.json"
    outcome = scrub_all(tier)
    path.write_text(json.dumps({"worst": [each.document() for each in outcome.bad]}) + "\n")

    result = run("repair", STREAM, "--findings", str(path), "--lost", "--yes", "--json")

    assert result.exit_code == 0, result.stderr
    document = json.loads(result.stdout)
    assert (document["looked_at"], document["lost"]) == (1, [[152, 162]])


def test_offsets_that_the_manifest_does_not_have_are_told(damaged: Any, run: Run) -> None:
    """Retention took them, they are not uploaded yet, or somebody has mistyped them."""
    result = run("repair", STREAM, "--range", "152..162", "--range", "100000..100010", "--dry-run")
    alone = run("repair", STREAM, "--range", "100000..100010", "--json")

    words = f"offsets 100000 to 100009 are not in the manifest of {STREAM}"
    assert words in result.stderr
    assert "152 to 161 are not in" not in result.stderr
    assert words in alone.stderr
    assert json.loads(alone.stdout)["outside"] == [[100000, 100010]]


@pytest.mark.parametrize("text", ["7", "7..7", "9..7", "a..b", "7-9", f"7..{10**30}"])
def test_a_range_that_is_none_is_refused(damaged: Any, run: Run, text: str) -> None:
    assert run("repair", STREAM, "--range", text).exit_code == ExitCode.USAGE


def test_a_file_without_findings_is_refused(damaged: Any, run: Run, tmp_path: Path) -> None:
    path = tmp_path / "other.json"
    path.write_text("[1, 2]\n")

    assert run("repair", STREAM, "--findings", str(path)).exit_code == ExitCode.USAGE
    path.write_text("[" * 20_000)  # deeper than a reader of JSON can go
    assert run("repair", STREAM, "--findings", str(path)).exit_code == ExitCode.USAGE
    path.write_text("\n")  # what a pipe gives when the job before it has failed
    assert run("repair", STREAM, "--findings", str(path)).exit_code == ExitCode.USAGE
    assert run("repair", STREAM, "--from-dir", str(tmp_path)).exit_code == ExitCode.NO_STREAM


def test_a_fragment_that_somebody_else_changed_meanwhile_is_not_told_as_repaired(
    damaged: Any, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    from coldstream.usecases import repair as usecase

    report = usecase.RepairReport(STREAM, overtaken=1)
    monkeypatch.setattr(usecase, "repair", lambda *_, **__: report)

    result = run("repair", STREAM)

    assert result.exit_code == ExitCode.TRY_AGAIN
    assert "run it again" in result.stderr
