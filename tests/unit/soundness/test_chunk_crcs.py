"""The CRCs of many chunks are the same by the kernel and by zlib, wherever one is wrong."""

from __future__ import annotations

import random
import zlib

import numpy as np
import pytest
from numpy.typing import NDArray

from coldstream.osiris.chunk import CHUNK_HEADER_SIZE
from coldstream.osiris.headers import CHUNK_DTYPE
from coldstream.soundness import crcs
from coldstream.soundness.crcs import Crcs, check_crcs
from coldstream.soundness.entries import _walk_by_numpy

SIZES = (0, 1, 15, 16, 17, 63, 64, 255, 256, 257, 1000, 32_767, 32_768, 100_003)


@pytest.fixture(params=["kernel", "zlib"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "zlib":
        monkeypatch.setattr(crcs, "_kernel", None)
    elif crcs._kernel is None:
        pytest.skip("no kernel that can, here")


def chunks(rng: random.Random) -> tuple[bytearray, NDArray[np.void], NDArray[np.int64]]:
    """Bytes, headers and positions of some chunks with filters and trailers."""
    data, positions, rows = bytearray(), [0], []
    for _ in range(rng.randrange(1, 8)):
        bloom, size, trailer = rng.choice((0, 16, 255)), rng.choice(SIZES), rng.choice((0, 40))
        begin = len(data) + CHUNK_HEADER_SIZE + bloom
        data += rng.randbytes(CHUNK_HEADER_SIZE + bloom + size + trailer)
        positions.append(len(data))
        rows.append((bloom, size, zlib.crc32(data[begin : begin + size])))
    headers = np.zeros(len(rows), CHUNK_DTYPE)
    for name, values in zip(
        ("bloom_size", "data_size", "crc"), zip(*rows, strict=True), strict=True
    ):
        headers[name] = values
    return data, headers, np.array(positions, np.int64)


@pytest.mark.parametrize("seed", range(40))
@pytest.mark.usefixtures("way")
def test_sound_chunks_hold_and_the_crc_over_all_of_them_is_that_of_their_bytes(seed: int) -> None:
    data, headers, positions = chunks(random.Random(seed))

    assert check_crcs(memoryview(data), headers, positions) == Crcs(len(headers), zlib.crc32(data))


@pytest.mark.parametrize("seed", range(40))
@pytest.mark.usefixtures("way")
def test_the_first_chunk_with_a_flipped_bit_is_found(seed: int) -> None:
    rng = random.Random(seed)
    data, headers, positions = chunks(rng)
    filled = np.flatnonzero(headers["data_size"]).tolist()
    if not filled:
        return
    hit = rng.choice(filled)
    begin = int(positions[hit]) + CHUNK_HEADER_SIZE + int(headers["bloom_size"][hit])
    data[begin + rng.randrange(int(headers["data_size"][hit]))] ^= 1 << rng.randrange(8)

    assert check_crcs(memoryview(data), headers, positions).good == hit


@pytest.mark.parametrize("missing", [1, 39, 41, 1000])
@pytest.mark.usefixtures("way")
def test_a_chunk_that_was_cut_off_is_not_sound_and_nothing_behind_it_is_read(missing: int) -> None:
    data, headers, positions = chunks(random.Random(6))
    headers, positions = headers[-1:], positions[-2:] - positions[-2]
    headers["bloom_size"], headers["data_size"] = 0, positions[1] - CHUNK_HEADER_SIZE
    headers["crc"] = zlib.crc32(data[-int(positions[1]) :][CHUNK_HEADER_SIZE:])
    whole = memoryview(bytes(data[-int(positions[1]) :]))

    assert check_crcs(whole, headers, positions) == Crcs(1, zlib.crc32(whole))
    assert check_crcs(whole[:-missing], headers, positions).good == 0


@pytest.mark.usefixtures("way")
def test_of_no_chunks_nothing_is_wrong() -> None:
    nothing = np.zeros(0, CHUNK_DTYPE)

    assert check_crcs(memoryview(b"left"), nothing, np.zeros(1, np.int64)) == Crcs(0, 0)


@pytest.mark.parametrize("missing", [1, 39, 40])
@pytest.mark.usefixtures("way")
def test_a_chunk_whose_trailer_was_cut_off_is_not_sound(missing: int) -> None:
    entries = b"entries"
    whole = bytes(CHUNK_HEADER_SIZE) + entries + bytes(40)
    headers = np.zeros(1, CHUNK_DTYPE)
    headers["data_size"], headers["trailer_size"] = len(entries), 40
    headers["crc"] = zlib.crc32(entries)
    positions = np.array([0, len(whole)], np.int64)

    assert check_crcs(memoryview(whole), headers, positions).good == 1
    assert check_crcs(memoryview(whole)[:-missing], headers, positions).good == 0


@pytest.mark.usefixtures("way")
def test_a_header_that_claims_more_than_its_bounds_is_not_sound_and_nothing_outside_is_read() -> (
    None
):
    headers = np.zeros(1, CHUNK_DTYPE)
    headers["data_size"] = 2**31
    positions = np.array([0, 200], np.int64)

    assert check_crcs(memoryview(bytes(200)), headers, positions).good == 0


def entry(rng: random.Random, size: int) -> bytes:
    return size.to_bytes(4, "big") + rng.randbytes(size)


def sections(rng: random.Random) -> list[tuple[bytes, int]]:
    """Data of chunks and how many entries their headers say: sound, cut, too long, sub-batches."""
    found = []
    for _ in range(rng.randrange(1, 12)):
        same = rng.random() < 0.5
        entries = [entry(rng, 30 if same else rng.choice((0, 1, 30, 5000))) for _ in range(40)]
        entries = entries[: rng.randrange(1, 40)]
        data, count = b"".join(entries), len(entries)
        match rng.randrange(7):
            case 0:
                data = data[: rng.randrange(len(data))]
            case 1:
                data += rng.randbytes(rng.randrange(1, 9))
            case 2:
                count += rng.choice((-1, 1))
            case 3:
                at = len(b"".join(entries[: rng.randrange(count)]))
                data = data[:at] + bytes([data[at] | 0x80]) + data[at + 1 :]
            case 4:
                at = len(b"".join(entries[: rng.randrange(count)]))
                data = data[:at] + rng.randbytes(4) + data[at + 4 :]
        found.append((data, count))
    return found


@pytest.mark.parametrize("seed", range(60))
def test_the_kernel_says_on_its_way_of_the_same_chunks_as_the_walk_that_their_entries_fill_them(
    seed: int,
) -> None:
    if crcs._kernel is None:
        pytest.skip("no kernel that can, here")
    given = sections(random.Random(seed))
    headers = np.zeros(len(given), CHUNK_DTYPE)
    data = b""
    positions = [0]
    for number, (section, count) in enumerate(given):
        data += bytes(CHUNK_HEADER_SIZE) + section
        positions.append(len(data))
        headers["data_size"][number], headers["entries"][number] = len(section), count
        headers["crc"][number] = zlib.crc32(section)
    bounds = np.array(positions, np.int64)
    begins, counts = bounds[:-1] + CHUNK_HEADER_SIZE, headers["entries"].astype(np.int64)

    found = check_crcs(memoryview(data), headers, bounds, entries=True)

    assert found.good == len(given)
    assert found.simple is not None
    assert found.simple.tolist() == _walk_by_numpy(data, begins, bounds[1:], counts).tolist()
    assert check_crcs(memoryview(data), headers, bounds).simple is None


def test_of_chunks_behind_a_wrong_crc_nothing_is_said_of_their_entries() -> None:
    if crcs._kernel is None:
        pytest.skip("no kernel that can, here")
    one = bytes(CHUNK_HEADER_SIZE) + entry(random.Random(1), 20)
    headers = np.zeros(3, CHUNK_DTYPE)
    headers["data_size"], headers["entries"] = 24, 1
    headers["crc"] = zlib.crc32(one[CHUNK_HEADER_SIZE:])
    headers["crc"][1] ^= 1

    found = check_crcs(
        memoryview(one * 3), headers, np.arange(4, dtype=np.int64) * len(one), entries=True
    )

    assert found.good == 1
    assert found.simple is not None
    assert found.simple.tolist() == [True]
