"""Adapters for a place, in the driver and in every worker, once a process.

Credentials never travel: each process asks the environment or its instance, as every AWS SDK does.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from coldstream.ports import Catalog, ObjectStore
from coldstream.spark.directory import DirectoryCatalog, DirectoryStore
from coldstream.spark.options import Place


@dataclass(frozen=True, slots=True)
class Remote:
    """A remote tier as a process sees it.

    Attributes:
        store: its bucket.
        catalog: its table.
        prefix: of all keys.
    """

    store: ObjectStore
    catalog: Catalog
    prefix: str


@lru_cache(maxsize=8)
def connect(place: Place) -> Remote:
    """The adapters for a place; nothing is sent yet.

    Raises:
        InvalidInputError: it is a directory that is not there.
    """
    if place.directory:
        store = DirectoryStore(place.directory)
        return Remote(store, DirectoryCatalog(store, place.prefix), place.prefix)
    # Imported here: a worker that reads files needs no SDK, and planning needs none of it.
    import boto3
    from botocore.config import Config

    from coldstream.adapters.dynamodb import DynamoCatalog
    from coldstream.adapters.s3 import S3ObjectStore

    settings = Config(
        connect_timeout=5, read_timeout=20, retries={"mode": "standard", "max_attempts": 6}
    )
    dynamodb: Any = boto3.session.Session().client(
        "dynamodb",
        region_name=place.region or None,
        endpoint_url=place.endpoint or None,
        config=settings,
    )
    return Remote(
        S3ObjectStore(bucket=place.bucket, region=place.region, endpoint=place.endpoint),
        DynamoCatalog(client=dynamodb, table=place.table, prefix=place.prefix),
        place.prefix,
    )
