"""A manifest made anew from the bucket: one pass over LIST, in memory that does not grow with it.

Keys carry all that a chain needs, so no object has to be opened. Which fragment stands for a range
is what the ledger and `resolve_run` say: the newest epoch with a right to it, then the fewest
fragments. A ledger gives every offset to one epoch only, so nothing is left to choose between two.

Without trailers the entries are *unverified*: their records are 0 and their times reach from the
smallest to the greatest that there are. So a look-up by time opens such a fragment instead of
passing it over, which is right but slow, and retention by age never takes it, because nothing says
that it is old. With trailers each fragment is checked as a commit checks it.

Holes are not applied, as in `resolve_run`: the chain ends before them, and `Rebuilt.beyond` says so.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import batched_pages
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from coldstream.fragment import Trailer
from coldstream.manifest.entries import Entries
from coldstream.manifest.ledger import Ledger
from coldstream.manifest.node import Node
from coldstream.manifest.root import LastChunk, Root
from coldstream.plans.chain import MAX_WINDOW, Chain
from coldstream.plans.grow import Growth
from coldstream.plans.key_columns import KeyReader, acceptable
from coldstream.plans.resolve import Listed, Verified, check_fragment, last_chunk_of
