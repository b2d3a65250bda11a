from __future__ import annotations

import platform
import subprocess
import sys

_PROGRAM = """
import resource
from coldstream.reader import keep_freed_memory

def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(5):
        held = [bytearray(2**22) for _ in range(8)]
        del held
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

print(keep_freed_memory())
faults()
print(faults())
"""


_THREADS = """
import resource
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from coldstream.reader import keep_freed_memory

kept = keep_freed_memory()
all_begun = Barrier(16)
with ThreadPoolExecutor(16) as pool:
    list(pool.map(lambda _: all_begun.wait(), range(16)))
    begun = Barrier(16)

    def one_after_another(number):
        for each in range(16):
            if each == number:
                bytearray(2**22)
            begun.wait()

    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    list(pool.map(one_after_another, range(16)))
    print(kept, resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def test_threads_use_again_what_others_freed() -> None:
    done = subprocess.run(
        [sys.executable, "-c", _THREADS], capture_output=True, text=True, check=True, timeout=60
    )

    kept, faults = done.stdout.split()

    if kept == "True":
        assert int(faults) < 4096, "sixteen buffers of 4 MiB have 16,384 pages"


def test_buffers_that_were_freed_are_used_again_instead_of_new_pages() -> None:
    """In a process of its own: it is a setting of all of it."""
    done = subprocess.run(
        [sys.executable, "-c", _PROGRAM], capture_output=True, text=True, check=True, timeout=300
    )

    kept, faults = done.stdout.split()

    assert kept == str(platform.libc_ver()[0] == "glibc")
    if kept == "True":
        assert int(faults) < 8192, "eight buffers of 4 MiB have 8,192 pages, taken five times"
