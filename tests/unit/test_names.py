from __future__ import annotations

from typing import Any

import pytest

from coldstream import names
from coldstream.errors import InvalidInputError
from coldstream.manifest.entries import EntryKind
from coldstream.names import (
    MAX_PREFIX,
    DataKey,
    GroupKey,
    MarkKey,
    QuarantineKey,
    RootKey,
    check_prefix,
    check_stream,
    parse_data_key,
    parse_metadata_key,
)

GOOD = (
    "rabbitmq/stream/__orders_1745252105682952932/data/"
    "00000000000000000100-00000000000000000200.0000000003.00000000000000ff.fragment"
)
KEY = DataKey("__orders_1745252105682952932", 100, 200, 3, 255)


def test_a_key_says_all_that_run_resolution_needs() -> None:
    assert parse_data_key(GOOD, "rabbitmq/") == KEY
    assert KEY.path("rabbitmq/") == GOOD


@pytest.mark.parametrize("prefix", ["rabbitmq/", "a/b/c/", "stream/", "stream/x/data/", "e=1/"])
@pytest.mark.parametrize("kind", ["fragment", "hole"])
def test_a_key_is_read_back_below_any_prefix(prefix: str, kind: Any) -> None:
    key = DataKey("__s=-_1", 0, 2**64 - 1, 2**32 - 1, 2**64 - 1, kind)

    assert parse_data_key(key.path(prefix), prefix) == key


@pytest.mark.parametrize(
    "hostile",
    [
        "",
        "/",
        GOOD.upper(),
        GOOD + "\n",
        "\n" + GOOD,
        " " + GOOD,
        "/" + GOOD,
        "other/" + GOOD,
        GOOD.removeprefix("rabbitmq/"),
        GOOD.replace("rabbitmq/", "rabbitmq2/"),
        GOOD.replace("/data/", "/data//"),
        GOOD.replace("/data/", "/metadata/"),
        GOOD.replace("__orders", "../orders"),
        GOOD.replace("__orders", "__orders/x"),
        GOOD.replace("__orders", "__örders"),
        GOOD.replace("__orders", "__orders%2F"),
        GOOD.replace("__orders_1745252105682952932", ""),
        GOOD.replace("__orders_1745252105682952932", "x" * 256),
        GOOD.replace(".fragment", ".group"),
        GOOD.replace(".fragment", ".fragment.bak"),
        GOOD.replace(".fragment", ".FRAGMENT"),
        GOOD.replace("00ff.", "00FF."),
        GOOD.replace("00ff.", "0ff."),
        GOOD.replace("0000000003", "3"),
        GOOD.replace("0000000003", "+000000003"),
        GOOD.replace("0000000003", "00000000030"),
        GOOD.replace("00000000000000000100", "100"),
        GOOD.replace("00000000000000000100", "000000000000000001_0"),
        GOOD.replace("00000000000000000100", "0000000000000000010٣"),
        GOOD.replace("00000000000000000100", "-0000000000000000100"),
    ],
)
def test_a_key_that_breaks_the_grammar_is_refused(hostile: str) -> None:
    with pytest.raises(InvalidInputError):
        parse_data_key(hostile, "rabbitmq/")


@pytest.mark.parametrize(
    ("first", "next_offset"),
    [
        ("00000000000000000200", "00000000000000000100"),
        ("00000000000000000100", "00000000000000000100"),
        ("00000000000000000000", "18446744073709551616"),
        ("99999999999999999998", "99999999999999999999"),
    ],
)
def test_a_key_whose_offsets_are_no_range_is_refused_and_named(
    first: str, next_offset: str
) -> None:
    key = GOOD.replace("00000000000000000100-00000000000000000200", f"{first}-{next_offset}")

    with pytest.raises(InvalidInputError) as caught:
        parse_data_key(key, "rabbitmq/")

    assert key in str(caught.value)


def test_an_epoch_beyond_32_bits_is_refused() -> None:
    with pytest.raises(InvalidInputError):
        parse_data_key(GOOD.replace("0000000003", "4294967296"), "rabbitmq/")


def test_a_huge_key_is_refused_with_a_short_message() -> None:
    with pytest.raises(InvalidInputError) as caught:
        parse_data_key("x" * 100_000, "rabbitmq/")

    assert len(str(caught.value)) < 600


@pytest.mark.parametrize(
    "hostile", ["", "a/b", "..", ".", "a b", "a\n", "a%2e", "naïve", "x" * 256, "a\x00"]
)
def test_a_directory_name_that_no_broker_uses_is_refused(hostile: str) -> None:
    with pytest.raises(InvalidInputError):
        check_stream(hostile)
    with pytest.raises(InvalidInputError):
        names.data_prefix("rabbitmq/", hostile)
    with pytest.raises(InvalidInputError):
        names.root_path("rabbitmq/", hostile, 1, 1, 1)


@pytest.mark.parametrize(
    "hostile",
    [
        "",
        "/",
        "a",
        "/a/",
        "a//",
        "../",
        "a/../",
        "a b/",
        "a\n/",
        "a/\n",
        "ü/",
        "a/" * 9,
        "./",
        "a/./",
        "a?/",
    ],
)
def test_a_prefix_that_is_not_one_to_eight_plain_path_parts_is_refused(hostile: str) -> None:
    with pytest.raises(InvalidInputError):
        check_prefix(hostile)


def test_a_prefix_leaves_room_for_the_longest_key_and_says_how_much_it_may_take() -> None:
    longest = check_prefix("a" * (MAX_PREFIX - 1) + "/")

    assert len(DataKey("s" * 255, 2**63, 2**63, 2**32 - 1, 2**64 - 1).path(longest)) <= 1024
    with pytest.raises(InvalidInputError, match="at most 128 characters, not 129"):
        check_prefix("a" + longest)


def test_a_listing_that_starts_at_an_offset_skips_exactly_the_keys_below_it() -> None:
    start = names.list_start("rabbitmq/", KEY.stream, 100)
    below = DataKey(KEY.stream, 99, 2**64 - 1, 2**32 - 1, 2**64 - 1).path("rabbitmq/")
    at = DataKey(KEY.stream, 100, 101, 0, 0).path("rabbitmq/")

    assert below < start < at


def test_data_keys_sort_by_first_offset_and_roots_by_epoch_then_version() -> None:
    offsets = [0, 9, 10, 99, 10**10, 2**63, 2**64 - 2]
    keys = [DataKey(KEY.stream, o, 2**64 - 1, 1, 1).path("rabbitmq/") for o in offsets]
    roots = [
        names.root_path("rabbitmq/", KEY.stream, epoch, version, 1)
        for epoch, version in [(1, 1), (1, 2), (1, 10), (2, 3), (10, 4)]
    ]

    assert keys == sorted(keys)
    assert roots == sorted(roots)


def test_no_key_of_a_root_is_taken_for_data() -> None:
    with pytest.raises(InvalidInputError):
        parse_data_key(names.root_path("rabbitmq/", KEY.stream, 1, 1, 1), "rabbitmq/")


# Keys under metadata/.

METADATA = [
    (
        names.root_path("rabbitmq/", KEY.stream, 3, 17, 255),
        RootKey(KEY.stream, epoch=3, version=17, uid=255),
        "root.0000000003.000000000017.00000000000000ff.manifest",
    ),
    (
        names.group_path("rabbitmq/", KEY.stream, 100, 255, 1),
        GroupKey(KEY.stream, first_offset=100, uid=255, level=1),
        "00000000000000000100.00000000000000ff.group",
    ),
    (
        names.group_path("rabbitmq/", KEY.stream, 0, 2**64 - 1, 2),
        GroupKey(KEY.stream, first_offset=0, uid=2**64 - 1, level=2),
        "00000000000000000000.ffffffffffffffff.kgroup",
    ),
    (
        names.group_path("rabbitmq/", KEY.stream, 2**64 - 1, 0, 3),
        GroupKey(KEY.stream, first_offset=2**64 - 1, uid=0, level=3),
        "18446744073709551615.0000000000000000.mgroup",
    ),
    (
        names.collect_path("rabbitmq/", KEY.stream, 1_790_000_000_123, 255),
        MarkKey(KEY.stream, created_ms=1_790_000_000_123, uid=255),
        "collect.1790000000123.00000000000000ff.marks",
    ),
    (
        names.quarantine_path("rabbitmq/", KEY.stream, 7, 255),
        QuarantineKey(KEY.stream, epoch=7, uid=255),
        "quarantine.0000000007.00000000000000ff.record",
    ),
]


@pytest.mark.parametrize(("path", "key", "end"), METADATA)
def test_a_metadata_key_says_which_kind_of_object_it_is(path: str, key: Any, end: str) -> None:
    assert path == f"rabbitmq/stream/{KEY.stream}/metadata/{end}"
    assert parse_metadata_key(path, "rabbitmq/") == key


def test_the_level_of_a_group_in_its_key_is_that_of_its_entry() -> None:
    for kind in (EntryKind.GROUP, EntryKind.KILO_GROUP, EntryKind.MEGA_GROUP):
        path = names.group_path("rabbitmq/", KEY.stream, 1, 1, kind)
        key = parse_metadata_key(path, "rabbitmq/")
        assert isinstance(key, GroupKey)
        assert key.level == kind.level


@pytest.mark.parametrize("path", [path for path, _, _ in METADATA])
@pytest.mark.parametrize(
    "spoil",
    [
        lambda path: "",
        lambda path: path + "\n",
        lambda path: " " + path,
        lambda path: "other/" + path,
        lambda path: path.removeprefix("rabbitmq/"),
        lambda path: path.upper(),
        lambda path: path + ".bak",
        lambda path: path.replace("/metadata/", "/data/"),
        lambda path: path.replace("/metadata/", "/metadata//"),
        lambda path: path.replace("__orders", "../orders"),
        lambda path: path.replace("__orders", "__örders"),
        lambda path: path.replace(KEY.stream, ""),
        lambda path: path.replace(KEY.stream, "x" * 256),
        lambda path: path.replace("0000", "000", 1) if "0000" in path else "",
        lambda path: path[: path.rindex(".")] + ".fragment",
        lambda path: path[: path.rindex("0") if path.endswith("manifest") else -1],
    ],
)
def test_a_metadata_key_that_breaks_the_grammar_is_refused(path: str, spoil: Any) -> None:
    with pytest.raises(InvalidInputError):
        parse_metadata_key(spoil(path), "rabbitmq/")


def test_metadata_numbers_out_of_range_are_refused() -> None:
    group = METADATA[3][0].replace("18446744073709551615", "18446744073709551616")
    root = METADATA[0][0].replace("0000000003", "4294967296")

    for key in (group, root):
        with pytest.raises(InvalidInputError):
            parse_metadata_key(key, "rabbitmq/")


def test_no_data_key_is_taken_for_metadata_and_none_of_these_for_data() -> None:
    with pytest.raises(InvalidInputError):
        parse_metadata_key(GOOD, "rabbitmq/")
    for path, _, _ in METADATA:
        with pytest.raises(InvalidInputError):
            parse_data_key(path, "rabbitmq/")


def test_collect_records_sort_by_time() -> None:
    paths = [
        names.collect_path("rabbitmq/", KEY.stream, created, 2**64 - 1 - created)
        for created in (0, 9, 10, 1_790_000_000_123, 1_790_000_000_124)
    ]

    assert paths == sorted(paths)
