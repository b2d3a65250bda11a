"""Names of streams for the shell's completion: few, soon, or none at all.

A shell waits at every Tab, so the look-up ends after a page or two seconds, and whatever goes wrong
completes nothing and says nothing.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import typer

from coldstream.deployment import ENV_PREFIX, ENV_TABLE
from coldstream.names import DEFAULT_PREFIX

if TYPE_CHECKING:
    from coldstream.manifest.catalog import CatalogItem
    from coldstream.ports import Catalog

_LOOKED_AT = 1000
_OFFERED = 100
_SECONDS = 2
#: What no shell takes for anything but letters, and no program for an option.
_SAFE = re.compile(r"[A-Za-z0-9_./:@][A-Za-z0-9_./:@%+=,-]*")


def stream_names(ctx: typer.Context, incomplete: str) -> list[str]:
    """What a person may have begun to type.

    Args:
        ctx: of the command line so far.
        incomplete: the word so far.
    """
    try:
        catalog = catalog_of(ctx.params)
        return [] if catalog is None else offered(catalog.page(None, _LOOKED_AT).items, incomplete)
    except Exception:  # noqa: BLE001 - at a prompt there is nobody to tell
        return []


def offered(items: Iterable[CatalogItem], incomplete: str) -> list[str]:
    """The names that go on from a word, sorted: of each stream the first form that does.

    VHOST/QUEUE comes first, then the queue alone, then the directory. The directory also stands for
    a form that means several streams, or that a shell would not leave alone: it puts what it is
    offered into the line as it is, and whoever may declare a queue chooses its name.
    """
    from coldstream.remote.resolve import Forms, queue_names

    items = list(items)
    called = Forms(items)
    found: set[str] = set()
    for item in items:
        typed = [*queue_names(item), item.stream]
        if item.state == "deleted" or not any(each.startswith(incomplete) for each in typed):
            continue
        safe = [each for each in called.of(item) if _SAFE.fullmatch(each)]
        begun = (each for each in safe if each.startswith(incomplete))
        found.update([next(begun, item.stream)] if item.stream in safe else [])
    return sorted(found)[:_OFFERED]


def catalog_of(options: Mapping[str, Any]) -> Catalog | None:
    """The catalog that the command line, or the environment, names; None if neither does."""
    table = options.get("table") or os.environ.get(ENV_TABLE, "")
    prefix = options.get("prefix") or os.environ.get(ENV_PREFIX, "") or DEFAULT_PREFIX
    if not table:
        return None
    from coldstream.adapters.dynamodb import DynamoCatalog
    from coldstream.adapters.place import Patience, client

    patience = Patience(_SECONDS, _SECONDS, 1)
    return DynamoCatalog(client=client("dynamodb", patience=patience), table=table, prefix=prefix)
