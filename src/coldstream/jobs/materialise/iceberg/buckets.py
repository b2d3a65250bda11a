"""Divisions of a table by a key: Iceberg's own bucket transform, so that readers prune by it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class Buckets:
    """How the files of a table with one row a key are divided, beside by stream.

    Attributes:
        column: name of the column with the key, which is text and never null.
        count: of buckets.
        source: what the key is of a message, in the words of a rule.
    """

    column: str
    count: int
    source: str = ""

    def of(self, keys: pa.Array) -> NDArray[np.int64]:
        """The bucket of each key, from 0 on: Iceberg's specification, appendix B (murmur3)."""
        # Only who has such a table waits for the import.
        from pyiceberg.transforms import BucketTransform
        from pyiceberg.types import StringType

        transform: BucketTransform[Any] = BucketTransform(self.count)
        bucket = transform.transform(StringType())
        return np.fromiter((bucket(key) for key in keys.to_pylist()), np.int64, len(keys))

    def told(self) -> str:
        """In words, for people and to compare with another table's."""
        return f"bucket[{self.count}] of {self.source}"
