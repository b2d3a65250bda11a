"""The commit loop of every change: load, plan, PUT, commit; after a conflict all over again."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from coldstream.errors import ConflictError
from coldstream.manifest.catalog import CatalogItem
from coldstream.manifest.node import Node
from coldstream.manifest.root import Root
from coldstream.ports import Landed
from coldstream.remote.context import Context
from coldstream.remote.publish import publish
from coldstream.remote.roots import Snapshot, load


class Change(Protocol):
    """What a plan has to say: the root as it should be, and the new groups that it refers to."""

    @property
    def root(self) -> Root:
        """The root as it should be."""
        ...

    @property
    def nodes(self) -> Sequence[Node]:
        """New groups that it refers to."""
        ...


C = TypeVar("C", bound=Change)


@dataclass(frozen=True, slots=True)
class Terms:
    """How a change is published; see `publish`.

    Attributes:
        claim: whether it claims the epoch of its root.
        first_written: key of the first object that was written for it, groups apart.
    """

    claim: bool = False
    first_written: str = ""


PLAIN = Terms()


@dataclass(frozen=True, slots=True)
class Amended(Generic[C]):
    """What became of a change.

    Attributes:
        before: the root that the change was planned from.
        change: what was planned last; its root is the current one if there was nothing to do.
        landed: whether it was committed.
        item: the catalog item at the end.
        conflicts: attempts that did not land, or may not have.
    """

    before: Root
    change: C
    landed: bool
    item: CatalogItem
    conflicts: int


def amend(
    context: Context,
    stream: str,
    plan: Callable[[Snapshot], C],
    *,
    pause: Callable[[int], None],
    attempts: int = 8,
    dry_run: bool = False,
    terms: Callable[[C], Terms] = lambda _: PLAIN,
) -> Amended[C]:
    """Commit what `plan` makes of the stream as it is; a conflict leads to a new plan.

    A commit whose outcome nobody can know is treated like one that did not land: the stream is
    loaded again, and the plan sees for itself what is left to do.

    Args:
        context: where.
        stream: directory name.
        plan: gives the change; one whose root is the very root it was given changes nothing.
        pause: called with the number of the failed attempt before the next one.
        attempts: how many conflicts in a row are taken.
        dry_run: plan only.
        terms: how a change is published.

    Raises:
        NotFoundError: the catalog does not know the stream, or an object of the tree is gone.
        ConflictError: the stream takes no commits, or another writer won `attempts` times.
        CorruptDataError: the root or a group is damaged.
        UnavailableError: S3 or DynamoDB did not answer.
    """
    conflicts = 0
    while True:
        loaded = load(context, stream)
        change = plan(loaded)
        if change.root is loaded.root or dry_run:
            return Amended(loaded.root, change, False, loaded.item, conflicts)
        how = terms(change)
        outcome = publish(
            context,
            loaded,
            change.root,
            nodes=change.nodes,
            claim=how.claim,
            first_written=how.first_written,
        )
        if isinstance(outcome, Landed):
            return Amended(loaded.root, change, True, outcome.item, conflicts)
        conflicts += 1
        if conflicts >= attempts:
            raise ConflictError(f"{attempts} commits in a row did not land", stream=stream)
        pause(conflicts)
