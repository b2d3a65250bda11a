"""The CDK app runs when something that it reads has changed, and not otherwise."""

from __future__ import annotations

from pathlib import Path

import pytest

from coldstream.errors import InvalidInputError, UnavailableError
from coldstream_devkit.local import synth as synth_module
from coldstream_devkit.local.progress import silent
from coldstream_devkit.local.synth import AppFailedError, synth
from infra import bundle, glue_bundle

APP = """
import json, os, pathlib
out = pathlib.Path(os.environ["CDK_OUTDIR"]); out.mkdir(parents=True)
context = json.loads(os.environ.get("CDK_CONTEXT_JSON", "{}"))
(out / "manifest.json").write_text(json.dumps(context))
with open("runs", "a") as runs: runs.write("x")
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "app.py").write_text(APP)
    (tmp_path / "infra").mkdir()
    (tmp_path / "infra" / "stack.py").write_text("first")
    return tmp_path


def runs(project: Path) -> int:
    return len((project / "runs").read_text())


def test_an_unchanged_app_is_not_run_again(project: Path) -> None:
    first = synth(project, progress=silent)

    assert synth(project, progress=silent) == first
    assert runs(project) == 1


@pytest.mark.parametrize(
    "changed", ["app.py", "infra/stack.py", "functions/new.py", "glue_jobs/new.py", "uv.lock"]
)
def test_a_change_of_anything_that_the_app_reads_runs_it(project: Path, changed: str) -> None:
    synth(project, progress=silent)
    path = project / changed
    path.parent.mkdir(exist_ok=True)
    path.write_text((path.read_text() if path.exists() else "") + "\n# changed")

    synth(project, progress=silent)

    assert runs(project) == 2


def test_a_change_of_what_never_reaches_the_stack_does_not_run_it(project: Path) -> None:
    synth(project, progress=silent)
    local = project / "src" / "coldstream" / "local"
    local.mkdir(parents=True)
    (local / "synth.py").write_text("changed")

    synth(project, progress=silent)

    assert runs(project) == 1


def test_what_both_bundles_leave_out_is_what_synthesis_does_not_look_at() -> None:
    assert set(synth_module.FRONT_ENDS) == bundle.FRONT_ENDS & glue_bundle.LEFT_OUT


def test_each_set_of_settings_has_an_assembly_of_its_own(project: Path) -> None:
    plain = synth(project, progress=silent)
    other = synth(project, context={"coldstream:prefix": "other/"}, progress=silent)

    assert plain != other
    assert (other / "manifest.json").read_text() == '{"coldstream:prefix": "other/"}'
    assert synth(project, progress=silent) == plain
    assert runs(project) == 2


def test_an_app_that_fails_says_why_and_leaves_the_last_good_assembly(project: Path) -> None:
    good = synth(project, progress=silent)
    (project / "app.py").write_text("raise SystemExit('this is why')")

    with pytest.raises(UnavailableError, match="this is why"):
        synth(project, progress=silent)
    assert (good / "manifest.json").exists()
    with pytest.raises(UnavailableError, match="this is why"):
        synth(project, progress=silent)


def test_a_directory_without_an_app_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match="no CDK app"):
        synth(tmp_path, progress=silent)


def test_the_reason_of_an_app_that_fails_is_not_hidden_behind_the_banner_of_node(
    project: Path,
) -> None:
    (project / "app.py").write_text(
        "import sys\n"
        "for _ in range(20): print(b'!!  Node 20 is end-of-life  !!\\n', file=sys.stderr)\n"
        "sys.exit('app.py: unknown setting coldstream:nope')\n"
    )

    with pytest.raises(AppFailedError) as caught:
        synth(project, progress=silent)

    assert "code 1: app.py: unknown setting coldstream:nope" in str(caught.value)
    assert "end-of-life" not in str(caught.value)
