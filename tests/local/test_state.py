"""What `local down --wipe` may remove: only what a server of ours has put there."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from coldstream.cli.main import app
from coldstream.errors import InvalidInputError
from coldstream_devkit.local import environment, process
from coldstream_devkit.local.progress import silent

ROOT = Path(__file__).parents[2]
RECORD = '{"stack": "coldstream", "outputs": {}}'


def down(state: str, **settings: str) -> tuple[int, str]:
    result = CliRunner().invoke(app, ["local", "down", "--wipe", "--state", state], **settings)
    return result.exit_code, " ".join(result.stderr.split())


@pytest.fixture
def papers(tmp_path: Path) -> Path:
    """A directory that has nothing to do with us."""
    directory = tmp_path / "papers"
    (directory / "objects").mkdir(parents=True)
    (directory / "thesis.txt").write_text("years of work")
    return directory


def test_a_wipe_refuses_a_directory_that_no_server_of_ours_has_used(papers: Path) -> None:
    code, said = down(str(papers))

    assert code == 2
    assert "nothing was removed" in said
    assert (papers / "thesis.txt").read_text() == "years of work"


def test_a_file_that_is_only_called_like_one_of_ours_gives_no_leave_to_wipe(papers: Path) -> None:
    for name in ("server.json", "environment.json"):
        (papers / name).write_text('{"port": 80}')
    (papers / "server.lock").write_text("held by somebody")

    assert down(str(papers))[0] == 2
    assert (papers / "thesis.txt").exists()
    assert (papers / "server.json").exists()


@pytest.mark.parametrize("value", ["", " "])
@pytest.mark.parametrize("command", ["down", "up", "status", "env"])
def test_an_empty_state_names_no_directory_least_of_all_the_working_one(
    command: str, value: str, papers: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(papers)
    (papers / "environment.json").write_text(RECORD)

    wipe = ["--wipe", "--project", str(ROOT)] if command == "down" else []

    result = CliRunner().invoke(app, ["local", command, "--state", value, *wipe])

    assert result.exit_code == 2
    assert (papers / "thesis.txt").exists()
    assert (papers / "environment.json").exists()


def test_a_wipe_does_not_follow_a_link_even_to_a_directory_of_ours(tmp_path: Path) -> None:
    ours = tmp_path / "state"
    ours.mkdir()
    (ours / "environment.json").write_text(RECORD)
    link = tmp_path / "link"
    link.symlink_to(ours)

    code, said = down(str(link))

    assert code == 2
    assert "link" in said
    assert (ours / "environment.json").exists()


def test_a_link_inside_the_state_goes_and_what_it_leads_to_stays(
    tmp_path: Path, papers: Path
) -> None:
    ours = tmp_path / "state"
    ours.mkdir()
    (ours / "server.lock").write_text("17")
    (ours / "demo").symlink_to(papers)

    assert process.wipe(ours) == []
    assert not ours.exists()
    assert (papers / "thesis.txt").exists()


def test_a_wipe_leaves_what_others_have_put_beside_the_state(tmp_path: Path) -> None:
    ours = tmp_path / "state"
    (ours / "objects" / "bucket").mkdir(parents=True)
    (ours / "environment.json").write_text(RECORD)
    (ours / "notes.txt").write_text("mine")

    assert process.wipe(ours) == ["notes.txt"]
    assert [each.name for each in ours.iterdir()] == ["notes.txt"]


def test_a_wipe_that_was_cut_short_can_be_done_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from coldstream_devkit.local import state

    ours = tmp_path / "state"
    (ours / "objects").mkdir(parents=True)
    (ours / "server.lock").write_text("17")
    with monkeypatch.context() as patch:
        patch.setattr(state.shutil, "rmtree", lambda _: (_ for _ in ()).throw(OSError("cut")))
        with pytest.raises(OSError, match="cut"):
            process.wipe(ours)

    assert process.wipe(ours) == []
    assert not ours.exists()


def test_a_wipe_of_what_is_not_there_says_so(tmp_path: Path) -> None:
    said: list[str] = []

    environment.down(tmp_path, state_dir=tmp_path / "none", wipe=True, progress=said.append)

    assert "nothing was removed" in said[-1]


def test_an_up_does_not_mix_its_state_with_other_things(papers: Path) -> None:
    with pytest.raises(InvalidInputError, match="other things"):
        environment.up(papers, state_dir=papers, progress=silent)

    assert sorted(each.name for each in papers.iterdir()) == ["objects", "thesis.txt"]
