"""`resolve_run` against an oracle that looks at every possible run."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from coldstream.manifest.ledger import Ledger
from coldstream.names import MAX_OFFSET, DataKey, parse_data_key
from coldstream.plans.resolve import Listed, resolve_run
from tests.support.examples import examples
from tests.support.naive_run import best_run

STREAM, PREFIX = "__orders_1", "rabbitmq/"


keys = st.builds(
    lambda first, length, epoch, uid, hole: DataKey(
        STREAM, first, first + length, epoch, uid, "hole" if hole else "fragment"
    ),
    st.integers(0, 8),
    st.integers(1, 4),
    st.integers(1, 3),
    st.integers(0, 5),
    st.integers(0, 3).map(lambda number: number == 0),
)
listings = st.lists(keys, max_size=14, unique=True).map(
    lambda found: [Listed(key, key.path(PREFIX), 100) for key in found]
)
ledgers = st.dictionaries(st.integers(1, 3), st.integers(0, 8), max_size=3).map(
    lambda claims: sorted(claims.items())
)


@examples(6)
@given(st.data(), st.integers(0, 6), ledgers, listings)
def test_a_run_is_the_one_that_an_oracle_finds_among_all(
    data: st.DataObject, at: int, claims: list[tuple[int, int]], listed: list[Listed]
) -> None:
    without = set(
        data.draw(
            st.lists(st.sampled_from([e.path for e in listed]), max_size=3)
            if listed
            else st.just([])
        )
    )
    shuffled = data.draw(st.permutations(listed))

    run = resolve_run(at, Ledger.of(claims), shuffled, without=without)

    assert run == best_run(at, claims, listed, without)


@examples(3)
@given(st.integers(0, 6), listings)
def test_with_one_epoch_the_run_reaches_as_far_as_any(at: int, listed: list[Listed]) -> None:
    everything = [
        Listed(DataKey(STREAM, k.first_offset, k.next_offset, 1, k.uid), each.path, 100)
        for each in listed
        for k in [each.data_key]
    ]
    run = resolve_run(at, Ledger.of([(1, 0)]), everything)

    reachable = {at}
    for _ in everything:
        reachable |= {
            e.data_key.next_offset for e in everything if e.data_key.first_offset in reachable
        }
    assert (run[-1].data_key.next_offset if run else at) == max(reachable)


@given(
    st.integers(0, 2**64 - 2),
    st.integers(1, 2**40),
    st.integers(0, 2**32 - 1),
    st.integers(0, 2**64 - 1),
    st.sampled_from(["fragment", "hole"]),
    st.from_regex(r"[A-Za-z0-9_=-]{1,255}", fullmatch=True),
)
def test_any_data_key_is_read_back(
    first: int, length: int, epoch: int, uid: int, kind: str, stream: str
) -> None:
    key = DataKey(
        stream, first, min(first + length, MAX_OFFSET), epoch, uid,
        "hole" if kind == "hole" else "fragment",
    )  # fmt: skip

    assert parse_data_key(key.path(PREFIX), PREFIX) == key
