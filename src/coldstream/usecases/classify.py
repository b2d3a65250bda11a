"""What an object of a stream is: the look-ups behind the rules of `plans.collect`."""

from __future__ import annotations

from collections.abc import Callable
from copy import copy

from coldstream.errors import InvalidInputError
from coldstream.manifest.entries import Entry
from coldstream.manifest.tree import leaf_at, over_hole
from coldstream.names import (
    DataKey,
    ErasureKey,
    GroupKey,
    MarkKey,
    MetadataKey,
    QuarantineKey,
    RootKey,
    parse_data_key,
    parse_metadata_key,
)
from coldstream.plans.collect import (
    ObjectKind,
    classify_data,
    classify_group,
    classify_root,
    refers,
    survives,
)
from coldstream.ports import ObjectInfo
from coldstream.remote.context import Context
from coldstream.remote.roots import Snapshot
from coldstream.usecases.last_chunk import holds_last_chunk
from coldstream.usecases.quarantine import Quarantine
from coldstream.usecases.references import rivals


class Classifier:
    """Classifies objects by a state of a stream, the roots that may be adopted, the quarantine.

    Args:
        context: where.
        loaded: the stream.
        time_left: whether there is time for another page of roots.

    Raises:
        NotFoundError: something that the quarantine record names is gone.
        CorruptDataError: it is damaged.
        UnavailableError: S3 did not answer.
    """

    def __init__(
        self, context: Context, loaded: Snapshot, *, time_left: Callable[[], bool] = lambda: True
    ) -> None:
        self._context = context
        self._stream = loaded.item.stream
        self._item, self._root = loaded.item, loaded.root
        self._fetch = context.fetch(self._stream)
        self._rivals = rivals(context, loaded.item, time_left=time_left)
        self._quarantine = Quarantine(context, self._stream, loaded.root, self._rivals or ())
        self._holders: dict[str, Entry] = {}

    @property
    def blind(self) -> bool:
        """Whether too many roots may be adopted, or there was no time to list them.

        Then only roots can be proved garbage, until a version has landed, or in a longer step.
        """
        return self._rivals is None

    def renewed(self, loaded: Snapshot) -> Classifier | None:
        """This one over a later state of the stream, without a LIST; None where that is unsound.

        Nothing of what it has seen beside the tree may have changed (`survives`), and the tree is
        looked at anew: a hole that a repair has put there makes a copy the only one. The roots that
        may be adopted are those that it knows. One that was written since was planned from this
        state or a later one, so it names nothing that was garbage (docs/decisions/0018).
        """
        same_record = loaded.root.quarantine_key == self._root.quarantine_key
        if not same_record or not survives(self._item, loaded.item):
            return None
        classifier = copy(self)
        classifier._item, classifier._root = loaded.item, loaded.root
        return classifier

    def kind(self, row: ObjectInfo) -> ObjectKind:
        """What an object is.

        Raises:
            NotFoundError, CorruptDataError: a group of a tree that must be there.
            UnavailableError: S3 did not answer.
        """
        path, prefix = row.key, self._context.prefix
        try:
            key: DataKey | MetadataKey = parse_data_key(path, prefix)
        except InvalidInputError:
            try:
                key = parse_metadata_key(path, prefix)
            except InvalidInputError:
                return ObjectKind.FOREIGN
        item, kept = self._item, self._quarantine
        match key:
            case DataKey():
                kind = self._data(key, row)
            case GroupKey():
                kind = classify_group(key, self._root, self._fetch)
                if kind.garbage and kept.names(key):
                    kind = ObjectKind.QUARANTINED
            case RootKey():
                kind = classify_root(key, version=item.version, current=path == item.root_key)
                return ObjectKind.QUARANTINED if kind.garbage and path in kept.root_keys else kind
            case QuarantineKey():
                if path in kept.record_keys:
                    return ObjectKind.REFERENCED
                return ObjectKind.PENDING if self._rivals is None else ObjectKind.OLD_QUARANTINE
            case MarkKey():
                return ObjectKind.RECORD
            case ErasureKey():
                return ObjectKind.ERASURE
        if kind.garbage and (
            self._rivals is None or any(refers(root, key, self._fetch) for root in self._rivals)
        ):
            return ObjectKind.PENDING
        return kind

    def _data(self, key: DataKey, row: ObjectInfo) -> ObjectKind:
        root, kept = self._root, self._quarantine
        # A leaf that reaches over the first offset begins below it, and is live all the same.
        leaf = leaf_at(root, max(key.first_offset, root.first_offset), self._fetch)
        kind = classify_data(
            key,
            root,
            leaf,
            lambda _: self._holds_last_chunk(key, row.key),
            over_hole=lambda _: over_hole(root, key.first_offset, key.next_offset, self._fetch),
            record=kept.record,
            modified_ms=row.modified_ms,
        )
        if kind is not ObjectKind.REFERENCED and (row.key in kept.listed or kept.names(key)):
            return ObjectKind.QUARANTINED
        return kind

    def _holds_last_chunk(self, key: DataKey, path: str) -> bool:
        """Whether the manifest or a lost timeline has the fragment's history from another upload.

        A timeline says so only of what it was cut off with: the same last chunk, and no hole.
        """
        # The chunk ends with the fragment. Nothing of an object ever changes: while the same one is
        # there in the tree, it holds what it held.
        leaf = leaf_at(self._root, key.next_offset - 1, self._fetch)
        if leaf is not None and self._holders.get(path) == leaf:
            return True
        if holds_last_chunk(self._context, self._stream, self._root, path):
            if leaf is not None:
                self._holders[path] = leaf
            return True
        return any(
            key.next_offset > timeline.floor
            and not over_hole(root, key.first_offset, key.next_offset, self._fetch)
            and holds_last_chunk(self._context, self._stream, root, path)
            for timeline, root in self._quarantine.roots
        )
