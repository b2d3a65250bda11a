"""How messages list things."""

from __future__ import annotations

import pytest

from coldstream.wording import listed


@pytest.mark.parametrize(
    ("names", "said"),
    [("", ""), ("a", "a"), ("cba", "c, b, a"), ("abcd", "a, b, c and 1 more")],
)
def test_a_list_keeps_its_order_and_says_how_many_more_there_are(names: str, said: str) -> None:
    assert listed(list(names), 3) == said


def test_a_list_of_the_first_few_counts_those_that_it_does_not_have() -> None:
    assert listed(["a", "b"], 3, total=7) == "a, b and 5 more"
    assert listed(["a: x", "b: y"], 1, separator="; ") == "a: x; and 1 more"
    assert listed([], 3, total=7) == "7 of them"
