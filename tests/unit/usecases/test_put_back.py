"""A part of what a claim has cut off, as uploads of a new claim."""

from __future__ import annotations

import pytest

from coldstream.errors import CorruptDataError
from coldstream.fragment import HEADER, FragmentIndex, parse_trailer
from coldstream.names import parse_data_key
from coldstream.usecases.commit_runs import commit_runs
from coldstream.usecases.put_back import Copies, Source
from tests.support.remote import PREFIX, STREAM, Remote, no_pause, piece

#: Of five chunks.
LOST = piece(0, 50)


def copies(remote: Remote, first: int, end: int) -> Copies:
    """Of a part of `LOST`, under a claim of epoch 3 that begins at 10."""
    remote.upload(LOST)
    commit_runs(remote.context, STREAM, pause=no_pause)
    source = Source(remote.root(), first, end)
    return Copies(remote.new_context(), remote.memory, STREAM, epoch=3, floor=10, sources=(source,))


@pytest.mark.parametrize(("first", "end"), [(10, 50), (20, 40), (40, 50)])
def test_a_part_has_the_floor_of_the_new_claim_wherever_it_begins(first: int, end: int) -> None:
    """With any other the ledger would not take it, and what was cut off would stay away."""
    remote = Remote().claimed()
    asked = copies(remote, first, end)
    before = set(remote.memory.objects)

    assert all(isinstance(each, list) for each in asked.put_all())

    (path,) = remote.memory.objects.keys() - before
    key, trailer = parse_data_key(path, PREFIX), parse_trailer(remote.memory.objects[path])
    assert (key.first_offset, key.next_offset, key.epoch) == (first, end, 3)
    assert (trailer.epoch, trailer.floor) == (3, 10)


@pytest.mark.parametrize("chunk", [1, 2, 3, 4])
def test_a_part_whose_chunk_is_damaged_is_told_also_if_it_is_the_last(chunk: int) -> None:
    remote = Remote().claimed()
    asked = copies(remote, 10, 50)
    data, path = bytearray(LOST.data), LOST.path(PREFIX)
    data[len(HEADER) + FragmentIndex(LOST.index_section, LOST.trailer)[chunk].position + 60] ^= 1
    remote.memory.objects[path] = bytes(data)

    (error,) = asked.put_all()

    assert isinstance(error, CorruptDataError)
    assert str(error).startswith(f"chunk {10 * chunk} is damaged")
    assert (error.offset, error.key) == (0, path)
