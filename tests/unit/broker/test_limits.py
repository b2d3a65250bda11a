"""What a broker's arguments and policies say of local retention."""

from __future__ import annotations

import pytest

from coldstream.broker.limits import Limits, limits_of


@pytest.mark.parametrize(
    ("arguments", "policies", "found"),
    [
        ({}, [], Limits()),
        ({"x-max-length-bytes": 5000, "x-max-age": "7D"}, [], Limits(5000, 7 * 86_400_000)),
        ({"x-max-length-bytes": 5000}, [{"max-length-bytes": 70}], Limits(70, None)),
        ({"x-max-age": "1h"}, [{"max-age": "2Y"}, {"max-age": "30m"}], Limits(None, 1_800_000)),
        ({"x-max-age": "7"}, [], Limits()),
        ({"x-max-age": 7, "x-max-length-bytes": "5000"}, [], Limits()),
        ({"x-max-length-bytes": True}, [], Limits()),
        (None, [None, "rubbish", []], Limits()),
    ],
)
def test_of_arguments_and_policies_the_smaller_is_in_force(
    arguments: object, policies: list[object], found: Limits
) -> None:
    assert limits_of(arguments, *policies) == found
