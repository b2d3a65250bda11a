"""A cache on disk answers what was asked before, and nothing else, whatever lies on the disk."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coldstream.adapters.disk_cache import CachedStore, DiskCache
from coldstream.adapters.memory import MemoryObjectStore
from coldstream.errors import CorruptDataError, InvalidInputError
from coldstream.ports import ObjectStore
from coldstream.reader import First, RemoteTier
from coldstream_devkit.suites.object_store import ObjectStoreSuite
from tests.support.tier import PREFIX, SMALL, Tier, chunk

LARGE = 2**20


class TestCachedStore(ObjectStoreSuite):
    @pytest.fixture
    def store(self, tmp_path: Path) -> Iterator[ObjectStore]:
        cache = DiskCache(tmp_path / "cache", LARGE)
        yield CachedStore(MemoryObjectStore(), cache, "bucket")
        cache.close()


@pytest.fixture
def cache(tmp_path: Path) -> Iterator[DiskCache]:
    cache = DiskCache(tmp_path / "cache", LARGE)
    yield cache
    cache.close()


def files(tmp_path: Path) -> list[Path]:
    return sorted(p for p in (tmp_path / "cache").iterdir() if p.name != ".lock")


def test_what_was_put_is_there_in_the_next_process_too(tmp_path: Path, cache: DiskCache) -> None:
    cache.put("a", b"one")
    cache.close()

    again = DiskCache(tmp_path / "cache", LARGE)

    assert again.get("a", 10) == b"one"
    assert again.held == cache.held > 3
    assert again.get("b", 10) is None
    again.close()


def test_a_directory_belongs_to_one_cache(tmp_path: Path, cache: DiskCache) -> None:
    with pytest.raises(InvalidInputError, match="another cache"):
        DiskCache(tmp_path / "cache", LARGE)


def test_a_read_that_goes_on_behind_the_end_of_its_cache_changes_nothing_there(
    tmp_path: Path, cache: DiskCache
) -> None:
    """The next cache of the directory knows only what it has found, and what it puts there."""
    cache.put("a", b"one")
    cache.close()
    other = DiskCache(tmp_path / "cache", LARGE)
    there = files(tmp_path)

    cache.put("b", b"another one")
    assert cache.get("a", 1) is None  # it is larger than that, and would be taken for damaged

    assert files(tmp_path) == there
    assert other.held == sum(path.stat().st_size for path in there)
    other.close()


def test_a_fifo_under_the_name_of_a_file_is_not_waited_for(
    tmp_path: Path, cache: DiskCache
) -> None:
    """A read hung in `open` for good: a FIFO has no end, and nobody writes into this one."""
    cache.put("a", b"one")
    (path,) = files(tmp_path)
    path.unlink()
    os.mkfifo(path)

    assert cache.get("a", 10) is None
    cache.put("a", b"one")

    assert cache.damaged == 1
    assert cache.get("a", 10) == b"one"


def test_what_somebody_else_has_put_there_is_never_removed(tmp_path: Path) -> None:
    place = tmp_path / "cache"
    place.mkdir()
    theirs = [place / "film.part", place / "a.txt", place / f"{'0' * 40}.txt"]
    for path in theirs:
        path.write_bytes(bytes(LARGE))
    left = place / f"{'0' * 40}.{'1' * 8}.part"
    left.write_bytes(b"of a process that died")

    cache = DiskCache(place, LARGE)
    cache.put("a", b"one")

    assert all(path.stat().st_size == LARGE for path in theirs)
    assert not left.exists()
    assert cache.get("a", 10) == b"one"
    cache.close()


def test_a_path_that_is_no_directory_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InvalidInputError):
        DiskCache(tmp_path / "file", LARGE)


def test_any_flipped_bit_and_any_cut_is_found_and_costs_one_fetch(
    tmp_path: Path, cache: DiskCache
) -> None:
    cache.put("name", b"some bytes")
    (path,) = files(tmp_path)
    sound = path.read_bytes()
    wrong = [sound[:n] for n in range(len(sound))] + [sound + b"x", b""]
    wrong += [sound[:n] + bytes([sound[n] ^ 4]) + sound[n + 1 :] for n in range(len(sound))]

    for data in wrong:
        path.write_bytes(data)
        assert cache.get("name", 1000) is None
        assert not path.exists()

    assert cache.damaged == len(wrong)


def test_a_file_under_the_name_of_another_is_not_taken_for_it(
    tmp_path: Path, cache: DiskCache
) -> None:
    cache.put("a", b"of a")
    cache.put("b", b"of b")
    one, other = files(tmp_path)
    one.write_bytes(other.read_bytes())

    found = {cache.get(name, 10) for name in ("a", "b")}

    assert len(found - {None}) == 1


def test_a_huge_file_is_never_read(tmp_path: Path, cache: DiskCache) -> None:
    cache.put("a", b"x")
    (path,) = files(tmp_path)
    with path.open("ab") as file:
        os.truncate(file.fileno(), 2**40)

    assert cache.get("a", 100) is None


def test_the_files_never_exceed_the_bound_and_the_latest_stay(tmp_path: Path) -> None:
    cache = DiskCache(tmp_path / "cache", 10_000)
    for n in range(50):
        cache.put(f"{n}", bytes(900))
        cache.get("0", 1000)
        assert sum(p.stat().st_size for p in files(tmp_path)) == cache.held <= 10_000

    assert cache.get("49", 1000) == bytes(900)
    assert cache.get("0", 1000) is not None, "it was used all the time"
    assert cache.get("10", 1000) is None
    cache.close()


def test_what_a_dead_process_left_half_written_is_removed(tmp_path: Path) -> None:
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache" / f"{'0' * 40}.{'1' * 8}.part").write_bytes(b"x")

    cache = DiskCache(tmp_path / "cache", LARGE)

    assert files(tmp_path) == []
    cache.close()


def test_a_disk_that_takes_nothing_is_no_error(tmp_path: Path, cache: DiskCache) -> None:
    for path in files(tmp_path):
        path.unlink()
    (tmp_path / "cache" / ".lock").unlink()
    (tmp_path / "cache").rmdir()

    cache.put("a", b"x")

    assert cache.get("a", 10) is None
    assert cache.held == 0


@given(name=st.text(max_size=50), body=st.binary(max_size=200))
def test_any_name_and_any_bytes_come_back(
    tmp_path_factory: pytest.TempPathFactory, name: str, body: bytes
) -> None:
    cache = DiskCache(tmp_path_factory.mktemp("cache"), LARGE)
    cache.put(name.encode(errors="replace").decode(), body)

    assert cache.get(name.encode(errors="replace").decode(), 200) == body
    cache.close()


class Gone:
    """A store whose fragments are not read again: it lets nodes of manifests pass."""

    def __init__(self, tier: Tier) -> None:
        self.get_all = tier.store.get_all


def read(tier: Tier, store: object, cache: DiskCache) -> list[bytes]:
    cached = CachedStore(store, cache, "b")  # type: ignore[arg-type]
    remote = RemoteTier(cached, tier.catalog, PREFIX, settings=SMALL)
    return [bytes(message.body) for message in remote.stream("s").messages(First())]


@pytest.mark.parametrize("size", [50, 900])  # fragments that are read whole, and by ranges
def test_a_second_read_fetches_nothing_but_finds_everything(cache: DiskCache, size: int) -> None:
    tier = Tier()
    tier.add_tree("s", [[chunk(n, bytes(size)) for n in range(k, k + 8)] for k in range(0, 80, 8)])

    wanted = read(tier, tier.store, cache)

    assert len(wanted) == 80
    assert read(tier, Gone(tier), cache) == wanted


@pytest.mark.parametrize("position", [100, -200, -10])  # in a chunk, the index and the trailer
@pytest.mark.parametrize("size", [50, 900])
def test_what_came_damaged_is_not_kept_for_ever(cache: DiskCache, size: int, position: int) -> None:
    """A bit flips on the way: the cache's own CRC holds, that of the chunk or index does not."""
    tier = Tier()
    root = tier.add("s", [[chunk(n, bytes(size)) for n in range(8)]])
    key = tier.key(root, "s", 0)
    tier.flip(key, position)
    with pytest.raises(CorruptDataError):
        read(tier, tier.store, cache)

    tier.flip(key, position)

    assert len(read(tier, tier.store, cache)) == 8
