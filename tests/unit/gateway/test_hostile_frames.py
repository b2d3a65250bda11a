from __future__ import annotations

import random
from collections import Counter
from itertools import islice

from coldstream_devkit.fuzz_gateway import check, inputs


def test_no_frame_of_a_client_does_anything_but_be_a_request_or_be_refused() -> None:
    counts = Counter(check(*each) for each in islice(inputs(random.Random(16)), 20_000))
    assert counts["broken"] > 1000
    assert len(counts) > 10
