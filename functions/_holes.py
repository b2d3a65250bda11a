"""What is said of holes that a commit has appended: offsets that neither tier has."""

from __future__ import annotations

from coldstream import deployment
from coldstream.usecases.commit_runs import CommitReport
from functions._runtime import logger


def tell_holes(report: CommitReport) -> None:
    """Log each hole with its offsets, for the person whom the alarm calls."""
    for first, next_offset in report.holes:
        logger.warning(
            "offsets were lost before they could be uploaded",
            stream=report.stream,
            first_offset=first,
            next_offset=next_offset,
        )


def hole_metrics(holes: list[tuple[int, int]]) -> dict[str, int]:
    """Metrics of holes [first, next): how many, and how many offsets."""
    return {
        deployment.METRIC_HOLES_COMMITTED: len(holes),
        deployment.METRIC_OFFSETS_GIVEN_UP: sum(end - first for first, end in holes),
    }
