"""Rules: what they match, which one wins, and how they are written down."""

from __future__ import annotations

import json
import re
import warnings
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coldstream.errors import InvalidInputError
from coldstream.manifest.catalog import QueueName
from coldstream.plans.name_pattern import compiled, problem
from coldstream.plans.policy import MAX_RULES, Effective, PolicySet, Rule, effective
from coldstream.plans.policy_document import age, parse_age, parse_policies, policy_document
from tests.support.examples import examples
from tests.support.lines import lines_of

STREAM = "__orders_1745252105682952932"
NAME = QueueName("prod@eu", "/", "orders")
DAY = 86_400_000


def among(*rules: Rule, stream: str = STREAM, name: QueueName = NAME) -> Effective:
    return effective(PolicySet(rules), stream, name)


def test_without_rules_everything_is_kept_and_consolidated() -> None:
    assert among() == Effective(None, None, True, False, "", ())


def test_the_rule_of_the_highest_priority_wins_as_a_whole() -> None:
    low = Rule("low", priority=1, max_age_ms=DAY, max_bytes=1000)
    high = Rule("high", priority=2, max_bytes=5000)

    for rules in ((low, high), (high, low)):
        found = among(*rules)
        assert (found.max_age_ms, found.max_bytes, found.retention_rule) == (None, 5000, "high")


def test_a_rule_of_high_priority_without_limits_keeps_its_streams_for_ever() -> None:
    found = among(Rule("default", max_age_ms=DAY), Rule("keep", priority=1, queue="orders"))

    assert (found.max_age_ms, found.retention_rule) == (None, "keep")


def test_of_equal_priorities_the_first_name_wins_whatever_the_order() -> None:
    a, b = Rule("a", max_age_ms=DAY), Rule("b", max_age_ms=2 * DAY)

    assert among(a, b).retention_rule == among(b, a).retention_rule == "a"


def test_any_matching_rule_holds_whatever_its_priority() -> None:
    found = among(
        Rule("case-2", priority=-5, hold=True),
        Rule("default", priority=9, max_age_ms=DAY),
        Rule("case-1", queue="orders", hold=True),
        Rule("case-3", queue="other", hold=True),
    )

    assert (found.hold, found.hold_rules) == (True, ("case-1", "case-2"))
    assert found.retention_rule == "default"


def test_the_first_matching_rule_that_says_something_decides_on_consolidation() -> None:
    silent = Rule("silent", priority=9)
    off, on = (
        Rule("off", priority=5, consolidate=False),
        Rule("on", priority=1, consolidate=True),
    )

    assert not among(silent, on, off).consolidate
    assert among(silent, on).consolidate
    assert among(silent).consolidate


@pytest.mark.parametrize(
    ("fields", "matches"),
    [
        ({"queue": "orders"}, True),
        ({"queue": "order"}, False),
        ({"queue": "rders"}, False),
        ({"queue": "order|orders"}, True),
        ({"queue": "ord.*", "vhost": "/", "cluster": "prod@.*"}, True),
        ({"queue": "ord.*", "vhost": "staging"}, False),
        ({"directory": "__orders_[0-9]+"}, True),
        ({"directory": "orders"}, False),
        ({"queue": "ORDERS"}, False),
        ({"queue": "orders\\n?"}, True),
    ],
)
def test_a_pattern_must_match_the_whole_name(fields: dict[str, str], matches: bool) -> None:
    assert Rule("r", **fields).matches(STREAM, NAME) is matches


def test_a_stream_of_unknown_name_matches_only_rules_that_do_not_ask_for_it() -> None:
    unknown = QueueName()

    assert Rule("r").matches(STREAM, unknown)
    assert Rule("r", directory="__orders.*").matches(STREAM, unknown)
    for field in ("cluster", "vhost", "queue"):
        assert not Rule("r", **{field: ".*"}).matches(STREAM, unknown)


def test_a_name_that_is_longer_than_names_can_be_is_refused_and_not_matched() -> None:
    with pytest.raises(InvalidInputError):
        among(Rule("r", queue=".*"), name=QueueName("c", "/", "x" * 256))


@pytest.mark.parametrize(
    ("pattern", "word"),
    [
        ("(", r"missing \)"),
        ("a" * 257, "257 characters"),
        (r"(a)\1", "invalid escape"),
        ("(?=a)a", "perl operator"),
        ("a{1001}", "repetition size"),
        ("((a{99}){99}){99}", "repetition size"),
        (r"audit\Z", "invalid escape"),
        ("\ud800", "surrogate"),
    ],
)
def test_a_pattern_that_is_none_is_refused(pattern: str, word: str) -> None:
    with pytest.raises(InvalidInputError, match=rf"'case'.*'vhost'.*{word}"):
        Rule("case", vhost=pattern)


@pytest.mark.parametrize(
    ("pattern", "instead"),
    [
        (r"audit-\d+", "write [0-9]"),
        (r"[\w-]+", "write [A-Za-z0-9_]"),
        (r"a\sb", "write a space"),
        (r"\D+", "write the characters"),
        (r"\baudit", "write the characters"),
        ("a{,3}", "write {0,3}"),
        ("[[:alpha:]]+", "write the characters"),
    ],
)
def test_a_pattern_that_meant_other_names_before_is_refused_and_never_matched(
    pattern: str, instead: str
) -> None:
    """Retention deletes by these: an old rule that silently meant less would lift a hold."""
    with pytest.raises(InvalidInputError, match=re.escape(instead)):
        Rule("case", queue=pattern)


@pytest.mark.parametrize(
    "pattern",
    [
        "", ".*", "(eu|us)-.*", r"audit-[0-9]+(\.dlq)?", "(?:ab)+", r"\(\*\+\?\{1\}", "[(|)*+?{}]+",
        "[]a]+", "[^]a]+", "a|b|c|d|e", "a{2,5}", "naïve.*", "(eu|us|ap)-.*-.*-(in|out)-.*",
        "orders[:/].*", r"\\d", "(eu|us)+",
        "|".join("abcdefghijklmnopqrstuvwxyz") + "|.*a.*b.*c",
        "(a|b|c|d|e|f|g|h|i|j|k|l|m|n|o|p).*",
    ],
)  # fmt: skip
def test_an_ordinary_pattern_is_taken(pattern: str) -> None:
    assert problem(pattern) is None


@pytest.mark.parametrize(
    "pattern",
    [
        "(a+)+b",
        "(a|aa)+b",
        ".*.*.*.*.*.*.*.*b",
        "(a|aa)" * 40 + "b",
        "(?:|[ab])" * 28 + "[xy]",
        "(((a*)*)*)*b",
    ],
)
@pytest.mark.timeout(120)  # Python's own `re` would need years
def test_no_pattern_takes_for_ever(pattern: str) -> None:
    assert problem(pattern) is None
    assert not compiled(pattern).fullmatch("a" * 255)


_PARTS = st.sampled_from(
    ["a", "b", "é", "-", ".", ",", ":", "]", "[", "^", "$", "|", "(", ")", "(?:", "*", "+", "?",
     "{", "}", "{2}", "{1,}", "{,2}", "{1,2}", "[ab]", "[^a]", "[a-c]", "[[:alpha:]]", "\\", r"\.",
     r"\d", r"\w", r"\b", r"\-", r"\A", r"\x61", r"\101", "1", "&&", "--"]
)  # fmt: skip


@examples(15)
@given(
    pattern=st.lists(_PARTS, max_size=7).map("".join),
    names=st.lists(st.text("abé-.,:]^$|1{}2&", max_size=5), min_size=8, max_size=8),
)
def test_a_pattern_means_what_it_meant_to_python_or_is_refused(
    pattern: str, names: list[str]
) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            before = re.compile(pattern)
        except re.error:
            return
    if problem(pattern) is not None:
        return
    for name in names:
        assert bool(compiled(pattern).fullmatch(name)) == bool(before.fullmatch(name)), name


@pytest.mark.parametrize("field", ["cluster", "vhost", "queue", "directory"])
def test_a_rule_that_no_document_could_hold_is_refused_before_it_is_written(field: str) -> None:
    text = f'{{"rules": [{{"name": "x", "{field}": "\\ud800"}}]}}'

    with pytest.raises(InvalidInputError, match=rf"'x'.*'{field}'.*surrogate"):
        parse_policies(text)


def test_a_field_that_is_there_twice_is_found_at_once_among_tens_of_thousands() -> None:
    fields = ",".join(f'"{number:x}":0' for number in range(27_000))

    def parse() -> None:
        with pytest.raises(InvalidInputError, match=r"'6977'.*is there twice"):
            parse_policies(f'{{"rules":[{{{fields},"6977":0}}]}}')

    assert lines_of(parse)[1] < 20 * 27_000


# The document.

DOCUMENT = """{"rules": [
  {"name": "default", "max-age": "30D"},
  {"name": "audit", "priority": 10, "cluster": "prod@eu", "vhost": "/", "queue": "audit-.*",
   "directory": "__.*", "max-age": "1Y", "max-length-bytes": 1000, "consolidate": false},
  {"name": "case-17", "queue": "naïve", "hold": true}
]}"""


def test_a_document_says_rules_in_the_words_of_rabbitmq() -> None:
    assert parse_policies(DOCUMENT) == PolicySet(
        (
            Rule("default", max_age_ms=30 * DAY),
            Rule(
                "audit", 10, "prod@eu", "/", "audit-.*", "__.*",
                max_age_ms=365 * DAY, max_bytes=1000, consolidate=False,
            ),
            Rule("case-17", queue="naïve", hold=True),
        )
    )  # fmt: skip


def test_what_is_written_is_read_back() -> None:
    rules = parse_policies(DOCUMENT)

    assert parse_policies(policy_document(rules)) == rules
    assert parse_policies(policy_document(PolicySet())) == PolicySet()
    assert "naïve" in policy_document(rules)


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        ("7D", 7 * DAY), ("12h", DAY // 2), ("30m", 1_800_000), ("90s", 90_000),
        ("1M", 30 * DAY), ("1Y", 365 * DAY), ("7d", 7 * DAY),
    ],
)  # fmt: skip
def test_an_age_is_what_rabbitmq_takes_it_for(text: str, ms: int) -> None:
    assert parse_age(text) == ms
    assert parse_age(age(ms)) == ms


@pytest.mark.parametrize(
    "text", ["", "7", "D", "7H", "7S", "7y", "-7D", "+7D", "7.5D", "7D1h", "٧D", "٧", "7W"]
)
def test_anything_else_is_no_age(text: str) -> None:
    with pytest.raises(InvalidInputError):
        parse_age(text)


def rule(**fields: Any) -> str:
    return json.dumps({"rules": [{"name": "case", **fields}]})


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (rule(colour="red"), ("'case'", "'colour'")),
        (rule(queue="("), ("'case'", "'queue'")),
        (rule(queue=7), ("'case'", "'queue'")),
        (rule(priority="7"), ("'case'", "'priority'")),
        (rule(priority=True), ("'case'", "'priority'")),
        (rule(priority=2**31), ("'case'", "'priority'")),
        (rule(priority=1.0), ("'case'", "'priority'")),
        (rule(hold=1), ("'case'", "'hold'")),
        (rule(hold=None), ("'case'", "'hold'")),
        (rule(consolidate="yes"), ("'case'", "'consolidate'")),
        (rule(**{"max-age": "-1D"}), ("'case'", "'max-age'")),
        (rule(**{"max-age": "0s"}), ("'case'", "'max-age'")),
        (rule(**{"max-age": 7}), ("'case'", "'max-age'")),
        (rule(**{"max-age": "999999999999999999Y"}), ("'case'", "'max-age'")),
        (rule(**{"max-length-bytes": -1}), ("'case'", "'max-length-bytes'")),
        (rule(**{"max-length-bytes": 0}), ("'case'", "'max-length-bytes'")),
        (rule(**{"max-length-bytes": 2**63}), ("'case'", "'max-length-bytes'")),
        ('{"rules": [{"name": "case", "hold": true, "hold": false}]}', ("'case'", "'hold'")),
        ('{"rules": [{"name": "a"}, {"name": "a"}]}', ("'a'", "'name'")),
        ('{"rules": [{"queue": "a"}]}', ("number 1", "'name'")),
        ('{"rules": [{"name": ""}]}', ("''",)),
        ('{"rules": [{"name": "a\\n"}]}', ("name",)),
        ('{"rules": [7]}', ("number 1",)),
        ('{"rules": {}}', ("list",)),
        ('{"rules": [], "more": 1}', ("nothing else",)),
        ("[]", ("nothing else",)),
        ("", ("JSON",)),
        ("{", ("JSON",)),
        ("[" * 100_000, ("JSON",)),
        (" " * 300_001, ("bytes",)),
    ],
)
def test_a_document_that_says_what_no_rule_can_is_refused_with_rule_and_field(
    text: str, words: tuple[str, ...]
) -> None:
    with pytest.raises(InvalidInputError) as caught:
        parse_policies(text)

    assert [word for word in words if word not in str(caught.value)] == []
    assert len(str(caught.value)) < 1000


def test_more_rules_than_a_cluster_can_have_are_refused() -> None:
    rules = tuple(Rule(f"r{number}") for number in range(MAX_RULES + 1))

    assert len(PolicySet(rules[:-1]).rules) == MAX_RULES
    with pytest.raises(InvalidInputError) as refused:
        PolicySet(rules)
    assert refused.value.remedy is not None
    assert "one rule speak of many streams" in refused.value.remedy


def test_rules_that_make_too_large_a_document_are_refused_when_they_are_written() -> None:
    rules = PolicySet(tuple(Rule(f"r{number}", queue="x" * 256) for number in range(MAX_RULES)))

    with pytest.raises(InvalidInputError, match="bytes"):
        policy_document(rules)


NAMED, UNNAMED = QueueName("c", "/", "orders"), QueueName()


@pytest.mark.parametrize(
    ("rule", "unsure"),
    [
        (Rule("court", queue="orders", hold=True), True),
        (Rule("court", priority=-5, vhost="/", hold=True), True),
        (Rule("court", directory="__other_1", queue="orders", hold=True), False),
        (Rule("audit", priority=10, queue="orders"), True),
        (Rule("audit", priority=-10, queue="orders"), False),
        (Rule("audit", priority=10, queue="orders", directory="__other_1"), False),
    ],
)
def test_a_stream_without_a_name_is_never_taken_for_one_that_no_rule_keeps(
    rule: Rule, unsure: bool
) -> None:
    rules = PolicySet((Rule("default", max_bytes=1), rule))

    said = effective(rules, "__orders_1", UNNAMED)

    assert said.unsure is unsure
    assert said.retains is unsure
    assert said.may_be_held is (unsure and rule.hold)
    assert not effective(rules, "__orders_1", NAMED).unsure


def test_of_a_name_only_the_part_that_is_not_known_is_unsure() -> None:
    rules = PolicySet((Rule("court", vhost="a", queue="orders", hold=True),))

    assert effective(rules, "__x_1", QueueName("", "a", "")).may_be_held
    assert not effective(rules, "__x_1", QueueName("", "b", "")).may_be_held
