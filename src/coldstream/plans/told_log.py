"""What an agent has said of its log to the function that performs its claim.

The claim is decided where the manifest can be read and checked; the log is beside the broker. So
the function asks: a look into the log that the agent has not answered yet ends the attempt with the
question, and the next attempt brings the answer. No more of the log travels than the decision
needs: two chunks where the histories agree, some more where they diverge.

An answer stays true while the claim is made: committed chunks of one history never change. Local
retention may take some away; where it has moved the beginning of the log, the agent says all anew.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

from coldstream.errors import InvalidInputError
from coldstream.names import MAX_EPOCH, MAX_OFFSET
from coldstream.plans.claim import LocalChunk

#: Questions of one claim: a divergence anywhere in a petabyte needs about a hundred.
MAX_QUESTIONS = 1000
#: Chunks in all answers together.
MAX_CHUNKS = 1_000_000


class Subject(StrEnum):
    """What a question is about."""

    NEAR = "near"  # the last chunk that begins below `first`, and the last one of the log
    BETWEEN = "between"  # the chunks that overlap [first, next_offset)
    ALONE = "alone"  # no member has an older log than one from `first` on; manifest: `next_offset`


@dataclass(frozen=True, slots=True)
class Question:
    """What the function wants to know of a log. Offsets are half-open."""

    subject: Subject
    first: int
    next_offset: int = 0

    def to_json(self) -> list[Any]:
        """As JSON holds it."""
        return [self.subject.value, self.first, self.next_offset]

    @classmethod
    def from_json(cls, row: Any) -> Question:
        """The inverse.

        Raises:
            InvalidInputError: it is none.
        """
        if not isinstance(row, list) or len(row) != 3:
            raise InvalidInputError("a question of three parts is wanted")
        subjects = {each.value: each for each in Subject}
        if not isinstance(row[0], str) or row[0] not in subjects:
            raise InvalidInputError(f"an unknown question: {str(row[0])[:40]!r}")
        first, next_offset = (checked(each, "an offset", MAX_OFFSET) for each in row[1:])
        return cls(subjects[row[0]], first, next_offset)


class UnansweredError(Exception):
    """The agent has not said this yet; no error of anybody's."""

    def __init__(self, question: Question) -> None:
        super().__init__(str(question))
        self.question = question


@dataclass(frozen=True, slots=True)
class ToldLog:
    """All that an agent has said of one log; a `plans.claim.LocalHistory`.

    Attributes:
        first: where the log begins; None if it has no chunk.
        answers: chunks by question; of an ALONE there are none, it only stands for a yes.
    """

    first: int | None = None
    answers: Mapping[Question, tuple[LocalChunk, ...]] = field(default_factory=dict)

    def chunks_near(self, offset: int) -> Sequence[LocalChunk]:
        """As the protocol says.

        Raises:
            UnansweredError: the agent has not said it.
        """
        return self._answer(Question(Subject.NEAR, offset))

    def chunks_between(self, first: int, next_offset: int) -> Sequence[LocalChunk]:
        """As the protocol says; raises as `chunks_near`."""
        return self._answer(Question(Subject.BETWEEN, first, next_offset))

    def first_offset(self) -> int | None:
        """As the protocol says."""
        return self.first

    def check_alone(self, begin: int, end: int) -> None:
        """Return if the agent has said that no member has an older log; raises as `chunks_near`."""
        self._answer(Question(Subject.ALONE, begin, end))

    def _answer(self, question: Question) -> tuple[LocalChunk, ...]:
        found = self.answers.get(question)
        if found is None:
            raise UnansweredError(question)
        return found

    def with_answer(self, question: Question, chunks: Sequence[LocalChunk]) -> ToldLog:
        """This and one answer more.

        Raises:
            InvalidInputError: there are too many questions.
        """
        if len(self.answers) >= MAX_QUESTIONS:
            raise InvalidInputError(f"more than {MAX_QUESTIONS} looks into the log for one claim")
        return replace(self, answers={**self.answers, question: tuple(chunks)})

    def to_json(self) -> dict[str, Any]:
        """As JSON holds it: of chunks that join only their lengths and their epochs."""
        return {
            "first": self.first,
            "answers": [
                [question.to_json(), _runs(chunks)] for question, chunks in self.answers.items()
            ],
        }

    @classmethod
    def from_json(cls, row: Any) -> ToldLog:
        """The inverse; nothing of it is believed before it was looked at.

        Raises:
            InvalidInputError: it is none, or larger than any claim needs.
        """
        if not isinstance(row, dict) or not isinstance(row.get("answers"), list):
            raise InvalidInputError("a log is told without answers")
        if len(row["answers"]) > MAX_QUESTIONS:
            raise InvalidInputError(f"more than {MAX_QUESTIONS} answers")
        first = row.get("first")
        if first is not None:
            first = checked(first, "where the log begins", MAX_OFFSET)
        answers: dict[Question, tuple[LocalChunk, ...]] = {}
        left = MAX_CHUNKS
        for pair in row["answers"]:
            if not isinstance(pair, list) or len(pair) != 2:
                raise InvalidInputError("an answer without its question")
            chunks = _chunks(pair[1], left)
            left -= len(chunks)
            answers[Question.from_json(pair[0])] = chunks
        return cls(first, answers)


def checked(value: Any, what: str, most: int) -> int:
    """`value` if it is an integer from 0 to `most`.

    Raises:
        InvalidInputError: it is not.
    """
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= most:
        raise InvalidInputError(f"{what}: a number from 0 to {most} is wanted")
    return value


def _runs(chunks: Sequence[LocalChunk]) -> list[list[Any]]:
    """Chunks that join as [chunk id of the first, lengths in offsets, (epoch, how many) pairs]."""
    runs: list[list[Any]] = []
    end: int | None = None
    for each in chunks:
        if each.chunk_id != end:
            runs.append([each.chunk_id, [], []])
        _, lengths, epochs = runs[-1]
        lengths.append(each.next_offset - each.chunk_id)
        if epochs and epochs[-1][0] == each.epoch:
            epochs[-1][1] += 1
        else:
            epochs.append([each.epoch, 1])
        end = each.next_offset
    return runs


def _chunks(runs: Any, most: int) -> tuple[LocalChunk, ...]:
    """The inverse: chunks in offset order whose epochs never fall.

    Raises:
        InvalidInputError: they are none, or more than `most`.
    """
    if not isinstance(runs, list):
        raise InvalidInputError("an answer that is no list of chunks")
    found: list[LocalChunk] = []
    at = epoch = 0
    for run in runs:
        if not isinstance(run, list) or len(run) != 3:
            raise InvalidInputError("chunks without lengths or epochs")
        begin = checked(run[0], "a chunk id", MAX_OFFSET)
        lengths, epochs = run[1], _epochs(run[2])
        if not isinstance(lengths, list) or sum(count for _, count in epochs) != len(lengths):
            raise InvalidInputError("chunks that do not all have a length and an epoch")
        if len(found) + len(lengths) > most:
            raise InvalidInputError(f"more than {MAX_CHUNKS} chunks")
        if begin < at:
            raise InvalidInputError("chunks that overlap")
        at, number = begin, 0
        for new, count in epochs:
            if new < epoch:
                raise InvalidInputError("chunks whose epochs fall")
            epoch = new
            for length in lengths[number : number + count]:
                end = at + checked(length, "a chunk's length", MAX_OFFSET)
                if not at < end <= MAX_OFFSET:
                    raise InvalidInputError("a chunk without offsets")
                found.append(LocalChunk(at, end, epoch))
                at = end
            number += count
    return tuple(found)


def _epochs(pairs: Any) -> list[tuple[int, int]]:
    if not isinstance(pairs, list):
        raise InvalidInputError("chunks without epochs")
    found = []
    for pair in pairs:
        if not isinstance(pair, list) or len(pair) != 2:
            raise InvalidInputError("an epoch without a count")
        found.append(
            (checked(pair[0], "an epoch", MAX_EPOCH), checked(pair[1], "a count", MAX_CHUNKS))
        )
    return found
