"""What every `Workflows` must do; `LostStartAnswerSuite` is for those that talk over a network."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from typing import Any

import pytest

from coldstream.errors import InvalidInputError, NotFoundError, UnknownOutcomeError
from coldstream.ports import Execution, ExecutionStatus, Workflows

WORKFLOW = "rebalance"
DOCUMENT = {"work": [{"stream": "__orders_1"}], "reason": "naïve"}


class WorkflowsFixtures:
    """What the suites need; the backend overrides `workflows`, which knows `WORKFLOW`, and `end`.

    An execution of `WORKFLOW` keeps running until `end` is called.
    """

    @pytest.fixture
    def workflows(self) -> Workflows:
        """The workflows under test."""
        raise NotImplementedError

    @pytest.fixture
    def name(self) -> str:
        """The name of an execution that no other test uses, because backends may be shared."""
        return f"{WORKFLOW}-__orders_1-{secrets.token_hex(8)}"

    @pytest.fixture
    def end(self, workflows: Workflows) -> Callable[[str], None]:
        """End the execution of a name."""
        raise NotImplementedError

    def given(self, workflows: Workflows, name: str) -> dict[str, Any]:
        """The input of an execution."""
        raise NotImplementedError


class WorkflowsSuite(WorkflowsFixtures):
    """The rules of the port, one test a rule."""

    def test_a_start_runs_with_its_input(self, workflows: Workflows, name: str) -> None:
        assert workflows.start(WORKFLOW, name, DOCUMENT)

        assert workflows.describe(WORKFLOW, name) == Execution(ExecutionStatus.RUNNING)
        assert DOCUMENT.items() <= self.given(workflows, name).items()

    @pytest.mark.parametrize("document", [DOCUMENT, {"work": []}])
    def test_a_second_start_of_a_name_is_refused_whatever_its_input(
        self, workflows: Workflows, name: str, document: dict[str, Any]
    ) -> None:
        workflows.start(WORKFLOW, name, DOCUMENT)

        assert not workflows.start(WORKFLOW, name, document)
        assert DOCUMENT.items() <= self.given(workflows, name).items()

    def test_a_second_start_of_a_name_is_refused_after_the_first_has_ended(
        self, workflows: Workflows, name: str, end: Callable[[str], None]
    ) -> None:
        workflows.start(WORKFLOW, name, DOCUMENT)
        end(name)

        assert not workflows.start(WORKFLOW, name, DOCUMENT)

    def test_an_execution_that_was_stopped_says_so(
        self, workflows: Workflows, name: str, end: Callable[[str], None]
    ) -> None:
        workflows.start(WORKFLOW, name, DOCUMENT)
        end(name)

        found = workflows.describe(WORKFLOW, name)

        assert (found.status, found.output) == (ExecutionStatus.ABORTED, None)

    def test_what_was_never_started_is_not_found(self, workflows: Workflows, name: str) -> None:
        with pytest.raises(NotFoundError):
            workflows.describe(WORKFLOW, name)

    def test_a_workflow_that_does_not_exist_is_not_found(
        self, workflows: Workflows, name: str
    ) -> None:
        with pytest.raises(NotFoundError):
            workflows.start("nonsense", name, DOCUMENT)

    @pytest.mark.parametrize("hostile", ["", "a b", "a/b", "a:b", "x" * 81, "naïve", "a\n"])
    def test_a_name_that_no_execution_can_have_is_refused(
        self, workflows: Workflows, hostile: str
    ) -> None:
        with pytest.raises(InvalidInputError):
            workflows.start(WORKFLOW, hostile, DOCUMENT)
        with pytest.raises(InvalidInputError):
            workflows.describe(WORKFLOW, hostile)

    @pytest.mark.parametrize(
        "document", [{"work": "x" * 262_144}, {"work": object()}, {"work": float("nan")}]
    )
    def test_an_input_that_no_execution_can_have_is_refused_and_starts_nothing(
        self, workflows: Workflows, name: str, document: dict[str, Any]
    ) -> None:
        with pytest.raises(InvalidInputError):
            workflows.start(WORKFLOW, name, document)
        with pytest.raises(NotFoundError):
            workflows.describe(WORKFLOW, name)


class LostStartAnswerSuite(WorkflowsFixtures):
    """What a start must say when the network loses requests or answers."""

    @pytest.fixture
    def lose_start_answer(self, workflows: Workflows) -> Callable[..., None]:
        """`lose_start_answer(between=...)`: the next start happens, its answer never comes."""
        raise NotImplementedError

    @pytest.fixture
    def lose_start_requests(self, workflows: Workflows) -> Callable[[int], None]:
        """Lose the next so many starts before the service sees them."""
        raise NotImplementedError

    def test_a_start_that_lost_its_answer_counts_once(
        self, workflows: Workflows, name: str, lose_start_answer: Callable[..., None]
    ) -> None:
        lose_start_answer()

        assert workflows.start(WORKFLOW, name, DOCUMENT)
        assert not workflows.start(WORKFLOW, name, DOCUMENT)

    def test_a_start_that_lost_its_answer_and_has_ended_since_counts(
        self,
        workflows: Workflows,
        name: str,
        lose_start_answer: Callable[..., None],
        end: Callable[[str], None],
    ) -> None:
        lose_start_answer(between=lambda: end(name))

        assert workflows.start(WORKFLOW, name, DOCUMENT)

    def test_a_lost_answer_to_a_refused_start_is_still_a_refusal(
        self, workflows: Workflows, name: str, lose_start_answer: Callable[..., None]
    ) -> None:
        workflows.start(WORKFLOW, name, DOCUMENT)
        lose_start_answer()

        assert not workflows.start(WORKFLOW, name, DOCUMENT)

    def test_a_start_whose_request_was_lost_is_sent_again(
        self, workflows: Workflows, name: str, lose_start_requests: Callable[[int], None]
    ) -> None:
        lose_start_requests(1)

        assert workflows.start(WORKFLOW, name, DOCUMENT)

    def test_a_start_that_never_gets_through_is_unknown(
        self, workflows: Workflows, name: str, lose_start_requests: Callable[[int], None]
    ) -> None:
        lose_start_requests(1000)

        with pytest.raises(UnknownOutcomeError):
            workflows.start(WORKFLOW, name, DOCUMENT)
