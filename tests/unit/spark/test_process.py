"""What a Python process of Spark is told once; each test asks a process of its own."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

COUNTED = """
import gc, sys
def known():
    return gc.get_freeze_count() > 1000
"""


def says(script: str, *arguments: str) -> list[str]:
    command = [sys.executable, "-c", COUNTED + script, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return done.stdout.split()


def test_the_collector_leaves_modules_alone_once_a_worker_is_prepared() -> None:
    script = """
from coldstream.spark.process import prepare
before = known()
prepare()
print(before, known(), len(gc.get_objects()) < gc.get_freeze_count() / 10)
"""
    assert says(script) == ["False", "True", "True"]


def test_what_is_garbage_when_a_worker_is_prepared_goes() -> None:
    script = """
import weakref
from coldstream.spark.process import prepare
class Ring: pass
gc.disable()
ring = Ring()
ring.itself = ring
alive = weakref.ref(ring)
del ring
before = alive() is not None
prepare()
print(before, alive() is not None)
"""
    assert says(script) == ["True", "False"]


@pytest.mark.skipif(sys.version_info >= (3, 12), reason="zipimport is lazy by itself")
def test_archives_on_the_path_are_not_read_again_for_each_task(tmp_path: Path) -> None:
    archive = tmp_path / "one.zip"
    with zipfile.ZipFile(archive, "w") as file:
        file.writestr("first.py", "")
    script = """
import importlib
from coldstream.spark.process import prepare
sys.path.insert(0, sys.argv[1])
import first
importer = sys.path_importer_cache[sys.argv[1]]
files = importer._files
prepare()
importlib.invalidate_caches()
print(importer._files is files)
"""
    assert says(script, str(archive)) == ["True"]


def test_the_process_that_makes_the_source_is_prepared(tmp_path: Path) -> None:
    script = """
from coldstream.spark.source import RabbitmqStream
RabbitmqStream({"endpoint": "file://" + sys.argv[1], "stream": "orders"})
print(known())
"""
    assert says(script, str(tmp_path)) == ["True"]


def test_the_process_that_plans_a_read_is_prepared(tmp_path: Path) -> None:
    made = """
import pickle
from coldstream.spark.source import RabbitmqStream
print(pickle.dumps(RabbitmqStream({"endpoint": "file://" + sys.argv[1], "stream": "a"})).hex())
"""
    (pickled,) = says(made, str(tmp_path))
    planned = """
import pickle
source = pickle.loads(bytes.fromhex(sys.argv[1]))
before = known()
source.reader(source.schema())
print(before, known())
"""
    assert says(planned, pickled) == ["False", "True"]
