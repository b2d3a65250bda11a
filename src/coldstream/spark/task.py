"""What every task of a query knows beside its split. Travels from the driver to the workers."""

from __future__ import annotations

from dataclasses import dataclass

from coldstream.errors import InvalidInputError
from coldstream.reader.gap import Gap
from coldstream.spark.options import Place, Rows
from coldstream.spark.window import MOST, Window


@dataclass(frozen=True, slots=True)
class PlannedStream:
    """One stream, as it was when the query was planned.

    Attributes:
        stream: directory name.
        root_key: of the manifest that the splits were cut from.
        epoch: of that manifest; data of a higher one has taken the place of what was planned.
        first_offset: of that manifest.
        next_offset: of that manifest.
        window: what of it is asked for.
        first_timestamp: of that manifest, ms.
        bounds: offsets that the query has without its filters; None where it has no filters.
    """

    stream: str
    root_key: str
    epoch: int
    first_offset: int
    next_offset: int
    window: Window
    first_timestamp: int = 0
    bounds: tuple[int, int] | None = None

    @property
    def alive(self) -> Window:
        """What is asked for and can be read."""
        return self.window.between(self.first_offset, self.next_offset)

    def check_offsets(self) -> None:
        """Refuse offsets that no column can hold; they would be no rows at all.

        Raises:
            InvalidInputError: some are asked for.
        """
        if self.alive.offsets.overlaps(MOST, self.next_offset):
            raise InvalidInputError(
                f"the stream reaches to offset {self.next_offset - 1}, and offsets of a table are "
                f"signed numbers: at most {MOST - 1} can be read. Option endingOffset (--to of "
                "the job materialise) leaves the others out, and `coldstream read` reads them",
                stream=self.stream,
                offset=max(self.first_offset, MOST),
            )


@dataclass(frozen=True, slots=True)
class Task:
    """The part of a query that all its tasks have in common.

    Attributes:
        place: where the streams are.
        streams: by the numbers that the parts of splits have.
        columns: names as `columns.select` takes them, or of another view of the stream.
        rows: what one row is.
        fail_on_data_loss: whether offsets that exist nowhere stop the query.
        fail_on_corrupt: whether damaged chunks stop the query.
        gaps: offsets of the first stream that were gone before the task began.
    """

    place: Place
    streams: tuple[PlannedStream, ...]
    columns: tuple[str, ...]
    rows: Rows = Rows.MESSAGES
    fail_on_data_loss: bool = True
    fail_on_corrupt: bool = False
    gaps: tuple[Gap, ...] = ()
