"""What every `Policies` must do; `LostSaveAnswerSuite` is for those that talk over a network."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from coldstream.errors import UnknownOutcomeError
from coldstream.plans.policy import PolicySet, Rule
from coldstream.ports import Policies

ONE = PolicySet((Rule("default", max_age_ms=86_400_000),))
TWO = PolicySet((*ONE.rules, Rule("case-17", queue="naïve queue", hold=True, priority=-3)))
THREE = PolicySet((Rule("other", max_bytes=2**63 - 1, consolidate=False),))


class PoliciesFixtures:
    """What the suites need; the backend overrides `policies`, without any rules at first."""

    @pytest.fixture
    def policies(self) -> Policies:
        """The rules under test."""
        raise NotImplementedError


class PoliciesSuite(PoliciesFixtures):
    """The rules of the port, one test a rule."""

    def test_where_nobody_has_written_there_are_no_rules(self, policies: Policies) -> None:
        assert policies.load() == (PolicySet(), 0)

    def test_what_is_saved_is_loaded_with_the_next_revision(self, policies: Policies) -> None:
        for revision, document in enumerate((ONE, TWO, PolicySet(), THREE)):
            assert policies.save(document, revision)
            assert policies.load() == (document, revision + 1)

    @pytest.mark.parametrize("read", [0, 1, 3])
    def test_a_save_over_another_revision_is_refused_and_changes_nothing(
        self, policies: Policies, read: int
    ) -> None:
        policies.save(ONE, 0)
        policies.save(TWO, 1)

        assert not policies.save(THREE, read)
        assert policies.load() == (TWO, 2)

    def test_the_first_save_may_not_skip_a_revision(self, policies: Policies) -> None:
        assert not policies.save(ONE, 1)
        assert policies.load() == (PolicySet(), 0)

    def test_the_same_save_again_counts_once(self, policies: Policies) -> None:
        assert policies.save(ONE, 0)

        assert policies.save(ONE, 0)
        assert policies.load() == (ONE, 1)


class PoliciesRaceSuite(PoliciesFixtures):
    """What holds under many threads; not for backends that are not safe for them (moto)."""

    def test_of_many_saves_over_one_revision_exactly_one_is_in_force(
        self, policies: Policies
    ) -> None:
        documents = [PolicySet((Rule(f"rule-{number}"),)) for number in range(8)]

        with ThreadPoolExecutor(8) as pool:
            saved = list(pool.map(lambda document: policies.save(document, 0), documents))

        assert policies.load() == (documents[saved.index(True)], 1)
        assert saved.count(True) == 1


class LostSaveAnswerSuite(PoliciesFixtures):
    """What a save must say when the network loses requests or answers."""

    @pytest.fixture
    def lose_save_answer(self, policies: Policies) -> Callable[..., None]:
        """`lose_save_answer(between=...)`: the next save is performed, its answer never comes."""
        raise NotImplementedError

    @pytest.fixture
    def repeat_save(self, policies: Policies) -> Callable[..., None]:
        """`repeat_save(between=...)`: the SDK sends the next save twice."""
        raise NotImplementedError

    @pytest.fixture
    def lose_save_request(self, policies: Policies) -> Callable[[], None]:
        """The next save never reaches the service."""
        raise NotImplementedError

    def test_a_save_that_landed_but_lost_its_answer_is_in_force(
        self, policies: Policies, lose_save_answer: Callable[..., None]
    ) -> None:
        lose_save_answer()

        assert policies.save(ONE, 0)
        assert policies.load() == (ONE, 1)

    def test_a_save_that_the_sdk_sent_twice_is_in_force_once(
        self, policies: Policies, repeat_save: Callable[..., None]
    ) -> None:
        policies.save(ONE, 0)
        repeat_save()

        assert policies.save(TWO, 1)
        assert policies.load() == (TWO, 2)

    @pytest.mark.parametrize("fault", ["lost answer", "repeated"])
    def test_a_save_that_was_replaced_at_once_is_not_in_force_and_not_repeated(
        self,
        policies: Policies,
        lose_save_answer: Callable[..., None],
        repeat_save: Callable[..., None],
        fault: str,
    ) -> None:
        disturb = lose_save_answer if fault == "lost answer" else repeat_save
        disturb(between=lambda: policies.save(TWO, 1))

        assert not policies.save(ONE, 0)
        assert policies.load() == (TWO, 2)

    def test_rules_as_they_were_after_a_lost_request_prove_nothing(
        self, policies: Policies, lose_save_request: Callable[[], None]
    ) -> None:
        lose_save_request()

        with pytest.raises(UnknownOutcomeError):
            policies.save(ONE, 0)
