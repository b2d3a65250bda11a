"""A manifest that does not follow its uploads: asked for, looked after, and told.

    behind ── asked for a commit, twice ──> looked: does the bucket have all that was uploaded?
        yes, and the stream was committed to before ──> the agent commits, and says that it had to
        yes, and nobody has ever committed to it ──> told; asked and looked again, ever more seldom
        no: it vanished, or no commit can take it ──> cut again from where it ends, ever more seldom

What is in the bucket is never uploaded a second time: a copy of it helps no commit. Into a new
stream the agent does not commit in the place of the function, because there the likeliest cause is
that the agent has another bucket or prefix than the stack.
"""

from __future__ import annotations

from dataclasses import dataclass

from coldstream.agent.faults import StuckManifestError, check_not_deleted
from coldstream.agent.settings import AgentSettings
from coldstream.agent.stream.commits import Commits
from coldstream.agent.telling.progress import Notices, place
from coldstream.errors import RefusedFragmentError
from coldstream.manifest.catalog import CatalogItem
from coldstream.ports import CommitRequests
from coldstream.remote.context import Context
from coldstream.usecases.ahead import ahead

_ASKED = 2  # requests for a commit before the bucket is looked at
_RECUTS = 3  # so often is a stream cut again before its manifest counts as stuck
_LOOKS_ONCE = 9  # with `once`: looks at what is all there before it gives up
_BUSY = 12  # nudge times that a stream may be behind that never stops uploading
_LONGEST = 600.0


@dataclass(slots=True)
class CatchUp:
    """Makes the manifest of one stream follow what was uploaded. Times are monotonic seconds.

    Args:
        context: where.
        stream: directory name.
        settings: of the agent.
        requests: for a commit, None if there is no queue.
        commits: of the stream.
        notices: takes what a person should know although the stream goes on.
        stuck: what to tell while the manifest stands still, None while it does not. Never with
            `once`: that raises it.
        hopeless: with `once`: it has been tried often enough.
    """

    context: Context
    stream: str
    settings: AgentSettings
    requests: CommitRequests | None
    commits: Commits
    notices: Notices
    stuck: StuckManifestError | None = None
    hopeless: bool = False
    _asked: int = 0
    _looks: int = 0
    _recuts: int = 0
    _committed: int = 0  # how often the agent has committed in the function's place
    _followed_at: float = float("-inf")
    _tried_at: float = float("-inf")

    @property
    def trying(self) -> bool:
        """Whether something was tried since the manifest last moved."""
        return self._asked > 0 or self._looks > 0

    def followed(self, now: float, *, moved: bool) -> None:
        """The manifest has moved, or has nothing to follow."""
        self._followed_at = now
        if moved:
            self._asked = self._looks = self._recuts = 0
            self.stuck = None

    def opened(self, now: float, *, moved: bool) -> None:
        """All that can be committed has just been, so what is cut from here on is new."""
        self.followed(now, moved=moved)
        self._asked = 0

    def due(self, now: float, *, moved_at: float, in_flight: bool) -> bool:
        """Whether the manifest has stood still for long enough.

        Args:
            now: monotonic seconds.
            moved_at: when an upload has ended, or something was cut.
            in_flight: whether an upload is under way.
        """
        patience = self.settings.nudge_seconds
        if not self.settings.once:
            patience = min(max(patience, _LONGEST), patience * 2.0 ** min(self._looks, 30))
        if not in_flight and now - max(moved_at, self._tried_at) >= patience:
            return True
        busy = max(patience, _BUSY * self.settings.nudge_seconds)
        return now - max(self._followed_at, self._tried_at) >= busy

    def help(self, item: CatalogItem, position: int, now: float, *, in_flight: bool) -> int | None:
        """Do the next thing that may make the manifest follow.

        Args:
            item: as it was read just now.
            position: everything below it was uploaded, or is under way.
            now: monotonic seconds.
            in_flight: whether an upload is under way.

        Returns:
            The offset to cut again from; None if there is nothing to cut again.

        Raises:
            StuckManifestError: with `once`: nothing helps.
            DeletedStreamError: the stream has a tombstone.
            ColdstreamError: as `Commits.commit`.
        """
        check_not_deleted(item)
        self._tried_at = now
        if asked := self._asked < _ASKED:
            self._asked += 1
            self._ask()
            if not in_flight:
                return None
        self._looks += 1
        reached, refused = self._look(item)
        if reached is None:
            return None
        if reached < position and not in_flight:
            return self._cut_again(item, reached, refused)
        if item.fragments == 0 and reached > item.next_offset:
            if not asked:
                self._ask()
            self._tell_unheard(item)
        return None

    def _ask(self) -> None:
        if self.requests is not None:
            self.requests.ask(self.stream)

    def _look(self, item: CatalogItem) -> tuple[int | None, tuple[RefusedFragmentError, ...]]:
        """How far the bucket reaches, None if another writer has it; and what no commit takes."""
        if item.fragments == 0:
            found = ahead(self.context, self.stream)
            return found.next_offset, found.refused
        report = self.commits.commit()
        if report.fragments:
            self._committed += 1
            if self._committed & (self._committed - 1) == 0:  # a broken function is told ever less
                self.notices.append(
                    f"the manifest stood still at {item.next_offset} although the data was"
                    f" uploaded, so the agent has had {report.fragments} fragments committed"
                    f" (time {self._committed}): {self._check()}"
                    f" (stream {self.stream}, offset {item.next_offset})"
                )
        reached = report.next_offset if report.root.ledger.epoch == item.epoch else None
        return reached, report.refused

    def _cut_again(
        self, item: CatalogItem, reached: int, refused: tuple[RefusedFragmentError, ...]
    ) -> int:
        """The manifest cannot take what was uploaded; what is good already stays where it is."""
        self._asked = 0
        self._recuts += 1
        if self._recuts > _RECUTS:
            why = str(refused[0]) if refused else f"no object there continues it at {reached}"
            self._stuck(
                item,
                f"the manifest has not moved although what it lacks was uploaded {self._recuts}"
                f" times: {why}; {self._check()}",
            )
        return reached

    def _tell_unheard(self, item: CatalogItem) -> None:
        self._stuck(
            item,
            "the manifest does not follow: the data is uploaded, and no commit has ever come for"
            f" this stream; nothing is uploaded twice meanwhile. {self._check()}",
            hopeless=self._looks > _LOOKS_ONCE,
        )

    def _stuck(self, item: CatalogItem, words: str, *, hopeless: bool = True) -> None:
        error = StuckManifestError(words, stream=self.stream, offset=item.next_offset)
        if self.settings.once:
            if hopeless:
                self.hopeless = True
                raise error
            return  # whoever waits for the end of the run is told then, if it is still so
        if self.stuck is None:
            self.stuck = error

    def _check(self) -> str:
        return (
            "check the commit function's log, its queue and dead-letter queue, and that it serves"
            f" {place(self.settings, self.context.prefix)}"
        )
