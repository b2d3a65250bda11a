"""What the allocator does with the buffers of ranges when they are freed.

glibc gives large buffers back to the kernel at once, and the next one of 4 MiB comes as a thousand
zeroed pages: a quarter of the processor time of a sequential read (`bench/read.py` counted 26,000
to 46,000 page faults for 300 MB, and 35 to 107 without).
"""

from __future__ import annotations

import ctypes

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
#: The most that glibc takes.
_LARGEST_BUFFER = 32 * 2**20
_KEPT = 128 * 2**20


def keep_freed_memory() -> bool:
    """Let this process keep what it freed, up to 128 MiB a heap, to use it again.

    For programs whose main work is reading, as `coldstream read` and the gateway: it is a setting
    of the whole process. Nothing happens, and False is returned, where the C library is not glibc.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError):
        return False
    # Either one alone switches off what glibc learns by itself, so both are set.
    return bool(mallopt(_M_MMAP_THRESHOLD, _LARGEST_BUFFER) and mallopt(_M_TRIM_THRESHOLD, _KEPT))
