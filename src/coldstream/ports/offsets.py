"""Offsets that consumers have stored, where no broker keeps them."""

from __future__ import annotations

from typing import Protocol

from coldstream.errors import InvalidInputError

#: References that a stream may have, and characters of each.
MAX_REFERENCES, MAX_REFERENCE = 255, 255
_MAX_OFFSET = 2**64 - 1


def check_reference(reference: str, offset: int = 0) -> None:
    """See that a reference, and an offset, are such as a consumer can have.

    Raises:
        InvalidInputError: they are not.
    """
    if not 0 < len(reference) <= MAX_REFERENCE or not reference.isprintable():
        raise InvalidInputError(f"a reference has 1 to {MAX_REFERENCE} printable characters")
    if not 0 <= offset <= _MAX_OFFSET:
        raise InvalidInputError(f"no message has the offset {offset}")


class ConsumerOffsets(Protocol):
    """The offset of each consumer of each stream, by the reference that it calls itself.

    Every method may raise UnavailableError (try again) and PermissionDeniedError.
    """

    def query(self, stream: str, reference: str) -> int | None:
        """The offset that is stored; None for none.

        Raises:
            InvalidInputError: a reference, or a stream, that none can be.
            CorruptDataError: what is stored is no offset.
        """
        ...

    def store(
        self, stream: str, reference: str, offset: int, *, seen: int | None = None, first: int = 0
    ) -> int:
        """Store an offset; give the one that is stored now.

        It never goes backwards, but from the very offset that who stores has `seen`: a consumer may
        go back on purpose, and one that has been replaced must not take its successor back.

        Args:
            stream: name of its directory.
            reference: of the consumer.
            offset: to be stored.
            seen: what this consumer has stored or read last; None if it has done neither.
            first: first offset of the stream. Where there is no room for another reference, those
                whose offsets lie below make room: what they would go on with is gone.

        Raises:
            InvalidInputError: a reference, offset or stream that none can be; or there are
                `MAX_REFERENCES` of the stream already.
            CorruptDataError: what is stored is no offset.
        """
        ...
