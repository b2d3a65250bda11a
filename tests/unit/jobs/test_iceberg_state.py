"""An Iceberg table whose history others change: what it holds is what its current snapshot has."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.io.pyarrow import PyArrowFile

from coldstream.errors import ConflictError, CorruptDataError, InvalidInputError
from coldstream.jobs.materialise.commit import commit
from coldstream.jobs.materialise.iceberg import state_object as iceberg_state
from coldstream.jobs.materialise.iceberg.state_object import (
    APPEND_PROPERTY,
    SNAPSHOT_PROPERTY,
    STATE_PROPERTY,
    find_pointer,
)
from coldstream.jobs.materialise.maintain import swap
from coldstream.jobs.materialise.table import Append
from coldstream_devkit.suites.table import (
    OTHER,
    SCHEMA,
    STREAM,
    TableSite,
    append_of,
    offsets,
)
from tests.unit.jobs.iceberg_history import compact, current, expire, set_back, set_properties
from tests.unit.jobs.test_iceberg import catalog, site

__all__ = ["catalog", "site"]

_NAME = "db.t"
_NUMBERS = count()
Catalogs = Callable[[], SqlCatalog]


def _fill(site: TableSite, first: int, next_offset: int, stream: str = STREAM) -> None:
    """A run: its own client, its own plan."""
    table = site.open(_NAME)
    append = append_of(site, table.load(SCHEMA), first, next_offset, stream)
    commit(table, append, first_schema=SCHEMA, pause=_no_pause)


def _no_pause(_: int) -> None:
    """Nobody is in the way."""


def _covered(site: TableSite, stream: str = STREAM) -> tuple[tuple[int, int], ...]:
    return site.open(_NAME).load(SCHEMA).state.of(stream).spans


def test_a_table_that_is_rolled_back_knows_only_the_offsets_it_went_back_to(
    site: TableSite, catalog: Catalogs
) -> None:
    _fill(site, 0, 10)
    before = current(catalog(), _NAME)
    _fill(site, 10, 20)
    _fill(site, 0, 5, OTHER)
    set_back(catalog(), _NAME, before)
    assert _covered(site) == ((0, 10),)
    assert _covered(site, OTHER) == ()


def test_after_a_rollback_the_next_run_fills_exactly_what_is_missing(
    site: TableSite, catalog: Catalogs
) -> None:
    _fill(site, 0, 10)
    before = current(catalog(), _NAME)
    _fill(site, 10, 20)
    set_back(catalog(), _NAME, before)
    ((_, next_offset),) = _covered(site)
    _fill(site, next_offset, 25)
    assert _covered(site) == ((0, 25),)
    assert offsets(site, _NAME) == list(range(25))


def test_a_rollback_that_is_taken_back_brings_the_offsets_back(
    site: TableSite, catalog: Catalogs
) -> None:
    _fill(site, 0, 10)
    before = current(catalog(), _NAME)
    _fill(site, 10, 20)
    after = current(catalog(), _NAME)
    set_back(catalog(), _NAME, before)
    set_back(catalog(), _NAME, after)
    assert _covered(site) == ((0, 20),)


def test_a_run_whose_plan_a_rollback_undid_leaves_no_hole(
    site: TableSite, catalog: Catalogs
) -> None:
    _fill(site, 0, 10)
    before = current(catalog(), _NAME)
    _fill(site, 10, 20)
    table = site.open(_NAME)
    append = append_of(site, table.load(SCHEMA), 20, 30)
    set_back(catalog(), _NAME, before)
    with pytest.raises(ConflictError, match="run again"):
        commit(table, append, first_schema=SCHEMA, pause=_no_pause)
    assert _covered(site) == ((0, 10),)
    assert offsets(site, _NAME) == list(range(10))


def test_a_state_that_nobody_could_read_again_is_refused_before_the_commit(
    site: TableSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    _fill(site, 0, 10)
    with monkeypatch.context() as less:
        less.setattr(iceberg_state, "MAX_STATE_BYTES", 120)
        with pytest.raises(InvalidInputError, match=r"db\.t would have to know of its 2 streams"):
            _fill(site, 0, 10, OTHER)
    assert (_covered(site), _covered(site, OTHER)) == (((0, 10),), ())


def test_a_state_that_cannot_be_written_just_now_is_written_by_the_next_attempt(
    site: TableSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    create, failed = PyArrowFile.create, list[str]()

    def busy(file: PyArrowFile, overwrite: bool = False) -> Any:
        if "/state-" in file.location and not failed:
            failed.append(file.location)
            raise OSError("AWS Error SLOW_DOWN")
        return create(file, overwrite)

    monkeypatch.setattr(PyArrowFile, "create", busy)
    _fill(site, 0, 10)
    assert failed
    assert _covered(site) == ((0, 10),)


def test_a_snapshot_of_others_has_what_its_parent_had(site: TableSite, catalog: Catalogs) -> None:
    _fill(site, 0, 10)
    before = current(catalog(), _NAME)
    _fill(site, 10, 20)
    compact(catalog(), _NAME)
    compact(catalog(), _NAME)
    assert _covered(site) == ((0, 20),)
    set_back(catalog(), _NAME, before)
    compact(catalog(), _NAME)
    assert _covered(site) == ((0, 10),)


def test_our_own_maintenance_carries_the_offsets_on(site: TableSite, catalog: Catalogs) -> None:
    _fill(site, 0, 10)
    table = site.open(_NAME)
    loaded = table.load(SCHEMA)
    assert swap(table, loaded, table.files(loaded), (), "expired-1")
    snapshot = catalog().load_table(_NAME).current_snapshot()
    assert snapshot is not None
    assert snapshot.summary is not None
    assert snapshot.summary.additional_properties[STATE_PROPERTY]
    _fill(site, 10, 20)
    set_back(catalog(), _NAME, snapshot.snapshot_id)
    assert _covered(site) == ((0, 10),)
    assert offsets(site, _NAME) == []


def test_expiry_of_all_our_snapshots_is_no_harm_once_a_run_has_seen_the_one_that_stays(
    site: TableSite, catalog: Catalogs
) -> None:
    _fill(site, 0, 10)
    compact(catalog(), _NAME)
    last = compact(catalog(), _NAME)
    assert _covered(site) == ((0, 10),)
    old = [each.snapshot_id for each in catalog().load_table(_NAME).metadata.snapshots]
    expire(catalog(), _NAME, *[each for each in old if each != last])
    assert _covered(site) == ((0, 10),)


def test_a_snapshot_whose_expired_parent_is_the_one_we_noted_has_its_offsets(
    site: TableSite, catalog: Catalogs
) -> None:
    _fill(site, 0, 10)
    ours = current(catalog(), _NAME)
    compact(catalog(), _NAME)
    metadata = catalog().load_table(_NAME).metadata
    # As Java forgets a snapshot: its children go on naming it.
    left = [each for each in metadata.snapshots if each.snapshot_id != ours]
    forgotten = find_pointer(_NAME, metadata.model_copy(update={"snapshots": left}))
    assert forgotten == find_pointer(_NAME, metadata)


def test_after_a_rollback_and_expiry_nobody_guesses_what_the_table_holds(
    site: TableSite, catalog: Catalogs
) -> None:
    _fill(site, 0, 10)
    first = current(catalog(), _NAME)
    _fill(site, 10, 20)
    second = current(catalog(), _NAME)
    set_back(catalog(), _NAME, first)
    last = compact(catalog(), _NAME)
    expire(catalog(), _NAME, first, second)
    with pytest.raises(
        CorruptDataError, match=f"{SNAPSHOT_PROPERTY} of the table to '{last} file:"
    ):
        site.open(_NAME).load(SCHEMA)


def test_what_the_refusal_says_to_do_helps(site: TableSite, catalog: Catalogs) -> None:
    _fill(site, 0, 10)
    first = current(catalog(), _NAME)
    last = compact(catalog(), _NAME)
    expire(catalog(), _NAME, first)
    with pytest.raises(CorruptDataError) as caught:
        site.open(_NAME).load(SCHEMA)
    advice = str(caught.value).split("'")[1]
    assert advice.startswith(f"{last} ")
    set_properties(catalog(), _NAME, {SNAPSHOT_PROPERTY: advice})
    assert _covered(site) == ((0, 10),)


def test_a_snapshot_that_repeats_a_change_of_ours_is_refused(
    site: TableSite, catalog: Catalogs
) -> None:
    _fill(site, 0, 10)
    compact(catalog(), _NAME, **{"source-snapshot-id": "7"})
    with pytest.raises(CorruptDataError, match="nobody knows"):
        site.open(_NAME).load(SCHEMA)


def test_a_table_of_before_is_read_by_its_properties_until_it_is_rolled_back(
    site: TableSite, catalog: Catalogs
) -> None:
    for next_offset in (10, 20):
        _fill(site, next_offset - 10, next_offset)
        pointer = catalog().load_table(_NAME).properties[STATE_PROPERTY]
        # Snapshots used to name the append only.
        old = compact(catalog(), _NAME, **{APPEND_PROPERTY: f"old-{next_offset}"})
        with catalog().load_table(_NAME).transaction() as change:
            change.set_properties({STATE_PROPERTY: pointer, APPEND_PROPERTY: f"old-{next_offset}"})
            change.remove_properties(SNAPSHOT_PROPERTY)
        if next_offset == 10:
            first = old
    assert _covered(site) == ((0, 20),)
    set_back(catalog(), _NAME, first)
    with pytest.raises(CorruptDataError, match="nobody knows"):
        site.open(_NAME).load(SCHEMA)


def test_a_table_that_lost_every_word_about_its_offsets_is_refused(
    site: TableSite, catalog: Catalogs
) -> None:
    _fill(site, 0, 10)
    ours = current(catalog(), _NAME)
    compact(catalog(), _NAME)
    expire(catalog(), _NAME, ours)
    with catalog().load_table(_NAME).transaction() as change:
        change.remove_properties(STATE_PROPERTY, SNAPSHOT_PROPERTY)
    with pytest.raises(CorruptDataError, match=STATE_PROPERTY):
        site.open(_NAME).load(SCHEMA)


def test_an_append_of_nothing_to_a_new_table_can_be_read_again(site: TableSite) -> None:
    commit(site.open(_NAME), Append("nothing"), first_schema=SCHEMA, pause=_no_pause)
    assert _covered(site) == ()


_STEPS = st.lists(
    st.one_of(
        st.tuples(st.sampled_from(("fill", "maintain", "compact", "look")), st.just(0)),
        st.tuples(st.sampled_from(("set back", "expire")), st.integers(0, 9)),
    ),
    max_size=9,
)


@given(steps=_STEPS)
@settings(
    max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_whatever_is_done_to_its_history_a_table_says_what_is_true_or_refuses(
    site: TableSite, catalog: Catalogs, steps: list[tuple[str, int]]
) -> None:
    name = f"db.t{next(_NUMBERS)}"
    truth: dict[int, int] = {}
    expired = False
    table = site.open(name)
    commit(table, append_of(site, table.load(SCHEMA), 0, 1), first_schema=SCHEMA, pause=_no_pause)
    truth[current(catalog(), name)] = 1
    for step, number in steps:
        now = current(catalog(), name)
        table = site.open(name)
        try:
            loaded = table.load(SCHEMA)
        except CorruptDataError:
            assert expired
            return
        assert loaded.state.of(STREAM).spans == ((0, truth[now]),)
        if step == "fill":
            append = append_of(site, loaded, truth[now], truth[now] + 1)
            commit(table, append, first_schema=SCHEMA, pause=_no_pause)
        elif step == "maintain":
            commit(table, Append(f"kept-{next(_NUMBERS)}"), first_schema=SCHEMA, pause=_no_pause)
        elif step == "compact":
            compact(catalog(), name)
        elif step == "set back":
            set_back(catalog(), name, list(truth)[number % len(truth)])
        elif step == "expire" and len(truth) > 1:
            gone = [each for each in truth if each != now][number % (len(truth) - 1)]
            expire(catalog(), name, gone)
            del truth[gone]
            expired = True
        after = current(catalog(), name)
        truth.setdefault(after, truth[now] + (step == "fill"))


def test_an_append_of_another_run_while_a_snapshot_is_noted_is_not_done_again(
    site: TableSite, catalog: Catalogs, monkeypatch: pytest.MonkeyPatch
) -> None:
    _fill(site, 0, 10)
    compact(catalog(), _NAME)
    inner = SqlCatalog.commit_table

    def meanwhile(*args: Any) -> Any:
        monkeypatch.setattr(SqlCatalog, "commit_table", inner)
        _fill(site, 10, 20)
        return inner(*args)

    monkeypatch.setattr(SqlCatalog, "commit_table", meanwhile)
    table = site.open(_NAME)
    loaded = table.load(SCHEMA)
    assert loaded.state.of(STREAM).spans == ((0, 20),)
    assert _covered(site) == ((0, 20),)
