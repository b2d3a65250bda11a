"""Rules as a JSON document, in RabbitMQ's own words.

    {"rules": [
        {"name": "default", "max-age": "30D"},
        {"name": "audit", "priority": 10, "vhost": "/", "queue": "audit-.*", "max-age": "10Y",
         "max-length-bytes": 1000000000000, "consolidate": true},
        {"name": "case-17", "queue": "audit-payments", "hold": true}
    ]}

Ages and sizes are written as in `coldstream.quantities`; ages so have the units of RabbitMQ. An age
has a unit, and a size may be a number of bytes.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from typing import Any

from coldstream.errors import InvalidInputError
from coldstream.plans.policy import FEWER_RULES, PolicySet, Rule, refusal
from coldstream.quantities import DURATIONS, duration_text, parse_duration, parse_size

#: A DynamoDB item holds 400 KB with everything in it.
MAX_DOCUMENT = 300_000

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
        raise InvalidInputError(
            f"a document of rules has at most {MAX_DOCUMENT} bytes", remedy=FEWER_RULES
        )
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
        raise InvalidInputError(
            f"a document of rules has at most {MAX_DOCUMENT} bytes", remedy=FEWER_RULES
        )
    return text


def parse_age(text: str) -> int:
    """Milliseconds of an age such as "7D".

    Raises:
        InvalidInputError: it is none, or has no unit: of 30 days a rule must not make 30 seconds.
    """
    if text.strip().isdecimal():
        raise InvalidInputError(f"has no unit: must be {DURATIONS}, not {text[:80]!r}")
    return 1000 * parse_duration(text)


def age(max_age_ms: int) -> str:
    """An age in the largest unit from days down that leaves no rest."""
    return duration_text(max_age_ms // 1000)


_QUANTITIES = {"max-age": parse_age, "max-length-bytes": parse_size}


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
        if word in _QUANTITIES and isinstance(value, str):
            arguments[attribute] = _quantity(called, word, value)
            continue
        if type(value) is not expected:  # a bool is an int to Python, and not to an operator
            raise refusal(called, word, f"must be {_TYPE_WORDS[expected]}")
        arguments[attribute] = value
    return Rule(**arguments)


def _quantity(rule: str, word: str, text: str) -> int:
    try:
        return _QUANTITIES[word](text)
    except InvalidInputError as exc:
        raise refusal(rule, word, exc.reason) from exc


def _fields(rule: Rule) -> dict[str, Any]:
    """What the rule says, without what it leaves open."""
    default = Rule(rule.name)
    said: dict[str, Any] = {"name": rule.name}
    for word, (attribute, _) in _FIELDS.items():
        value = getattr(rule, attribute)
        if value != getattr(default, attribute):
            said[word] = age(value) if word == "max-age" else value
    return said
