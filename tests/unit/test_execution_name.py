from __future__ import annotations

import re

import pytest

from coldstream import deployment
from coldstream.errors import InvalidInputError

STREAM = "__orders_1745252105682952932"


@pytest.mark.parametrize("workflow", deployment.WORKFLOWS)
@pytest.mark.parametrize("stream", ["s", STREAM, "a=b" * 85])
def test_step_functions_takes_the_name_whatever_the_stream_is_called(
    workflow: str, stream: str
) -> None:
    name = deployment.execution_name(workflow, stream, "r" * 34)

    assert re.fullmatch(r"[A-Za-z0-9_-]{1,80}", name)


def test_a_person_sees_what_runs_on_which_stream_and_why() -> None:
    name = deployment.execution_name("delete", STREAM, "r7")

    assert re.fullmatch(r"delete-__orders_174525210568295-[0-9a-f]{8}-r7", name)
    assert name == deployment.execution_name("delete", STREAM, "r7")


def test_streams_that_begin_alike_have_executions_of_their_own() -> None:
    both = {deployment.execution_name("collect", f"{'x' * 30}{i}", "a") for i in range(2)}

    assert len(both) == 2


@pytest.mark.parametrize(
    ("workflow", "stream", "reason"),
    [
        ("verify", "s", "a"),
        ("delete", "a/b", "a"),
        ("delete", "s", ""),
        ("delete", "s", "a b"),
        ("delete", "s", "r" * 35),
    ],
)
def test_what_cannot_be_in_a_name_is_refused(workflow: str, stream: str, reason: str) -> None:
    with pytest.raises(InvalidInputError):
        deployment.execution_name(workflow, stream, reason)
