"""What the allocator does with the buffers of ranges when they are freed.

glibc gives large buffers back to the kernel, and has up to eight heaps for each processor, between
which threads do not share what they freed: so each thread's first range of 4 MiB comes as a
thousand zeroed pages. A first read of 300 MB took 43,000 page faults, the ones after it 5,400; with
what is said here 12,000 to 20,000, and soon 170.
"""

from __future__ import annotations

import ctypes

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD, _M_ARENA_MAX = -1, -3, -8
#: The most that glibc takes.
_LARGEST_BUFFER = 32 * 2**20
_KEPT = 128 * 2**20
#: Heaps of all threads. They seldom take turns: what is small, each thread keeps by itself.
_HEAPS = 2


def keep_freed_memory() -> bool:
    """Let this process keep what it freed, 128 MiB in each of two heaps, to use it again.

    For programs whose main work is reading, as `coldstream export` and the gateway, before they
    have many threads: it is a setting of the whole process. Nothing happens, and False is
    returned, where the C library is not glibc.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError):
        return False
    mallopt(_M_ARENA_MAX, _HEAPS)
    # Either one alone switches off what glibc learns by itself, so both are set.
    return bool(mallopt(_M_MMAP_THRESHOLD, _LARGEST_BUFFER) and mallopt(_M_TRIM_THRESHOLD, _KEPT))
