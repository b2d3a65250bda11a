"""A petabyte's manifest built, looked up, retained from and rebuilt; an exbibyte's looked up; and
the cost of every kind of commit from 1 to 10^9 fragments. No network and no disk but one file of
groups.

Each part runs in a process of its own, one after the other, so that its peak memory is its own.
`--quick` does all of it on short streams in seconds: its figures mean nothing, but its checks do.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from typing import ParamSpec, TypeVar

from bench.report import ratio
from bench.scale_build import Built, build
from bench.scale_cost import FULLEST, Cost, Costs, costs
from bench.scale_lookup import LookUps, look_up
from bench.scale_rebuild import PAGE, ReadFigures, RebuildFigures, read, rebuild
from bench.synthetic_stream import SIZE, M

#: Resident memory of the whole process that rebuilds, with interpreter and numpy.
BUDGET = 256 * 2**20

P = ParamSpec("P")
R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class Extent:
    """How long the streams are, and how often is looked."""

    petabyte: int
    exbibyte: int
    look_ups: int
    read_pages: int


FULL = Extent(petabyte=2**24, exbibyte=2**34, look_ups=1000, read_pages=200)
QUICK = Extent(petabyte=2**14, exbibyte=2**34, look_ups=10, read_pages=3)


def alone(function: Callable[P, R], *args: P.args, **settings: P.kwargs) -> R:
    """The result of a call in a new process, on one core."""
    os.environ["OPENBLAS_NUM_THREADS"] = "1"
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=context) as pool:
        return pool.submit(function, *args, **settings).result()


def show_build(extent: Extent, built: Built) -> None:
    each = built.seconds / extent.petabyte
    print(
        f"{extent.petabyte:,} fragments of 64 MiB ({extent.petabyte * SIZE / 2**50:g} PiB), M={M}"
    )
    print(f"  built by append and rebalance   {built.seconds:8.1f} s   {each * 1e6:.1f} us each")
    print(
        f"    groups, in a file              {built.groups:8,}    {built.group_bytes / 1e6:.0f} MB"
    )
    print(
        f"    root                           {built.root_entries:8,} entries, "
        f"{built.root_bytes / 1e3:.0f} kB"
    )
    print(f"    peak memory                    {built.peak / 1e6:8.0f} MB")
    for name, reads, seconds in (
        ("offset", built.offset_reads, built.offset_seconds),
        ("time", built.time_reads, built.time_seconds),
    ):
        print(
            f"  {built.look_ups:,} look-ups by {name:6}       at most {reads} node reads, "
            f"{seconds * 1e6:.0f} us with reading and checking them"
        )
    for name, (reads, size, root) in built.retained.items():
        print(
            f"  retention by {name:24} {reads} groups read ({size / 1e3:.0f} kB), 0 written, "
            f"a root of {root / 1e3:.0f} kB"
        )


def show_rebuild(found: RebuildFigures, plain: ReadFigures) -> None:
    mega = found.keys / 1e6
    print(f"rebuilt from LIST: {found.keys:,} keys in {found.pages:,} pages")
    print(
        f"  rebuild, from rows to groups    {found.seconds:8.1f} s   "
        f"{found.seconds / mega:.2f} us a key"
    )
    print(
        f"    acceptable fragments       {found.fragments:12,}    at most {found.window} undecided"
    )
    print(f"    groups                     {found.groups:12,}    {found.group_bytes / 1e6:.0f} MB")
    print(
        f"    peak memory                    {found.peak / 1e6:8.0f} MB, of which "
        f"{found.peak_before / 1e6:.0f} MB before it began; budget {BUDGET / 1e6:.0f} MB"
    )
    print(
        f"  reading those pages: {plain.pages} distinct answers of {PAGE:,} keys "
        f"({plain.page_bytes / 1e3:.0f} kB), median, times {found.pages:,}"
    )
    for name, seconds in (("botocore", plain.botocore), ("ElementTree", plain.element_tree)):
        whole = seconds * found.pages
        print(
            f"    {name:11} alone              {whole:8.1f} s   {seconds * 1e3:.1f} ms a page, "
            f"rebuild / reading = {found.seconds / whole:.3f}"
        )


def show_look_ups(extent: Extent, kinds: Iterable[tuple[str, LookUps]]) -> None:
    print(f"{extent.exbibyte:,} fragments ({extent.exbibyte * SIZE / 2**60:g} EiB), made lazily")
    for name, found in kinds:
        print(
            f"  {found.look_ups:,} look-ups by {name:6}       at most {found.most_reads} "
            f"node reads, {found.parsing * 1e6:.0f} us with checking them, "
            f"{found.warm * 1e6:.0f} us from memory"
        )


def show_costs(table: list[Costs]) -> None:
    print("one commit of each kind, nothing cached: requests to S3 and DynamoDB, kB read + written")
    print(
        f"  {'fragments':>13} {'root':>6}  {'append':>16}  {'next rebalance':>16}  "
        f"{'retain half':>16}  {'half by age':>16}  {'retain one':>16}"
    )
    for each in table:
        cells = [each.append, each.rebalance, each.half, each.age, each.one]
        print(
            f"  {each.fragments:13,} {each.entries:6,}  " + "  ".join(_cell(cost) for cost in cells)
        )


def _cell(cost: Cost) -> str:
    return f"{cost.requests:2}  {cost.read / 1e3:5.0f} + {cost.written / 1e3:4.0f}"


def ratios(found: RebuildFigures, plain: ReadFigures, most_reads: int, table: list[Costs]) -> None:
    ratio("scale-lookup-reads", most_reads, "<= 3")
    ratio("scale-rebuild", found.seconds / (plain.botocore * found.pages), "<= 1.0")
    ratio("scale-rebuild-bare-xml", found.seconds / (plain.element_tree * found.pages), "<= 1.0")
    ratio("scale-rebuild-memory", found.peak / BUDGET, "<= 1.0")
    # The longest of all rows against 10^4, the first decade whose root has been rebalanced. A root
    # has four levels of fewer than 2M entries each: it can be no longer than 8M entries, and costs
    # are those of the root and of at most three groups. Groups: three where 10^4 has one, so seven
    # requests where 10^4 has five. (Retention that ends exactly at a group's border reads two paths
    # of groups, as the petabyte's does above; none of these rows does.)
    start = next(each for each in table if each.fragments == 10**4)
    longest = 8 * M / start.entries
    for name in ("append", "rebalance", "half", "age", "one"):
        rows: list[Cost] = [getattr(each, name) for each in table]
        base: Cost = getattr(start, name)
        label = name if name in ("append", "rebalance") else f"retention-{name}"
        requests = max(row.requests for row in rows) / base.requests
        ratio(f"scale-{label}-requests", requests, f"<= {1.0 if name == 'append' else 1.4}")
        size = max(row.read + row.written for row in rows) / (base.read + base.written)
        ratio(f"scale-{label}-bytes", size, f"<= {longest:.1f}")


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--quick", action="store_true", help="short streams, seconds")
    extent = QUICK if options.parse_args().quick else FULL
    began = time.perf_counter()
    built = alone(build, extent.petabyte, extent.look_ups)
    show_build(extent, built)
    found, plain = alone(rebuild, extent.petabyte), alone(read, extent.read_pages)
    show_rebuild(found, plain)
    by_offset, by_time = alone(look_up, extent.exbibyte, extent.look_ups)
    show_look_ups(extent, (("offset", by_offset), ("time", by_time)))
    table = alone(costs, [*(10**decade for decade in range(10)), FULLEST])
    show_costs(table)
    most_reads = max(built.offset_reads, built.time_reads, by_offset.most_reads, by_time.most_reads)
    ratios(found, plain, most_reads, table)
    print(f"in {time.perf_counter() - began:.0f} s")


if __name__ == "__main__":
    main()
