"""What a deployment costs a month, without storage: counted on the embedded AWS, priced by a table.

Real functions and machines run; the server counts requests, transitions and invocations. Each
schedule is started once for every scenario, and counted as often as it comes in a month. What grows
with streams is measured as the difference that some streams make, and taken for as many as the
scenario has. Lambda's time is this machine's wall time, at the memory that each function has in the
template. What only AWS or an agent asks for is added by its own rules (`bench.cost_added`).
"""

from __future__ import annotations

import json
import os
import secrets
import time
from collections import Counter
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from http.client import HTTPConnection
from urllib.parse import urlsplit

import boto3

from bench import report
from bench.cloud import WINDOW_SECONDS
from bench.cost_added import alarm_metrics, deployed_memory_gb, polls, template_alarms, words
from bench.prices import FREE, MONTH_HOURS, PRICES
from bench.site import context, site
from coldstream import deployment
from coldstream.agent.settings import AgentSettings
from coldstream.manifest.catalog import QueueName
from coldstream.plans.claim import NO_HISTORY
from coldstream.plans.policy import PolicySet
from coldstream.plans.turns import SEARCH_ROUNDS, is_in_turn
from coldstream.remote.context import Context
from coldstream.usecases.claim import anchor
from coldstream.usecases.commit_runs import commit_runs
from coldstream.usecases.scan import ScanFor, scan
from coldstream_devkit.claims import claim
from coldstream_devkit.fragments import SyntheticFragment, build_fragment

#: How often each schedule comes a month, with the settings of cdk.json.
RUNS = {
    "reconcile": MONTH_HOURS * 12,
    "retention": MONTH_HOURS,
    "consolidate": MONTH_HOURS,
    "collect": MONTH_HOURS / 24,
}
#: `--flush` of the busy scenario that has a goal, and the agent's own, which has none.
FLUSH_SECONDS, OWN_FLUSH_SECONDS = 300, AgentSettings().flush_ms // 1000
EVERY_MS = 300_000  # from one run of reconcile to the next
TURNS = 12  # in which it looks at each idle stream once
MIB = 2**20

Counts = Mapping[str, float]
#: The part of the bill that grows with streams and not with fragments.
_COMPARED = "agents: s3"


def counts() -> Counter[str]:
    """What the server has counted so far."""
    there = urlsplit(os.environ["AWS_ENDPOINT_URL"])
    with closing(HTTPConnection(there.hostname or "", there.port)) as connection:
        connection.request("GET", "/_localaws/counts")
        return Counter(json.load(connection.getresponse()))


def counted(act: Callable[[], object]) -> Counter[str]:
    """What the server counts while `act` runs."""
    before = counts()
    act()
    after = counts()
    after.subtract(before)
    return Counter({name: value for name, value in after.items() if value > 0})


def dollars(found: Counts, memory_gb: Mapping[str, float]) -> dict[str, float]:
    """The price of what was counted, by service.

    Args:
        found: what was counted.
        memory_gb: of each function, by its module's name.

    Raises:
        KeyError: something was counted that has no price, or a function that has no memory.
    """
    sums: dict[str, float] = {}
    for name, value in found.items():
        service = name.partition(".")[0]
        if name.startswith("lambda.") and name != "lambda.Invoke":
            function = name.split(".")[1]
            price = (
                PRICES["lambda.gb_seconds"] * memory_gb[function]
                if name.endswith(".seconds")
                else PRICES["lambda.requests"]
            )
        elif name in FREE or _is_of_the_bench(name):
            continue
        else:
            price = PRICES[name]
        sums[service] = sums.get(service, 0.0) + value * price
    return sums


def _is_of_the_bench(name: str) -> bool:
    """Whether this program, the CDK or the emulator itself asks for it, and no function."""
    return name.startswith(("awsstepfunctions.", "other.", "monitoring", "graniteserviceversion"))


@dataclass(slots=True)
class Bill:
    """What one scenario comes to a month.

    Attributes:
        name: of the scenario.
        parts: dollars by what they are for.
    """

    name: str
    parts: dict[str, float]

    @property
    def total(self) -> float:
        """Dollars a month."""
        return sum(self.parts.values())

    def show(self, goal: float | None) -> None:
        """Print the parts, the largest first, and the ratio to a goal."""
        print(f"\n{self.name}: {self.total:.2f} $ a month")
        for part, value in sorted(self.parts.items(), key=lambda each: -each[1]):
            if value >= 0.005:
                print(f"  {value:8.2f}  {part}")
        if goal is not None:
            report.ratio(f"cost-{self.name}", self.total, f"<= {goal:g}")


class Tier:
    """The deployed app, and short ways to fill and run it."""

    def __init__(self, there: Context) -> None:
        self.there = there
        self._machines = boto3.client("stepfunctions")
        self._prefix = os.environ[deployment.ENV_WORKFLOWS]
        self._made = 0
        #: Streams at rest, and those of them that the last run of reconcile looked at.
        self.at_rest: list[str] = []
        self.in_turn = 0
        self.memory_gb = deployed_memory_gb()

    def dollars(self, found: Counts) -> dict[str, float]:
        """The price of what was counted, by service."""
        return dollars(found, self.memory_gb)

    def monthly(self, runs: Mapping[str, Counts]) -> dict[str, float]:
        """Dollars a month of the schedules, by schedule and service."""
        parts: dict[str, float] = {}
        for name, found in runs.items():
            for service, value in self.dollars(found).items():
                parts[f"{name}: {service}"] = value * RUNS[name]
            parts[f"{name}: scheduler"] = PRICES["scheduler.invocations"] * RUNS[name]
        return parts

    def run(self, workflow: str) -> None:
        """Run a machine as its schedule starts it, to its end."""
        if workflow == "reconcile":
            while _searches_or_ends():
                time.sleep(1)  # `searches` counts what this run would do now and then
            self.in_turn = sum(_in_turn_now(stream) for stream in self.at_rest)
        started = self._machines.start_execution(
            stateMachineArn=self._prefix + workflow,
            input=json.dumps({"reason": deployment.REASON_SCHEDULE}),
        )
        while True:
            found = self._machines.describe_execution(executionArn=started["executionArn"])
            if found["status"] != "RUNNING":
                break
            time.sleep(0.2)
        if found["status"] != "SUCCEEDED":
            raise RuntimeError(f"{workflow} {found['status']}: {found.get('cause', '')[:500]}")

    def schedules(self) -> dict[str, Counter[str]]:
        """What one run of each schedule counts."""
        return {name: counted(partial(self.run, name)) for name in RUNS}

    def slope(
        self, more: Mapping[str, Counts], base: Mapping[str, Counts], many: int
    ) -> dict[str, Counts]:
        """The counts of `many` streams at rest, where those that are here made the difference.

        A run of reconcile is taken for as many as it looked at, which the names alone decide, so
        that the bill does not hang on which names were drawn.
        """
        found = slope(more, base, many, len(self.at_rest))
        turn = {"reconcile": more["reconcile"]}
        return found | slope(turn, base, many, TURNS * max(1, self.in_turn))

    def stream(self) -> str:
        """A new stream, claimed, without data."""
        self._made += 1
        stream = f"__cost{self._made}_{time.time_ns()}"
        anchor(self.there, stream, 0, QueueName())
        claim(self.there, stream, 1, log=NO_HISTORY, pause=lambda attempt: None)
        return stream

    def idle(self, many: int) -> None:
        """Streams with one old fragment each."""

        def one(_: int) -> None:
            stream = self.stream()
            self.upload(piece(stream, 0, size=200, at_ms=1_000_000))
            commit_runs(self.there, stream, pause=lambda attempt: None)
            self.at_rest.append(stream)

        with ThreadPoolExecutor(6) as pool:
            list(pool.map(one, range(many)))

    def upload(self, fragment: SyntheticFragment) -> None:
        """PUT a fragment, as an agent does."""
        path = fragment.path(self.there.prefix)
        self.there.store.put(path, fragment.data, write_id=secrets.token_hex(8))

    def followed(self, streams: Mapping[str, int]) -> None:
        """Wait until manifests end where they should."""
        left = dict(streams)
        deadline = time.monotonic() + 120
        while left:
            if time.monotonic() > deadline:
                raise RuntimeError(f"{len(left)} manifests do not follow")
            time.sleep(0.5)
            for stream, end in list(left.items()):
                item = self.there.catalog.get(stream)
                if item is not None and item.next_offset >= end:
                    del left[stream]


def piece(
    stream: str, first: int, *, size: int, at_ms: int = 0, after: SyntheticFragment | None = None
) -> SyntheticFragment:
    """A fragment of ten offsets and about `size` bytes; `after` is what its segment has before."""
    before = after.trailer if after is not None else None
    return build_fragment(
        first,
        first + 10,
        stream=stream,
        uid=secrets.randbits(64),
        body_size=max(8, size // 10),
        timestamps=(at_ms or time.time_ns() // 1_000_000,),
        segment_offset=before.segment_offset if before else None,
        segment_position=before.segment_position + before.data_size if before else 8,
    )


def fixed() -> dict[str, float]:
    """What is paid for although nothing happens."""
    return {
        "alarms": alarm_metrics(template_alarms()) * PRICES["alarm"],
        "commit_runs: sqs, idle polls": polls(),
    }


def own_metrics() -> float:
    """Dollars for the metrics that functions have reported."""
    pages = (
        boto3.client("cloudwatch")
        .get_paginator("list_metrics")
        .paginate(Namespace=deployment.METRIC_NAMESPACE)
    )
    return sum(len(page["Metrics"]) for page in pages) * PRICES["metric"]


def told_of_test_event() -> float:
    """Dollars for the metrics of the one event that S3 sends for a new bucket; waits for it."""
    for _ in range(60):
        if (found := own_metrics()) > 0:
            return found
        time.sleep(0.5)
    return 0.0


def slope(
    more: Mapping[str, Counts], base: Mapping[str, Counts], many: int, of: int
) -> dict[str, Counts]:
    """The counts of `many` streams, where `of` have made the difference from `base`."""

    def one(now: Counts, before: Counts) -> Counts:
        return {
            key: before.get(key, 0) + max(0, now.get(key, 0) - before.get(key, 0)) * many / of
            for key in {*now, *before}
        }

    return {name: one(more[name], base[name]) for name in more}


def searches(tier: Tier, streams: int, of: int) -> dict[str, float]:
    """Dollars a month for reconcile's search of the bucket, every three hours, with `streams`.

    It is a part of one run in 36, so the runs that are counted leave it out (`Tier.run`).
    """

    def look() -> None:
        cursor: str | None = "missing:"  # where such a run is behind the table
        while cursor is not None:
            page = scan(
                tier.there, ScanFor.RECONCILE, PolicySet(), now_ms=0, target_size=1, cursor=cursor
            )
            cursor = page.cursor

    started = time.perf_counter()
    found = counted(look)
    found["lambda.scan.seconds"] = time.perf_counter() - started  # type: ignore[assignment]
    return {
        f"reconcile's search of the bucket: {service}": value
        * MONTH_HOURS
        / SEARCH_ROUNDS
        * streams
        / of
        for service, value in tier.dollars(found).items()
    }


def _in_turn_now(stream: str, rounds: int = 1) -> bool:
    now_ms = time.time_ns() // 10**6
    return is_in_turn(stream, now_ms=now_ms, every_ms=EVERY_MS, idle_ms=rounds * TURNS * EVERY_MS)


def _searches_or_ends() -> bool:
    """Whether a run of reconcile that began now would search the bucket, or the turn ends soon."""
    left_ms = EVERY_MS - time.time_ns() // 10**6 % EVERY_MS
    return _in_turn_now("", SEARCH_ROUNDS) or left_ms < 10_000


def main() -> None:
    """Count, price, print."""
    quick = report.quick(__doc__)
    streams, flowing, paced = (24, 3, 6) if quick else (3600, 20, 100)
    small = 200 if quick else 3 * MIB
    with site():
        there = context()
        tier = Tier(there)
        tier.run("reconcile")  # the first one looks through the bucket
        before = told_of_test_event()
        base = tier.schedules()
        always = fixed()
        Bill("idle", {**always, **tier.monthly(base), "metrics": own_metrics() - before}).show(6)

        tier.idle(streams)
        tier.run("collect")  # the first one makes its record
        some = tier.schedules()
        of_many = tier.monthly(tier.slope(some, base, 10_000))
        of_many |= searches(tier, 10_000, streams)
        # An agent looks every two hours whether what it has uploaded is still there.
        of_many["agents: dynamodb"] = 10_000 * MONTH_HOURS / 2 * PRICES["dynamodb.GetItem"]
        of_many["agents: heartbeats"] = words(10_000, moving=False)
        # No event comes to streams at rest, so the commit function reports nothing.
        Bill("10000-idle", {**always, **of_many, "metrics": own_metrics() - before}).show(60)

        quiet = {name: some[name] for name in ("reconcile", "retention", "collect")}
        parts = {**always, **tier.monthly(tier.slope(quiet, base, 1000))}
        parts |= searches(tier, 1000, streams)
        parts["agents: heartbeats and words"] = words(1000, moving=True)
        committed = commits(tier, paced)
        merged = consolidations(tier, some["consolidate"], flowing, small)
        always_told = {"metrics": own_metrics()}
        Bill("1000-busy-flush-5m", {**parts, **committed, **merged, **always_told}).show(250)

        # More fragments, and smaller ones. One costs as much, or less where a commit takes several.
        more = FLUSH_SECONDS // OWN_FLUSH_SECONDS
        committed = {
            name: value if name == _COMPARED else more * value for name, value in committed.items()
        }
        few, smaller = max(2, flowing // 4), max(200, small // more)
        merged = consolidations(tier, some["consolidate"], few, smaller, 12 * more)
        name = f"1000-busy-flush-{OWN_FLUSH_SECONDS}s"
        Bill(name, {**parts, **committed, **merged, **always_told}).show(None)


def commits(tier: Tier, paced: int) -> dict[str, float]:
    """Dollars a month for the fragments of 1,000 streams of 10 messages a second.

    Each stream makes one in five minutes; they are uploaded at the pace of all together.
    """
    chosen = [tier.stream() for _ in range(paced)]
    fragments = 1000 * MONTH_HOURS * 3600 / FLUSH_SECONDS

    def at_their_pace() -> None:
        pause = FLUSH_SECONDS / 1000
        for stream in chosen:
            tier.upload(piece(stream, 0, size=200))
            time.sleep(pause)

    found = counted(at_their_pace)
    before = counts()
    tier.followed(dict.fromkeys(chosen, 10))
    looks = counts()
    looks.subtract(before)
    # What waits for the manifests is this program's look, not a function's.
    found.update({k: v for k, v in looks.items() if k != "dynamodb.GetItem" and v > 0})
    per_fragment = {key: value / paced for key, value in found.items()}
    messages = 3 * PRICES["sqs.messages"]  # sent, received, deleted: in the worst case one by one

    parts = {f"commits: {k}": v * fragments for k, v in tier.dollars(per_fragment).items()}
    parts["commits: sqs"] = messages * fragments
    # After an upload an agent looks at the item now and then until the manifest follows.
    reads = 1 + WINDOW_SECONDS / AgentSettings().watch_seconds
    parts["agents: dynamodb"] = reads * PRICES["dynamodb.GetItem"] * fragments
    # Every ten minutes it compares what others have uploaded, and reads the root for it.
    parts[_COMPARED] = 1000 * MONTH_HOURS * 6 * PRICES["s3.GetObject"]
    return parts


def consolidations(
    tier: Tier, idle: Counts, flowing: int, small: int, pieces: int = 12
) -> dict[str, float]:
    """Dollars a month for putting an hour's fragments of 1,000 streams together.

    Args:
        tier: where.
        idle: what a run counts that has nothing to do.
        flowing: streams that are measured.
        small: bytes of a fragment.
        pieces: fragments of a stream in an hour.
    """
    ends: dict[str, int] = {}
    for stream in [tier.stream() for _ in range(flowing)]:
        last = None
        for number in range(pieces):
            last = piece(stream, 10 * number, size=small, after=last)
            tier.upload(last)
        ends[stream] = 10 * pieces
    tier.followed(ends)
    merged = counted(lambda: tier.run("consolidate"))
    items = [tier.there.catalog.get(stream) for stream in ends]
    left = {item.fragments for item in items if item is not None}
    if left != {1}:
        raise RuntimeError(f"an hour's fragments did not become one: {left}")
    many = slope({"consolidate": merged}, {"consolidate": idle}, 1000, flowing)
    return tier.monthly(many)


if __name__ == "__main__":
    main()
