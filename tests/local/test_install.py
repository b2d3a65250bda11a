"""The server's environment is made once, and again when its requirements change."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from coldstream.errors import UnavailableError
from coldstream_devkit.local import install as module
from coldstream_devkit.local.install import install


@pytest.fixture
def requirements(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A list of nothing, so that these tests need no network."""
    path = tmp_path / "requirements.txt"
    path.write_text("# nothing\n")
    monkeypatch.setattr(module, "REQUIREMENTS", path)
    return path


def test_it_is_installed_once_and_the_user_is_told(requirements: Path, tmp_path: Path) -> None:
    said: list[str] = []

    python = install(tmp_path, progress=said.append)
    assert install(tmp_path, progress=said.append) == python

    assert subprocess.run([python, "-c", ""], check=False).returncode == 0
    assert len(said) == 1


def test_changed_requirements_make_it_anew(requirements: Path, tmp_path: Path) -> None:
    said: list[str] = []
    install(tmp_path, progress=said.append)
    requirements.write_text("# nothing else\n")

    install(tmp_path, progress=said.append)

    assert len(said) == 2


def test_an_installation_that_failed_is_tried_again(requirements: Path, tmp_path: Path) -> None:
    requirements.write_text("./does-not-exist\n")
    for _ in range(2):
        with pytest.raises(UnavailableError, match="pip install failed"):
            install(tmp_path, progress=lambda _: None)


def test_every_requirement_is_pinned_exactly() -> None:
    lines = module.REQUIREMENTS.read_text().splitlines()

    pinned = [line for line in lines if line and not line.startswith("#")]

    assert "ministack==1.5.33" in pinned
    assert all("==" in line for line in pinned)
