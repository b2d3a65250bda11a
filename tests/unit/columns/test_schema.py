"""Which columns there are, and how somebody says which of them are wanted."""

from __future__ import annotations

import pyarrow as pa
import pytest

from coldstream.columns.schema import COLUMNS, DEFAULT, PROPERTIES, select
from coldstream.errors import InvalidInputError
from coldstream.reader.by_index import COLUMNS as BY_INDEX


def test_without_names_only_columns_are_selected_that_cost_no_message() -> None:
    selection = select()
    assert selection.schema.names == list(selection.names) == list(DEFAULT)
    assert set(DEFAULT) <= BY_INDEX
    assert selection.properties == ()
    assert select(tuple(COLUMNS)).properties == tuple(PROPERTIES)


def test_columns_come_in_the_order_in_which_they_are_named() -> None:
    selection = select(["error", "offset", "body"])
    assert selection.names == ("error", "offset", "body")
    assert selection.schema.field("offset").type == pa.int64()
    assert "raw" not in selection
    assert selection.properties == ()


def test_single_fields_make_a_struct_of_these_fields_where_the_first_is_named() -> None:
    selection = select(["offset", "properties.to", "body", "properties.group_sequence"])
    assert selection.names == ("offset", "properties", "body")
    assert selection.schema.field("properties").type == pa.struct(
        [("to", pa.string()), ("group_sequence", pa.int64())]
    )


@pytest.mark.parametrize(
    ("names", "told"),
    [
        ([], "no column"),
        (["offset", "bodi"], "'bodi'"),
        (["properties.colour"], "properties.colour"),
        (["body.size"], "body.size"),
        (["properties.to", "properties.to"], "twice"),
        (["properties.to", "properties"], "in parts"),
        (["properties", "properties.to"], "twice"),
    ],
)
def test_a_selection_that_means_nothing_is_refused(names: list[str], told: str) -> None:
    with pytest.raises(InvalidInputError, match=told):
        select(names)
