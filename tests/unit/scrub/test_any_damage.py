"""Whatever is done to an object, scrub says so, says where, and goes on."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coldstream.soundness.diagnosis import diagnose
from coldstream.soundness.fragment import holds
from coldstream.soundness.notes import Subject
from tests.support.examples import examples
from tests.support.scrub_site import STREAM, a_tier, leaf, path_of, root_of, scrub_all

TIER = a_tier(fragments=6)
ENTRY = leaf(TIER, 3)
SUBJECT = Subject(ENTRY.data_key(STREAM), path_of(ENTRY), ENTRY, 0)
GOOD = TIER.store.objects[path_of(ENTRY)]


def test_no_flipped_bit_of_a_fragment_goes_unnoticed() -> None:
    for position in range(len(GOOD)):
        data = bytearray(GOOD)
        data[position] ^= 1 << random.randrange(8)
        findings, _ = diagnose(memoryview(bytes(data)), SUBJECT)

        assert holds(memoryview(bytes(data)), SUBJECT) is None, position
        assert findings, position
        assert all(
            ENTRY.first_offset <= each.first_offset < each.next_offset <= ENTRY.next_offset
            for each in findings
        ), (position, findings)


def test_no_cut_of_a_fragment_goes_unnoticed() -> None:
    for length in range(len(GOOD)):
        assert diagnose(memoryview(GOOD[:length]), SUBJECT)[0], length
        assert diagnose(memoryview(GOOD[-length:] if length else b""), SUBJECT)[0], length


@examples(3)
@given(st.data())
def test_any_number_of_changes_is_found_and_nothing_breaks(data: st.DataObject) -> None:
    damaged = bytearray(GOOD)
    for _ in range(data.draw(st.integers(1, 6))):
        at = data.draw(st.integers(0, max(0, len(damaged) - 1)))
        damaged[at : at + data.draw(st.integers(0, 60))] = data.draw(st.binary(max_size=60))
    body = bytes(damaged)
    findings, _ = diagnose(memoryview(body), SUBJECT)

    sound = holds(memoryview(body), SUBJECT) is not None
    assert sound == (body == GOOD)
    assert bool(findings) == (body != GOOD)


@given(st.binary(max_size=600))
def test_garbage_is_found(body: bytes) -> None:
    assert diagnose(memoryview(body), SUBJECT)[0]


@pytest.mark.parametrize("tree", [False, True], ids=["flat", "tree"])
def test_no_flipped_bit_of_anything_that_the_manifest_refers_to_goes_unnoticed(tree: bool) -> None:
    tier = a_tier(tree=tree)
    from coldstream_devkit.bucket import referenced
    from tests.support.tier import PREFIX

    item = tier.catalog.items[STREAM]
    for key in sorted(referenced(PREFIX, item, root_of(tier), tier.fetch(STREAM))):
        for _ in range(12):
            position = random.randrange(len(tier.store.objects[key]))
            bit = random.randrange(8)
            tier.flip(key, position, bit)
            bad = scrub_all(tier).bad
            tier.flip(key, position, bit)

            assert bad, (key, position, bit)
            assert any(each.key == key for each in bad), (key, position, [str(e) for e in bad])
