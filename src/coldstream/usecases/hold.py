"""Legal hold on one stream: a rule of its own among the operator's rules."""

from __future__ import annotations

import hashlib
from collections.abc import Callable

from coldstream.errors import ConflictError
from coldstream.names import MAX_NAME
from coldstream.plans.policy import PolicySet, Rule
from coldstream.ports import Policies

_PREFIX = "hold:"
_LOWEST = -(2**31)  # so that the stream's own limits stay those of its other rules
_ATTEMPTS = 8


def hold_name(stream: str) -> str:
    """Name of the rule that holds exactly this stream; names have at most 255 characters."""
    name = f"{_PREFIX}{stream}"
    if len(name) <= MAX_NAME:
        return name
    digest = hashlib.sha256(stream.encode()).hexdigest()[:16]
    return f"{name[: MAX_NAME - len(digest) - 1]}.{digest}"


def hold(policies: Policies, stream: str) -> bool:
    """Put a stream under legal hold; whether that changed anything.

    Args:
        policies: the rules.
        stream: directory name; no character of it means anything else in a pattern.

    Raises:
        InvalidInputError: there are too many rules.
        ConflictError: others changed the rules again and again.
        UnknownOutcomeError: nobody can say whether it landed; try again.
    """
    rule = Rule(hold_name(stream), priority=_LOWEST, directory=stream, hold=True)
    return _change(policies, lambda rules: (*_without(rules, rule.name), rule))


def release(policies: Policies, stream: str) -> bool:
    """Take away the hold that `hold` made, and no other; whether there was one.

    Raises:
        ConflictError: others changed the rules again and again.
        UnknownOutcomeError: nobody can say whether it landed; try again.
    """
    return _change(policies, lambda rules: _without(rules, hold_name(stream)))


def _without(rules: tuple[Rule, ...], name: str) -> tuple[Rule, ...]:
    return tuple(rule for rule in rules if rule.name != name)


def _change(policies: Policies, decide: Callable[[tuple[Rule, ...]], tuple[Rule, ...]]) -> bool:
    for _ in range(_ATTEMPTS):
        found, revision = policies.load()
        wanted = PolicySet(decide(found.rules))
        if set(wanted.rules) == set(found.rules):
            return False
        if policies.save(wanted, revision):
            return True
    raise ConflictError(f"{_ATTEMPTS} changes of the rules in a row did not land")
