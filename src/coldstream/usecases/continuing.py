"""What LIST shows behind a manifest: page by page, and no more of it than the run asks for."""

from __future__ import annotations

from collections.abc import Sequence

from coldstream.manifest.root import Root
from coldstream.names import MAX_OFFSET, data_prefix, list_start
from coldstream.plans.overlap import recent
from coldstream.plans.resolve import Candidates, Listed, Resolution, Step
from coldstream.remote.context import Context
from coldstream.remote.listing import data_objects


class Listing:
    """What may continue a root, in one LIST unless a page ends inside the run.

    Keys sort by first offset. So once the page's last key begins above the end of the best run, and
    above what holes behind it could lead to, every object that could continue that run has been
    seen. And once the run has more than `limit` fragments, one commit takes no more: what a
    manifest that is far behind lacks beyond them is for the next one.

    It begins a few fragments below the end of the manifest, so that what reaches over the end is
    seen at no cost in requests, unless it is very much larger than those.

    Args:
        context: where.
        stream: directory name.
        root: what is to be continued.
        limit: objects in one commit, about.
    """

    def __init__(self, context: Context, stream: str, root: Root, limit: int) -> None:
        self.candidates = Candidates(root.next_offset, root.ledger)
        self._root = root
        self._across: list[Listed] = []
        self._context = context
        self._stream = stream
        self._limit = limit
        self._start = list_start(context.prefix, stream, recent(root))
        self._last_offset = -1
        self._ended = False
        self._begun = False

    def resolved(self) -> Resolution:
        """The run without refused objects; lists on where that makes it look further ahead.

        Raises:
            UnavailableError: the store did not answer.
        """
        if not self._begun:
            self._next_page()
        while True:
            found = self.candidates.resolved()
            if self._ended or len(found.run) > self._limit or self._last_offset > found.listed_to:
                return found
            self._next_page()

    def reaching_over(self, offset: int) -> list[Listed]:
        """What was seen of the fragments that begin below an offset and end above it."""
        found = [each for each in self._across if each.data_key.next_offset > offset]
        return found + self.candidates.reaching_over(offset)

    def refuse(self, listed: Listed) -> None:
        """Leave an object out from now on."""
        self.candidates.drop(listed)

    def settled(self, run: Sequence[Step]) -> int:
        """How many objects of a verified beginning of the run are final: `Candidates.settled`."""
        return self.candidates.settled(
            [each.listed for each in run],
            seen_to=MAX_OFFSET if self._ended else self._last_offset,
        )

    def _next_page(self) -> None:
        self._begun = True
        page = self._context.store.list(
            data_prefix(self._context.prefix, self._stream),
            start_after=self._start,
            limit=self._context.page_size,
        )
        rows = data_objects(page, self._context.prefix)
        if rows:
            self._last_offset = rows[-1].data_key.first_offset
        self.candidates.add(rows)
        root = self._root
        for each in rows:
            key = each.data_key
            if (
                key.kind == "fragment"
                and key.first_offset < root.next_offset < key.next_offset
                and root.ledger.accepts(key.epoch, key.first_offset, key.next_offset)
            ):
                self._across.append(each)
        self._ended = len(page) < self._context.page_size
        if page:
            self._start = page[-1].key
