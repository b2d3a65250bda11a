"""IAM's evaluation of policies, as far as ours go: the embedded AWS enforces none of them.

https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_policies_evaluation-logic.html: an
explicit Deny wins, then any Allow of an identity or resource policy within one account; otherwise
it is denied.
An operator or key that is not known here fails the test that needs it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

Statement = Mapping[str, Any]
Values = str | Sequence[str]


@dataclass(frozen=True)
class Call:
    """One request to AWS.

    Attributes:
        principal: ARN of the role behind it.
        action: as "s3:PutObject".
        resource: ARN.
        context: condition keys; several values for keys that have several.
    """

    principal: str
    action: str
    resource: str
    context: Mapping[str, Values] = field(default_factory=dict)


def allowed(call: Call, own: Sequence[Statement], of_resource: Sequence[Statement] = ()) -> bool:
    """Whether a call is let through by the policies of its principal and of its resource."""
    matching = [each for each in (*own, *of_resource) if _matches(each, call)]
    if any(each["Effect"] == "Deny" for each in matching):
        return False
    return any(each["Effect"] == "Allow" for each in matching)


def like(pattern: str, text: str) -> bool:
    """IAM's wildcards: "*" for anything, also nothing, "?" for one character."""
    parts = (".*" if each == "*" else "." if each == "?" else re.escape(each) for each in pattern)
    return re.fullmatch("".join(parts), text, re.DOTALL) is not None


def trusted(call: Call, policy: Sequence[Statement]) -> bool:
    """Whether a role's trust policy lets a service take it; its principal is the service's name."""
    return allowed(call, (), policy)


def _matches(statement: Statement, call: Call) -> bool:
    return (
        _is_for(statement, call.principal)
        and any(like(each.lower(), call.action.lower()) for each in _listed(statement["Action"]))
        and any(like(each, call.resource) for each in _listed(statement.get("Resource", "*")))
        and all(
            _holds(
                operator, key, _listed(wanted), call.context | {"aws:PrincipalArn": call.principal}
            )
            for operator, keys in statement.get("Condition", {}).items()
            for key, wanted in keys.items()
        )
    )


def _is_for(statement: Statement, principal: str) -> bool:
    """Whether a statement of a resource's policy is about a principal; one of a role always is."""
    named = statement.get("Principal", "*")
    if named == "*":
        return True
    return any(one == "*" or one == principal for each in named.values() for one in _listed(each))


def _holds(operator: str, key: str, wanted: Sequence[str], context: Mapping[str, Values]) -> bool:
    given = context.get(key)
    if operator == "Null":
        return (given is None) == (wanted[0] == "true")
    if operator.startswith("ForAllValues:"):
        test = _OPERATORS[operator.removeprefix("ForAllValues:")]
        return all(any(test(one, each) for one in wanted) for each in _listed(given or ()))
    if operator in _NEGATED:
        test = _OPERATORS[_NEGATED[operator]]
        return given is None or not any(test(one, _one(given)) for one in wanted)
    test = _OPERATORS[operator]
    return given is not None and any(test(one, _one(given)) for one in wanted)


_OPERATORS: Mapping[str, Callable[[str, str], bool]] = {
    "StringEquals": lambda wanted, given: wanted == given,
    "StringLike": like,
    "ArnEquals": like,
    "ArnLike": like,
    "Bool": lambda wanted, given: wanted.lower() == given.lower(),
}
_NEGATED = {"ArnNotEquals": "ArnEquals", "StringNotEquals": "StringEquals"}


def _one(given: Values) -> str:
    assert isinstance(given, str)
    return given


def _listed(value: Any) -> Sequence[str]:
    return [value] if isinstance(value, str) else list(value)
