"""What claims have cut off: kept on purpose, so neither superfluous nor missing from the manifest.

`coldstream.usecases.quarantine` says the same for `collect`, and stops where it cannot be sure.
Here a record, or a manifest that it names, that cannot be read is a problem like any other, and
nothing is called superfluous that it might have named.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from coldstream.errors import CorruptDataError, InvalidInputError, NotFoundError
from coldstream.manifest.quarantine import (
    MAX_RECORD_SIZE,
    QuarantineRecord,
    Timeline,
    parse_record,
)
from coldstream.manifest.root import Root
from coldstream.manifest.tree import Fetch
from coldstream.names import DataKey, GroupKey, parse_data_key, parse_metadata_key
from coldstream.plans.collect import named_by
from coldstream.ports import ObjectStore
from coldstream.remote.roots import root_at


@dataclass(frozen=True, slots=True)
class Problem:
    """Something that would tell what was cut off, and that cannot be read.

    Attributes:
        key: of the record, or of a manifest that it names.
        what: it is, in words.
        timeline: whose manifest it is; None for the record.
        error: why.
    """

    key: str
    what: str
    timeline: Timeline | None
    error: CorruptDataError | NotFoundError


class CutOff:
    """What the quarantine record of one manifest names; nothing is read before it is asked for.

    Args:
        store: the bucket.
        prefix: of all keys.
        quarantine_key: of the manifest's root; "" if nothing was cut off.
        fetch: reads groups of the stream.
    """

    def __init__(self, store: ObjectStore, prefix: str, quarantine_key: str, fetch: Fetch) -> None:
        self._store = store
        self._prefix = prefix
        self._key = quarantine_key
        self._fetch = fetch
        self._problems: list[Problem] = []

    @cached_property
    def record(self) -> QuarantineRecord:
        """The record; an empty one where there is none, or none that can be read."""
        if not self._key:
            return QuarantineRecord()
        try:
            return parse_record(self._store.get_all(self._key, limit=MAX_RECORD_SIZE))
        except (CorruptDataError, NotFoundError) as error:
            self._problems.append(Problem(self._key, "the quarantine record", None, error))
            return QuarantineRecord()

    @cached_property
    def _lost(self) -> list[tuple[Timeline, Root]]:
        """The timelines with the roots that they were cut from."""
        found: list[tuple[Timeline, Root]] = []
        for each in self.record.timelines:
            if not each.root_key:
                continue
            try:
                root = root_at(self._store, each.root_key)
            except (CorruptDataError, NotFoundError) as error:
                what = f"the manifest that the claim of epoch {each.epoch} has cut off"
                self._problems.append(Problem(each.root_key, what, each, error))
                continue
            found.append((each, root))
        return found

    @cached_property
    def _named(self) -> frozenset[str]:
        """Keys that stand in the record, and its own."""
        timelines = self.record.timelines
        listed = {row.key for each in timelines for row in each.listed}
        roots = {each.root_key for each in timelines}
        return frozenset(({self._key} | listed | roots) - {""})

    @property
    def problems(self) -> tuple[Problem, ...]:
        """The record, and the manifests that it names, as far as they cannot be read."""
        len(self._lost)  # reading them all is what shows it
        return tuple(self._problems)

    def keeps(self, path: str) -> bool:
        """Whether an object is kept because a claim has cut it off.

        Also where that cannot be said, because something that would tell cannot be read.
        """
        if not self._key:
            return False
        if path in self._named or self.problems:
            return True
        key = _parsed(path, self._prefix)
        for timeline, root in self._lost if key is not None else ():
            if isinstance(key, DataKey) and key.next_offset <= timeline.floor:
                continue
            try:
                if key is not None and named_by(root, key, self._fetch):
                    return True
            except (CorruptDataError, NotFoundError):
                return True
        return False


def _parsed(path: str, prefix: str) -> DataKey | GroupKey | None:
    """The key of a fragment, a hole or a group; None for anything else."""
    try:
        return parse_data_key(path, prefix)
    except InvalidInputError:
        pass
    try:
        key = parse_metadata_key(path, prefix)
    except InvalidInputError:
        return None
    return key if isinstance(key, GroupKey) else None
