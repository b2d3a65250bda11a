"""Names of streams for the shell's completion: few, soon, or none at all.

A shell waits at every Tab, so the look-up ends after a page or two seconds, and whatever goes wrong
completes nothing and says nothing.
"""

from __future__ import annotations

import os
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

    VHOST/QUEUE comes first, then the queue alone, then the directory.
    """
    found: set[str] = set()
    for item in items:
        name = item.name
        forms = [f"{name.vhost}/{name.queue}", name.queue] if name.queue else []
        forms.append(item.stream)
        form = next((each for each in forms if each.startswith(incomplete)), None)
        if form is not None and form.isprintable() and item.state != "deleted":
            found.add(form)
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
