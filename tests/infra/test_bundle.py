"""The Lambda bundle: small, the same every time, and without what a function must not import."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from infra.bundle import FRONT_ENDS, MAX_BYTES, PROVIDED, build, size_bytes

ROOT = Path(__file__).resolve().parents[2]


def checkout(directory: Path) -> Path:
    """A copy of what a bundle is built from."""
    for name in ("pyproject.toml", "uv.lock"):
        shutil.copy(ROOT / name, directory / name)
    ignore = shutil.ignore_patterns("__pycache__")
    for name in ("src", "functions"):
        shutil.copytree(ROOT / name, directory / name, ignore=ignore)
    return directory


def contents(bundle: Path) -> dict[str, tuple[bytes, int, int]]:
    """Bytes, mode and time of every file."""
    return {
        path.relative_to(bundle).as_posix(): (
            path.read_bytes(),
            stat.S_IMODE(path.stat().st_mode),
            int(path.stat().st_mtime),
        )
        for path in bundle.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }


@pytest.fixture(scope="module")
def bundle() -> Path:
    return build(ROOT)


def test_the_bundle_is_far_below_its_limit(bundle: Path) -> None:
    assert 1_000_000 < size_bytes(bundle) < MAX_BYTES == 30 * 1024 * 1024


def test_the_bundle_has_the_handlers_and_the_libraries_they_need(bundle: Path) -> None:
    for name in ("functions", "coldstream/manifest", "aws_lambda_powertools", "aws_xray_sdk"):
        assert (bundle / name / "__init__.py").is_file()


def test_the_bundle_is_for_arm64_and_python_3_13(bundle: Path) -> None:
    compiled = [path.name for path in bundle.rglob("*.so")]

    assert compiled
    assert all("cpython-313-aarch64" in name for name in compiled)


def test_the_bundle_lacks_what_lambda_brings_and_what_only_front_ends_use(bundle: Path) -> None:
    present = {path.name for path in bundle.iterdir()}

    assert not present & {name.replace("-", "_") for name in PROVIDED}
    assert not present & {"dateutil", "numpy", "obstore", "cramjam", "typer", "rich"}
    assert not {path.name for path in (bundle / "coldstream").iterdir()} & FRONT_ENDS


def test_the_bundle_has_no_tests_stubs_byte_code_or_programs(bundle: Path) -> None:
    names = {path.name for path in bundle.rglob("*") if "__pycache__" not in path.parts}

    assert not names & {"bin", "tests", "test", "RECORD", "INSTALLER", ".lock"}
    assert not {name for name in names if name.endswith((".pyi", ".pth"))}


def test_two_checkouts_give_the_same_bundle_whatever_the_umask(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    first.mkdir()
    second.mkdir()

    one = build(checkout(first))
    before = os.umask(0o077)
    try:
        two = build(checkout(second))
    finally:
        os.umask(before)

    assert one.name == two.name
    assert contents(one) == contents(two)


def test_a_change_of_our_code_changes_the_bundle_and_one_of_a_front_end_does_not(
    tmp_path: Path,
) -> None:
    root = checkout(tmp_path)
    before = build(root)

    (root / "src/coldstream/cli/more.py").write_text("MORE = 1\n")
    assert build(root) == before
    (root / "src/coldstream/more.py").write_text("MORE = 1\n")
    after = build(root)

    assert after != before
    assert (after / "coldstream/more.py").is_file()


def test_a_built_bundle_is_found_again_without_uv(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = checkout(tmp_path)
    bundle = build(root)

    def never() -> str:
        raise AssertionError

    monkeypatch.setattr("infra.bundle.find_uv_bin", never)

    assert build(root) == bundle


@pytest.mark.parametrize("name", ["commit_runs", "reconcile", "erase"])
def test_a_handler_can_be_imported_from_the_bundle_alone(bundle: Path, name: str) -> None:
    program = (
        "import sys, importlib\n"
        "class Refuse:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name.split('.')[0] in ('numpy', 'obstore', 'cramjam', 'typer', 'rich'):\n"
        "            raise AssertionError(f'a function imports {name}')\n"
        "sys.meta_path.insert(0, Refuse())\n"
        f"sys.path.insert(0, {str(bundle)!r})\n"
        f"module = importlib.import_module('functions.{name}')\n"
        "assert callable(module.handler)\n"
        "import coldstream, aws_lambda_powertools\n"
        f"for each in (module, coldstream, aws_lambda_powertools):\n"
        f"    assert each.__file__.startswith({str(bundle)!r}), each.__file__\n"
    )
    done = subprocess.run(
        [sys.executable, "-B", "-c", program],
        cwd="/",
        env={
            "PATH": os.environ["PATH"],
            "AWS_DEFAULT_REGION": "eu-central-1",
            "AWS_XRAY_SDK_ENABLED": "false",
            "COLDSTREAM_BUCKET": "bucket",
            "COLDSTREAM_TABLE": "table",
            "COLDSTREAM_PREFIX": "rabbitmq/",
        },
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 0, done.stderr
