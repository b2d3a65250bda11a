"""Rules as a JSON document, in RabbitMQ's own words.

    {"rules": [
        {"name": "default", "max-age": "30D"},
        {"name": "audit", "priority": 10, "vhost": "/", "queue": "audit-.*", "max-age": "10Y",
         "max-length-bytes": 1000000000000, "consolidate": true},
        {"name": "case-17", "queue": "audit-payments", "hold": true}
    ]}

Ages are a whole number and Y, M, D, h, m or s as in RabbitMQ's `max-age`: years of 365 days, months
of 30.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Mapping
from typing import Any

from coldstream.errors import InvalidInputError
from coldstream.plans.policy import PolicySet, Rule, refusal

#: A DynamoDB item holds 400 KB with everything in it.
MAX_DOCUMENT = 300_000

_MS = {
    "Y": 365 * 86_400_000,
    "M": 30 * 86_400_000,
    "D": 86_400_000,
    "h": 3_600_000,
    "m": 60_000,
    "s": 1000,
}
_AGE = re.compile(r"([0-9]{1,18})([YMDhms])", re.ASCII)

#: Fields of a rule: the word in JSON, the attribute of `Rule`, the type in JSON.
_FIELDS: Mapping[str, tuple[str, type]] = {
    "name": ("name", str),
    "priority": ("priority", int),
    "cluster": ("cluster", str),
    "vhost": ("vhost", str),
    "queue": ("queue", str),
    "directory": ("directory", str),
    "max-age": ("max_age_ms", str),
    "max-length-bytes": ("max_bytes", int),
    "consolidate": ("consolidate", bool),
    "hold": ("hold", bool),
}
_TYPE_WORDS = {str: "a string", int: "a whole number", bool: "true or false"}


def parse_policies(text: str) -> PolicySet:
    """Read a document.

    Raises:
        InvalidInputError: it is too large, no JSON, or says what no rule can; names rule and field.
    """
    if len(text.encode(errors="surrogatepass")) > MAX_DOCUMENT:
        raise InvalidInputError(f"a document of rules has at most {MAX_DOCUMENT} bytes")
    try:
        document = json.loads(text, object_pairs_hook=_without_doubles)
    except InvalidInputError:
        raise
    except (ValueError, RecursionError) as exc:
        raise InvalidInputError(f"a document of rules that is no JSON: {exc}") from exc
    if not isinstance(document, dict) or set(document) != {"rules"}:
        raise InvalidInputError('a document of rules is {"rules": [...]} and nothing else')
    rules = document["rules"]
    if not isinstance(rules, list):
        raise InvalidInputError('"rules" is a list')
    return PolicySet(tuple(_rule(number, rule) for number, rule in enumerate(rules, 1)))


def policy_document(policies: PolicySet) -> str:
    """Write a document; `parse_policies` gives the same rules back.

    Raises:
        InvalidInputError: it would be too large.
    """
    rows = ",\n".join(
        f"  {json.dumps(_fields(rule), ensure_ascii=False)}" for rule in policies.rules
    )
    text = f'{{"rules": [\n{rows}\n]}}\n'
    if len(text.encode()) > MAX_DOCUMENT:
        raise InvalidInputError(f"a document of rules has at most {MAX_DOCUMENT} bytes")
    return text


def parse_age(text: str) -> int:
    """Milliseconds of an age such as "7D".

    Raises:
        InvalidInputError: it is none.
    """
    match = _AGE.fullmatch(text)
    if match is None:
        raise InvalidInputError(
            f'an age is a whole number and Y, M, D, h, m or s, such as "7D": {text[:80]!r}'
        )
    return int(match[1]) * _MS[match[2]]


def age(max_age_ms: int) -> str:
    """An age in the largest unit from days down that leaves no rest."""
    unit = next(each for each in "Dhms" if max_age_ms % _MS[each] == 0)
    return f"{max_age_ms // _MS[unit]}{unit}"


def _without_doubles(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object in JSON; a field that is there twice would silently lose one of its values."""
    found = dict(pairs)
    if len(found) != len(pairs):
        counts = Counter(key for key, _ in pairs)
        twice = next(key for key, count in counts.items() if count > 1)
        raise refusal(str(found.get("name", "")), twice[:80], "is there twice")
    return found


def _rule(number: int, fields: Any) -> Rule:
    if not isinstance(fields, dict):
        raise InvalidInputError(f"rule number {number} is no JSON object")
    called = fields.get("name")
    if not isinstance(called, str):
        raise refusal(f"number {number}", "name", "must be there and a string")
    arguments: dict[str, Any] = {}
    for word, value in fields.items():
        if word not in _FIELDS:
            raise refusal(called, word[:80], f"is none of {', '.join(_FIELDS)}")
        attribute, expected = _FIELDS[word]
        if type(value) is not expected:  # a bool is an int to Python, and not to an operator
            raise refusal(called, word, f"must be {_TYPE_WORDS[expected]}")
        arguments[attribute] = _age_of(called, value) if word == "max-age" else value
    return Rule(**arguments)


def _age_of(rule: str, text: Any) -> int:
    try:
        return parse_age(text)
    except InvalidInputError as exc:
        raise refusal(rule, "max-age", exc.reason) from exc


def _fields(rule: Rule) -> dict[str, Any]:
    """What the rule says, without what it leaves open."""
    default = Rule(rule.name)
    said: dict[str, Any] = {"name": rule.name}
    for word, (attribute, _) in _FIELDS.items():
        value = getattr(rule, attribute)
        if value != getattr(default, attribute):
            said[word] = age(value) if word == "max-age" else value
    return said
