"""By which epochs undos claim: none that an agent can have, nor one whose undo has been overtaken.

An undo copies under its epoch before it claims, and claims only if nobody else has meanwhile. So
what one has left behind that died can never be of use once a later one has landed. To tell the two
apart, the epochs of an undo are all in one block, and the next undo that begins takes a later one.
"""

from __future__ import annotations

#: By so much an epoch may rise between two claims. Each election counts up by one.
MAX_LEAP = 1000
#: The epoch of an undo is drawn from so many, so that nobody can upload by it beforehand.
_DRAWN = 2**20


def drawn(claimed: int, chance: int) -> int:
    """The epoch of an undo.

    Args:
        claimed: epoch of the last claim.
        chance: a random number.
    """
    return _block_after(claimed) + chance % _DRAWN


def may_undo(epoch: int, claimed: int) -> bool:
    """Whether an undo may yet claim by an epoch; else none ever does.

    Args:
        epoch: of an object.
        claimed: epoch of the last claim.
    """
    return epoch >= _block_after(claimed)


def _block_after(claimed: int) -> int:
    return -(-(claimed + MAX_LEAP + 1) // _DRAWN) * _DRAWN
