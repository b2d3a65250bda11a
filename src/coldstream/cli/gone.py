"""Which streams `coldstream delete --gone` means, and what it says of them before."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from coldstream.cli.agents_said import agents_told
from coldstream.cli.connect import Remote
from coldstream.cli.exit_codes import ExitCode
from coldstream.cli.output import many, note, print_table, when
from coldstream.errors import ConflictError, InvalidInputError
from coldstream.manifest.catalog import CatalogItem, QueueName
from coldstream.plans.gone import Fate, Judged, judge
from coldstream.plans.policy import PolicySet, effective

if TYPE_CHECKING:
    from coldstream.broker.management import Management

_COLUMNS = ("stream", "vhost", "queue", "newest", "fragments", "bytes", "fate")
_HELD = "gone, and under legal hold"


class NotThisBrokerError(ConflictError):
    """The broker's list says nothing about the streams of this remote tier."""

    exit_code = ExitCode.FAILED
    why = "no evidence"
    remedy = (
        "give the management API of a node of this very cluster, as an administrator, or as a user"
        " with the tag monitoring who may enter every virtual host"
    )


def gone_streams(
    remote: Remote,
    management_uri: str,
    policies: PolicySet,
    *,
    now_ms: int,
    older_seconds: int,
    quiet: bool,
) -> list[CatalogItem]:
    """The streams to delete, after what is to be said of all that may seem gone.

    Args:
        remote: the remote tier.
        management_uri: of a broker of the cluster, which lists its queues.
        policies: all rules; what is held, or may be, is told and left out.
        now_ms: ms since the Unix epoch.
        older_seconds: since when nothing may have been written.
        quiet: print no table.

    Raises:
        InvalidInputError: there is no URI, or it is none.
        NotThisBrokerError: its list is no evidence.
        UnavailableError, PermissionDeniedError: the broker does not answer, or refuses the user.
    """
    from coldstream.broker.management import Management

    if not management_uri:
        raise InvalidInputError(
            "--gone needs --management-uri: only the broker's own list shows that a stream is gone,"
            " what agents say does not"
        )
    management = Management.parse(management_uri)
    items = list(remote.catalog.streams())
    judged = judge(
        items,
        _queues(management),
        agents_told(remote, now_ms).said.keys(),
        before_ms=now_ms - 1000 * older_seconds,
    )
    if judged and not any(each.fate is Fate.QUEUE for each in judged):
        raise NotThisBrokerError(
            f"the broker at {management.host}:{management.port} has a queue for none of the"
            f" {many(len(judged), 'stream')} of this remote tier: it may be another cluster's, so"
            " nothing counts as gone"
        )
    rows = [_row(each, policies) for each in judged if each.fate is not Fate.QUEUE]
    if not quiet:
        print_table(rows, _COLUMNS)
    for words, count in Counter(row["fate"] for row in rows).items():
        note(f"{many(count, 'stream')}: {words}")
    going = {row["stream"] for row in rows if row["fate"] == Fate.GONE}
    return [each.item for each in judged if each.item.stream in going]


def _queues(management: Management) -> list[QueueName]:
    """All streams of a broker.

    Raises:
        NotThisBrokerError: the user does not see all of them, or the broker may not.
    """
    if not management.sees_all():
        raise NotThisBrokerError(
            f"the user {management.user!r} does not see all virtual hosts of the broker, so what is"
            " not on its list may be there"
        )
    if not management.knows_all():
        raise NotThisBrokerError(
            f"the broker at {management.host}:{management.port} has no majority of its cluster's"
            " nodes beside it, or was parted from some: what is not on its list may be on theirs"
        )
    return [QueueName("", each.vhost, each.queue) for each in management.streams()]


def _row(judged: Judged, policies: PolicySet) -> dict[str, Any]:
    item, fate = judged.item, str(judged.fate)
    said = effective(policies, item.stream, item.name)
    if judged.fate is Fate.GONE and (said.hold_rules or said.unsure_holds):
        fate = _HELD
    return {
        "stream": item.stream,
        "vhost": item.name.vhost or None,
        "queue": item.name.queue or None,
        "newest": when(judged.newest_ms),
        "fragments": item.fragments,
        "bytes": item.total_size,
        "fate": fate,
    }
