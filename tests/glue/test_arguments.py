"""A job takes what Glue passes, and refuses what somebody got wrong."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from coldstream.adapters.place import Place
from coldstream.errors import InvalidInputError
from coldstream.jobs.arguments import (
    WHERE,
    Argument,
    Given,
    branching,
    decimal_number,
    flag,
    one_of,
    parse,
    place_of,
    positive_number,
    table_url,
    text,
)
from coldstream.quantities import parse_size

STREAM = Argument("stream", text, "Which.")
LIMIT = Argument("max-bytes", parse_size, "How much.", default=2**30)
PRICE = Argument[float | None]("price", decimal_number, "Of a GB.", default=None)
DRY = Argument("dry-run", flag, "Change nothing.", default=False)
MODE = Argument("partition", one_of("hour", "day"), "Which.", default="day")
ARGUMENTS = (STREAM, LIMIT, PRICE, DRY, MODE)


def given(*argv: str) -> Given:
    return parse("probe", "Probes.", ARGUMENTS, argv, {})


def test_values_have_the_types_of_their_arguments_and_defaults_count() -> None:
    found = given("--stream", "orders", "--max-bytes", "64MiB", "--price", "0.023", "--dry-run")

    assert found[STREAM] == "orders"
    assert found[LIMIT] == 64 * 2**20
    assert found[PRICE] == 0.023
    assert found[DRY] is True
    assert found[MODE] == "day"


@pytest.mark.parametrize(
    "argv",
    [
        ("--max_bytes", "5", "--stream", "a"),
        ("--max-bytes=5", "--stream=a"),
        ("--stream", "a", "--max-bytes", "5", "--dry-run", "false"),
        ("--stream", "a", "--max-bytes", "5", "--dry-run", "no"),
        ("--stream", "a", "--max-bytes", "5", "--dry-run=false", "--price", ""),
    ],
)
def test_ways_to_write_the_same(argv: Sequence[str]) -> None:
    found = given(*argv)

    assert (found[STREAM], found[LIMIT], found[DRY], found[PRICE]) == ("a", 5, False, None)


@pytest.mark.parametrize("argv", [("--dry-run",), ("--dry-run", ""), ("--dry-run", "true")])
def test_a_switch_counts_by_being_there(argv: Sequence[str]) -> None:
    assert given("--stream", "a", *argv)[DRY] is True


def test_what_glue_adds_is_ignored_and_the_id_of_the_run_is_known() -> None:
    found = given(
        "true",
        *("--job-bookmark-option", "job-bookmark-disable", "--enable-metrics", "true"),
        *("--enable-observability-metrics", "--TempDir", "s3://b/t/", "--JOB_ID", "j_1"),
        *("--additional-python-modules", "s3://b/k.gluewheels.zip", "--JOB_RUN_ID", "jr_1"),
        *("--python-modules-installer-option", "--no-index"),
        *("--conf", "spark.a=1 --conf spark.b=2", "--stream", "orders", "--JOB_NAME", "probe"),
    )

    assert (found[STREAM], found.run_id) == ("orders", "jr_1")


def test_an_argument_that_glue_may_add_one_day_is_told_and_stops_no_run(
    capsys: pytest.CaptureFixture[str],
) -> None:
    found = given("--stream", "orders", "--zzz", "5", "--JOB_RUN_ID", "jr_1")

    assert found[STREAM] == "orders"
    assert "probe: there is no argument --zzz: it counts for nothing" in capsys.readouterr().err


def test_a_misspelled_argument_stops_a_run_of_glue_as_well() -> None:
    """A limit that is not one would cost money; a name of Glue's own is like none of ours."""
    with pytest.raises(InvalidInputError, match="did you mean --max-bytes"):
        given("--stream", "orders", "--max-byte", "5", "--JOB_RUN_ID", "jr_1")


@pytest.mark.parametrize(
    ("argv", "complaint"),
    [
        ((), "probe: --stream must be given"),
        (("--stream", ""), "probe: --stream must be given"),
        (("--stream", "a", "--max-byte", "5"), "no argument --max-byte; did you mean --max-bytes?"),
        (("--stream", "a", "--zzz", "5"), "no argument --zzz; see --help"),
        (("--stream", "a", "--stream", "b"), "--stream is given twice"),
        (("--stream", "--dry-run"), "--stream: expected one argument"),
        (("--stream", "a", "b"), "'b' is no argument"),
        (("--stream", "a", "--max-bytes", "lots"), "--max-bytes: must be a size"),
        (("--stream", "a", "--max-bytes", "5 XB"), "must be a size"),
        (("--stream", "a", "--price", "-1"), "--price: must be a number"),
        (("--stream", "a", "--price", "nan"), "must be a number"),
        (("--stream", "a", "--dry-run", "maybe"), "--dry-run: must be true or false"),
        (("--stream", "a", "--partition", "week"), "must be hour or day"),
    ],
)
def test_what_is_wrong_is_said_with_the_name_of_the_argument(
    argv: Sequence[str], complaint: str
) -> None:
    with pytest.raises(InvalidInputError) as caught:
        given(*argv)

    assert complaint in str(caught.value)


def test_help_names_every_argument_and_leaves(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        given("--stream", "a", "--help")

    assert caught.value.code == 0
    said = capsys.readouterr().out
    assert all(f"--{each.name}" in said for each in ARGUMENTS)
    assert "Required." in said
    assert "Default: 1073741824." in said


def test_the_environment_stands_in_for_what_is_not_given() -> None:
    variables = {
        "COLDSTREAM_BUCKET": "fragments",
        "COLDSTREAM_TABLE": "catalog",
        "COLDSTREAM_PREFIX": "prod/",
        "AWS_REGION": "eu-central-1",
    }

    found = place_of(parse("probe", "", WHERE, ("--table", "another"), variables))

    assert found == Place("fragments", "another", "prod/", "eu-central-1", "")


def test_a_wrong_variable_is_named() -> None:
    variables = {"COLDSTREAM_BUCKET": "b", "COLDSTREAM_TABLE": "t", "COLDSTREAM_PREFIX": "prod"}

    with pytest.raises(InvalidInputError, match=r"COLDSTREAM_PREFIX: not a key prefix .*'prod'"):
        parse("probe", "", WHERE, (), variables)


@pytest.mark.parametrize("written", ["0", "-1", "", "1.0", "1e3"])
def test_a_positive_number_is_one(written: str) -> None:
    with pytest.raises(ValueError, match="must be"):
        positive_number(written)


@pytest.mark.parametrize("written", ["0", "1", "4097", "x"])
def test_a_group_has_from_2_to_4096_entries(written: str) -> None:
    assert branching("2") == 2
    assert branching("4096") == 4096
    with pytest.raises(ValueError, match="must be"):
        branching(written)


def test_a_path_for_tables_becomes_the_url_that_workers_write_to() -> None:
    assert table_url("/tmp/tables") == "file:///tmp/tables/"
    assert table_url("file:///tmp/tables/") == "file:///tmp/tables/"
    assert table_url("s3://bucket/tables") == "s3://bucket/tables/"
