"""docs/reference/formats.md draws what the code reads: its tables alone decode the golden files."""

from __future__ import annotations

import dataclasses
import re
import struct
import zlib
from pathlib import Path
from typing import Any

import pytest

from coldstream import fragment, names
from coldstream.fragment import IndexRecord, Trailer, parse_trailer
from coldstream.manifest import entries, erasure, header, node, quarantine, root
from coldstream.manifest.entries import EntryKind
from coldstream.manifest.root import parse_root
from coldstream.usecases import marks
from tests.golden import make

ROOT = Path(__file__).parents[2]
HERE = Path(__file__).parent
TEXT = (ROOT / "docs/reference/formats.md").read_text()
SIZES = {"u8": 1, "u16": 2, "u32": 4, "u56": 7, "u64": 8, "i64": 8, "u128": 16, "4 bytes": 4}


@dataclasses.dataclass(frozen=True)
class Row:
    """One row of a table: where a field is, of which type, and its name."""

    offset: int
    kind: str
    name: str
    constant: str

    def read(self, data: bytes, at: int) -> Any:
        raw = data[at + self.offset : at + self.offset + SIZES[self.kind]]
        if self.kind == "4 bytes":
            return raw.decode()
        return int.from_bytes(raw, "big", signed=self.kind.startswith("i"))


def table(name: str) -> list[Row]:
    """A table of the page; its offsets and types must tile."""
    match = re.search(rf"<!-- table: {name} -->\n(.*?)<!-- end -->", TEXT, re.DOTALL)
    assert match, f"the page has no table {name!r}"
    rows = []
    for line in match[1].strip().splitlines()[2:]:
        offset, kind, field = (cell.strip() for cell in line.strip("|").split("|"))
        words = re.split(r"[:;,]| of a |; ", field)[0].strip()
        constant = re.search(r"`(OS\w\w)`|, (\d)$", field)
        rows.append(
            Row(
                int(offset),
                kind,
                words.removesuffix(" before next offset").split(" `")[0],
                next(filter(None, constant.groups()), "") if constant else "",
            )
        )
    at = 0
    for row in rows:
        assert row.offset == at, f"{name}: {row.name} is drawn at {row.offset}, not at {at}"
        at += SIZES[row.kind]
    return rows


def size(name: str) -> int:
    """Bytes that a table covers."""
    last = table(name)[-1]
    return last.offset + SIZES[last.kind]


def decode(name: str, data: bytes, at: int) -> dict[str, Any]:
    """Field name -> value, by a table alone; constants of the page must be in the bytes."""
    found = {}
    for row in table(name):
        value = row.read(data, at)
        if row.constant:
            assert str(value) == row.constant, f"{name}: {row.name}"
        found[row.name.replace(" ", "_")] = value
    return found


FRAGMENT = (HERE / "fragment-v1.bin").read_bytes()
ROOT_FILES = {version: (HERE / f"root-v{version}.bin").read_bytes() for version in (1, 2, 3)}
#: Where the fields of an older root end, and the names that a root has.
ROOT_ENDS = {1: "cluster length", 2: "routing key length"}
NAMES = ("cluster", "vhost", "queue", "super_stream", "routing_key")


def test_the_page_says_which_versions_are_written() -> None:
    (said,) = re.findall(r"This release\s+writes (.*?)\.\n", TEXT, re.DOTALL)

    assert dict(re.findall(r"([a-z][a-z ]*?) of version (\d+)", " ".join(said.split()))) == {
        "fragments": str(fragment.VERSION),
        "roots": str(root.VERSION),
        "groups": str(header.VERSION),
        "quarantine records": str(quarantine.VERSION),
        "erasure records": str(erasure.VERSION),
        "and marks": str(marks.VERSION),
    }
    assert f"version: {root.VERSION} of a root, {header.VERSION} of a group" in TEXT


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("fragment header", len(fragment.HEADER)),
        ("index header", len(fragment.INDEX_HEADER)),
        ("index record", fragment.INDEX_RECORD_SIZE),
        ("trailer", fragment.TRAILER_SIZE),
        ("node header", header.HEADER_SIZE),
        ("root fields", root.ROOT_SIZE),
        ("claim", root._CLAIM.size),
        ("group fields", node.NODE_SIZE),
        ("entry", entries.ENTRY_SIZE),
    ],
)
def test_each_structure_is_drawn_as_large_as_it_is(name: str, expected: int) -> None:
    assert size(name) == expected


@pytest.mark.parametrize(
    ("name", "layout"),
    [
        ("index record", fragment._INDEX_RECORD),
        ("trailer", fragment._TRAILER),
        ("node header", header._HEADER),
        ("claim", root._CLAIM),
        ("group fields", node._NODE),
        ("entry", entries._ENTRY),
    ],
)
def test_each_field_is_drawn_with_the_type_that_the_code_packs(
    name: str, layout: struct.Struct
) -> None:
    # The two fields wider or narrower than a struct letter: u128 is two Q, u8 and u56 share one.
    letters = {
        "u32": "I",
        "u64": "Q",
        "i64": "q",
        "4 bytes": "4s",
        "u128": "QQ",
        "u8": "Q",
        "u56": "",
    }

    assert layout.format == ">" + "".join(letters[row.kind] for row in table(name))


def test_the_fields_of_a_root_are_drawn_with_the_types_that_the_code_packs() -> None:
    letters = {"u16": "H", "u32": "I", "u64": "Q"}

    assert root._ROOT.format + root._NAMES.format[1:] == ">" + "".join(
        letters[row.kind] for row in table("root fields")
    )


def test_the_trailer_is_drawn_field_by_field_in_the_order_of_the_code() -> None:
    drawn = [row.name.replace(" ", "_") for row in table("trailer")]

    assert drawn == [
        *(field.name for field in dataclasses.fields(Trailer)), "version", "crc", "magic",
    ]  # fmt: skip


def test_the_page_alone_decodes_the_golden_fragment() -> None:
    at = len(FRAGMENT) - size("trailer")
    drawn = decode("trailer", FRAGMENT, at)
    trailer = parse_trailer(FRAGMENT)

    assert {f.name: getattr(trailer, f.name) for f in dataclasses.fields(trailer)}.items() <= (
        drawn.items()
    )
    assert drawn["crc"] == zlib.crc32(FRAGMENT[at : at + 148])
    decode("fragment header", FRAGMENT, 0)
    decode("index header", FRAGMENT, drawn["index_position"])
    start = drawn["index_position"] + size("index header")
    index = FRAGMENT[start : start + drawn["chunks"] * size("index record")]
    assert drawn["index_crc"] == zlib.crc32(index)
    assert drawn["data_crc"] == zlib.crc32(FRAGMENT[8 : drawn["index_position"]])
    section = FRAGMENT[drawn["index_position"] :][: drawn["index_size"]]
    found = fragment.FragmentIndex(section, trailer)
    for number in range(len(found)):
        row = decode("index record", index, number * size("index record"))
        assert IndexRecord(row["chunk_id"], row["timestamp"], row["position"]) == found[number]


@pytest.mark.parametrize("version", ROOT_FILES)
def test_the_page_alone_decodes_the_golden_roots(version: int) -> None:
    data = ROOT_FILES[version]
    known = parse_root(data)
    assert data[:4] == b"OSIR"
    drawn = decode("node header", data, 0)
    at = size("node header")
    end = size("root fields")
    if version in ROOT_ENDS:
        assert "its fields end before the cluster length" in TEXT
        assert "the reserved one in the place of the super stream length and end there" in TEXT
        rows = table("root fields")
        end = next(row.offset for row in rows if row.name == ROOT_ENDS[version])
    fields = decode("root fields", data[: at + end] + bytes(size("root fields") - end), at)

    assert drawn["version"] == version
    assert drawn["first_offset"] == known.first_offset
    assert drawn["next_offset"] == known.next_offset
    assert drawn["first_timestamp"] == known.first_timestamp
    assert drawn["oldest_timestamp"] == known.entries[0].max_timestamp
    assert drawn["total_size"] == known.total_size
    assert drawn["catalog_version"] == known.version
    assert fields["epoch"] == known.epoch
    assert known.last_chunk is not None
    assert fields["last_chunk_id"] == known.last_chunk.chunk_id
    assert fields["last_chunk_epoch"] == known.last_chunk.epoch
    assert fields["claims"] == len(known.ledger.claims)
    assert fields["entries"] == len(known.entries)
    assert fields["dead_fragments"] == 0
    at += end
    for claim in known.ledger.claims:
        row = decode("claim", data, at)
        assert (row["epoch"], row["floor"]) == (claim.epoch, claim.floor)
        at += size("claim")
    length = fields["quarantine_key_length"]
    assert data[at : at + length].decode() == known.quarantine_key
    at += length
    for part in NAMES:
        length = fields[f"{part}_length"]
        assert data[at : at + length].decode() == getattr(known.name, part)
        at += length
    for entry in known.entries:
        row = decode("entry", data, at)
        assert row == {f.name: getattr(entry, f.name) for f in dataclasses.fields(entry)}
        at += size("entry")
    assert int.from_bytes(data[at:], "big") == zlib.crc32(data[:at])
    assert at + 4 == len(data)


def test_the_page_alone_decodes_the_golden_groups() -> None:
    for made in make.nodes_v1():
        data = (HERE / f"{make.NODE_FILES[made.kind]}").read_bytes()
        head = decode("node header", data, 0)
        fields = decode("group fields", data, size("node header"))

        assert data[:4] == node.MAGIC[made.kind]
        assert head["total_size"] == made.entry().size
        assert (head["first_offset"], head["next_offset"]) == (
            made.entries[0].first_offset,
            made.entries[-1].next_offset,
        )
        assert fields == {
            "entries": len(made.entries),
            "fragments": made.entry().records,
            "uid": made.uid,
        }
        at = size("node header") + size("group fields")
        for entry in made.entries:
            row = decode("entry", data, at)
            assert row == {f.name: getattr(entry, f.name) for f in dataclasses.fields(entry)}
            at += size("entry")
        assert int.from_bytes(data[at:], "big") == zlib.crc32(data[:at])
        assert at + 4 == len(data)


def test_the_kinds_of_entries_are_all_listed() -> None:
    listed = re.findall(r"^\| (\d) \| ([a-z-]{3,})", TEXT, re.MULTILINE)

    assert [(int(n), word) for n, word in listed] == [
        (kind.value, kind.name.lower().replace("_", "-")) for kind in EntryKind
    ]


def test_the_widths_of_the_parts_of_a_key_are_as_the_code_writes_them() -> None:
    widths = {
        word: int(digits)
        for words, digits in re.findall(r"^\| (`[^|]+`) \| (\d+) (?:hexa)?deci", TEXT, re.MULTILINE)
        for word in re.findall(r"`(\w+)`", words)
    }
    data = names.DataKey("__s_1", 1, 2, 3, 4).path("p/").rsplit("/", 1)[1]
    made = names.root_path("p/", "__s_1", 3, 5, 4).rsplit("/", 1)[1]

    first, next_offset, epoch, uid, _ = re.split(r"[-.]", data)
    assert [len(part) for part in (first, next_offset, epoch, uid)] == [
        widths["first"], widths["next"], widths["epoch"], widths["uid"],
    ]  # fmt: skip
    _, epoch, version, uid, _ = made.split(".")
    assert [len(part) for part in (epoch, version, uid)] == [
        widths["epoch"], widths["version"], widths["uid"],
    ]  # fmt: skip


def test_the_limits_on_the_page_are_the_limits_of_the_code() -> None:
    assert fragment.MAX_FRAGMENT_SIZE == 5 * 2**30
    assert root.MAX_KEY == 1024
    assert names.DEFAULT_PREFIX == "rabbitmq/"
    for phrase in ("exceed 5 GiB", "at most 1024", "default `rabbitmq/`", "last 156 bytes"):
        assert phrase in TEXT
