"""Reads in a process that was forked while another read was under way, which left no thread there.

Each program is a process of its own: to fork one that has threads is what pytest warns of.
"""

from __future__ import annotations

from tests.support import forks

PROGRAM = """
import os, threading
from coldstream.reader import First, MemoryBudget
from tests.support.tier import Tier, chunk

tier = Tier()
tier.add("s", [[chunk(10 * n + m, bytes(400)) for m in range(10)] for n in range(9)])
budget, parent = MemoryBudget(), os.getpid()
held, get = threading.Event(), tier.store.get

def slow(key, start, end):
    if os.getpid() == parent and started:
        held.wait()
    return get(key, start, end)

def read():
    return sum(1 for _ in tier.reader("s", budget=budget).messages(First()))

tier.store.get, started = slow, False
messages = tier.reader("s", budget=budget).messages(First())
print(next(messages).offset, flush=True)
"""


def printed(program: str) -> list[str]:
    return forks.printed(PROGRAM + program)


def test_a_read_that_another_process_goes_on_with_says_so_there_and_goes_on_here() -> None:
    """It waited for ever, for what threads of the first process would bring."""
    found = printed(
        "started = True\n"
        "other = tier.reader('s', budget=MemoryBudget()).messages(First())\n"
        "threading.Timer(1, held.set).start()\n"
        "next(other)\n"
        "held.clear()\n"
        "in_child(lambda: sum(1 for _ in other))\n"
        "held.set()\n"
        "print(sum(1 for _ in other))"
    )
    assert found == ["0", "InvalidInputError False", "89"]


def test_what_is_under_way_in_another_process_is_waited_for_by_nobody() -> None:
    found = printed(
        "started = True\n"
        "reading = threading.Thread(target=lambda: list(messages))\n"
        "reading.start()\n"
        "in_child(read)\n"
        "held.set()\nreading.join()\nprint(read())"
    )
    assert found == ["0", "90", "90"]
