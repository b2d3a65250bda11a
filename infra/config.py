"""Settings of a deployment: what `cdk.json` and `-c coldstream:name=value` may say, with limits."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from coldstream.errors import InvalidInputError
from infra import setting_values as values
from infra.setting_values import NAMESPACE, shown

# The time-out of every state machine whose functions write roots; the functions' own are shorter.
# Six hours let one run go over ten thousands of streams, and keep the grace time below a day.
PUBLISHING_TIMEOUT_SECONDS = 6 * 3600


# An execution of Step Functions ends after a year, and the sweep comes after the wait.
MAX_UNDELETE_SECONDS = 364 * 86_400

#: What a function takes beside the fragments that it holds.
_PYTHON_MIB = 256
_BUCKET = re.compile(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]")
_KEY = re.compile(r"arn:[a-z-]+:kms:[a-z0-9-]+:[0-9]{12}:key/[A-Za-z0-9-]{1,64}")
_SECRET = re.compile(
    r"arn:[a-z-]+:secretsmanager:[a-z0-9-]+:[0-9]{12}:secret:[A-Za-z0-9/_+=.@-]{1,520}"
)
_TABLE = re.compile(r"[A-Za-z0-9_.-]{3,255}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Everything that can differ between two deployments.

    In the context each name has dashes and the namespace: `coldstream:batch-window-seconds`. The
    values in use are those of `cdk.json`; nothing has a second default here.

    Attributes:
        stack_name: of the CloudFormation stack, and what the names of all that it makes begin with:
            one for each cluster. Small letters, digits and "-", at most 40 characters.
        prefix: everything coldstream stores lies below this key prefix; ends in "/".
        bucket_name: of the bucket of the streams; empty for a name that CloudFormation makes up.
            With the names of what an earlier stack left,
            `cdk deploy --import-existing-resources` takes it over.
        table_name: of the catalog; as above.
        warehouse_name: of the bucket of the tables; as above.
        encryption_key: ARN of a KMS key of the account, for both buckets; empty for S3's own key.
        protected: against deletion, stack and table. `make deploy` makes a new stack without it and
            then turns it on, so that a first deployment that fails is in nobody's way.
        alarm_email: who is told when an alarm goes off; empty for nobody.
        agents_behind_minutes: for how long something that is committed may wait to be published
            before an alarm goes off. Longer than the agents' flush time and the time before a
            take-over, both twice. 5 to 10080.
        batch_window_seconds: how long events are gathered before a commit. Longer means fewer
            commits, and as much more time until an upload is in the manifest. 1 to 60.
        max_concurrency: how many commit functions may run at once. 2 to 1000.
        reserved_concurrency: how much of the account's concurrency of Lambda the commit function
            has for itself, so that nothing else takes it; 0 for none, or `max_concurrency` to 1000.
        claim_concurrency: how many of the function that claims for the agents may run at once, kept
            for it; 0 for as many as the account has left. It is what agents may call at will, so
            this bounds what one with stolen credentials takes from all others. 0 to 1000.
        commit_memory_mib: memory of the functions that commit and claim, and with it their share of
            a CPU. 512 to 10240.
        step_memory_mib: the same of the workflows' functions; consolidate has 1024 at least. 512 to
            10240.
        reconcile_interval_minutes: how often streams are checked for uploads whose event was lost.
            1 to 1440.
        reconcile_idle_interval_minutes: how often streams are checked that have had no data for an
            hour. Each check is a LIST, which is what ten thousand idle streams cost. 1 to 10080.
        retention_interval_minutes: how often retention rules are applied. 1 to 8640, like the
            next two: no alarm could tell that what comes round less often than in six days does
            not come.
        consolidate_interval_minutes: how often small fragments are made into large ones.
        collect_interval_minutes: how often garbage is looked for, and deleted if it was found to be
            garbage one grace time before.
        fragment_size_mib: size that consolidation gives to fragments, in MiB, like the agents' own
            target size. 1 to 1024.
        branching: entries of a manifest's group, and half of what its root holds. 2 to 4096.
        grace_seconds: how long an object must have been garbage before it is deleted; at least
            twice the longest time in which a workflow may publish. 1 to 2592000.
        undelete_seconds: how long a deleted stream can be had back, and the longest time that
            `coldstream delete --undelete` may ask for. 0 to 31449600: the execution that waits for
            it, and then sweeps, may take a year. At least as long as this, or as the grace time if
            that is shorter, a deletion waits whatever time was asked for.
        deleted_kept_days: for how long S3 keeps what was deleted, garbage too; 1 to 365.
        archive_after_days: after so long S3 moves data of 1 MiB and more to Glacier Instant
            Retrieval: cheaper to keep, dearer to read, 90 days at least. 0 for never, to 3650.
        step_timeout_seconds: the longest run of a workflow's function. 30 to 900.
        testing: a deployment that holds nothing of value: its grace time may be as short as its
            tests want.
        log_retention_days: how long the functions' logs are kept; a value CloudWatch knows.
        tracing: whether X-Ray gets a sample of what functions and machines do.
        database: in the Glue Data Catalog, for the tables of all jobs: small letters, digits, "_";
            empty for the stack's name with "_" for "-".
        materialise_rules: which streams the job materialise puts into which tables: JSON, or the
            s3:// URL of a file with it below materialise/ in the warehouse; empty if whoever starts
            the job says so each time.
        materialise_interval_minutes: how often the job materialise runs; 0 for only when a person
            starts it, as for all jobs: each run costs money. 0, or 5 to 43200.
        table_maintenance: who merges files of the tables of materialise and forgets their versions:
            own, the job itself where it is told to; or glue, the table optimisers of AWS Glue,
            which it then switches on, with a role of their own.
        catalog_secret: ARN of the secret in AWS Secrets Manager that the job materialise may read:
            the token or credential of a REST catalog that a rule names; empty for none.
        scrub_interval_minutes: how often the job scrub runs. 0, or 60 to 43200.
        profile_interval_minutes: how often the job profile runs. 0, or 60 to 43200.
        fleet_interval_minutes: how often the job fleet runs. 0, or 60 to 43200.
        job_workers: the most workers of one run of a job (G.1X: 4 cores, 16 GB); Glue adds them as
            they are needed. 2 to 299.
        agent_principals: who may assume the agents' role besides EC2 instances: account ids, or
            ARNs of roles and users; in the context one string, separated by commas.
    """

    stack_name: str
    prefix: str
    bucket_name: str
    table_name: str
    warehouse_name: str
    encryption_key: str
    protected: bool
    alarm_email: str
    agents_behind_minutes: int
    batch_window_seconds: int
    max_concurrency: int
    reserved_concurrency: int
    claim_concurrency: int
    commit_memory_mib: int
    step_memory_mib: int
    reconcile_interval_minutes: int
    reconcile_idle_interval_minutes: int
    retention_interval_minutes: int
    consolidate_interval_minutes: int
    collect_interval_minutes: int
    fragment_size_mib: int
    branching: int
    grace_seconds: int
    undelete_seconds: int
    deleted_kept_days: int
    archive_after_days: int
    step_timeout_seconds: int
    testing: bool
    log_retention_days: int
    tracing: bool
    database: str
    materialise_rules: str
    materialise_interval_minutes: int
    table_maintenance: str
    catalog_secret: str
    scrub_interval_minutes: int
    profile_interval_minutes: int
    fleet_interval_minutes: int
    job_workers: int
    agent_principals: tuple[str, ...]

    @classmethod
    def from_context(cls, context: Mapping[str, Any]) -> Settings:
        """Read the settings from the app's context. Other tools' entries are ignored.

        Raises:
            InvalidInputError: a setting is missing, unknown, or outside its limits.
        """
        given = {
            name.removeprefix(NAMESPACE).replace("-", "_"): value
            for name, value in context.items()
            if name.startswith(NAMESPACE)
        }
        known = [field.name for field in fields(cls)]
        for name in given:
            if name not in known:
                raise InvalidInputError(f"unknown setting {shown(name)}")
        for name in known:
            if name not in given:
                raise InvalidInputError(f"the setting {shown(name)} is missing; see cdk.json")
        stack_name = values.stack_name(given["stack_name"])
        settings = cls(
            stack_name=stack_name,
            prefix=values.prefix(given["prefix"]),
            bucket_name=values.named(given, "bucket_name", _BUCKET),
            table_name=values.named(given, "table_name", _TABLE),
            warehouse_name=values.named(given, "warehouse_name", _BUCKET),
            encryption_key=values.named(given, "encryption_key", _KEY),
            protected=values.yes_or_no(given, "protected"),
            alarm_email=values.email(given["alarm_email"]),
            agents_behind_minutes=values.whole(given, "agents_behind_minutes", 5, 10_080),
            # A batch of more than ten messages needs a window of at least one second.
            batch_window_seconds=values.whole(given, "batch_window_seconds", 1, 60),
            max_concurrency=values.whole(given, "max_concurrency", 2, 1000),
            reserved_concurrency=values.whole(given, "reserved_concurrency", 0, 1000),
            claim_concurrency=values.whole(given, "claim_concurrency", 0, 1000),
            commit_memory_mib=values.whole(given, "commit_memory_mib", 512, 10_240),
            step_memory_mib=values.whole(given, "step_memory_mib", 512, 10_240),
            reconcile_interval_minutes=values.whole(given, "reconcile_interval_minutes", 1, 1440),
            reconcile_idle_interval_minutes=values.whole(
                given, "reconcile_idle_interval_minutes", 1, 10_080
            ),
            retention_interval_minutes=values.interval(given, "retention_interval_minutes"),
            consolidate_interval_minutes=values.interval(given, "consolidate_interval_minutes"),
            collect_interval_minutes=values.interval(given, "collect_interval_minutes"),
            fragment_size_mib=values.whole(given, "fragment_size_mib", 1, 1024),
            branching=values.whole(given, "branching", 2, 4096),
            grace_seconds=values.whole(given, "grace_seconds", 1, 30 * 86_400),
            undelete_seconds=values.whole(given, "undelete_seconds", 0, MAX_UNDELETE_SECONDS),
            deleted_kept_days=values.whole(given, "deleted_kept_days", 1, 365),
            archive_after_days=values.whole(given, "archive_after_days", 0, 3650),
            step_timeout_seconds=values.whole(given, "step_timeout_seconds", 30, 900),
            testing=values.yes_or_no(given, "testing"),
            log_retention_days=values.retention(values.whole(given, "log_retention_days", 1, 365)),
            tracing=values.yes_or_no(given, "tracing"),
            database=values.database(given["database"] or stack_name.replace("-", "_")),
            materialise_rules=values.text("materialise_rules", given["materialise_rules"]),
            materialise_interval_minutes=values.off_or(given, "materialise_interval_minutes", 5),
            table_maintenance=values.maintenance(given["table_maintenance"]),
            catalog_secret=values.named(given, "catalog_secret", _SECRET),
            scrub_interval_minutes=values.off_or(given, "scrub_interval_minutes", 60),
            profile_interval_minutes=values.off_or(given, "profile_interval_minutes", 60),
            fleet_interval_minutes=values.off_or(given, "fleet_interval_minutes", 60),
            job_workers=values.whole(given, "job_workers", 2, 299),
            agent_principals=values.principals(given["agent_principals"]),
        )
        _check_grace(settings)
        _check_reserved(settings)
        _check_commit_memory(settings)
        if settings.materialise_interval_minutes and not settings.materialise_rules:
            raise InvalidInputError(
                f"{shown('materialise_interval_minutes')} needs {shown('materialise_rules')}: a"
                " schedule cannot say which streams go into which tables"
            )
        return settings


def refuse_move(settings: Settings, written: Settings) -> None:
    """Refuse another prefix for the stack that cdk.json describes.

    Given alone for one command it does not make a second cluster's stack: it moves the first one,
    whose uploads then raise no events. Whoever means that writes it into cdk.json.

    Args:
        settings: what is to be deployed.
        written: what cdk.json says.

    Raises:
        InvalidInputError: the stack would be moved.
    """
    if settings.stack_name == written.stack_name and settings.prefix != written.prefix:
        raise InvalidInputError(
            f"{shown('prefix')} {settings.prefix} is not that of the stack {written.stack_name} in"
            f" cdk.json, {written.prefix}: another cluster needs {shown('stack_name')}, too"
        )


def default_context(root: Path) -> dict[str, Any]:
    """The context of `cdk.json`, so that `python app.py` works without the CDK's own CLI."""
    context: dict[str, Any] = json.loads((root / "cdk.json").read_text("utf-8"))["context"]
    return context


def _check_grace(settings: Settings) -> None:
    """Nothing may be deleted while a run that began before may still publish a reference to it.

    Raises:
        InvalidInputError: the grace time is too short for that.
    """
    longest = max(PUBLISHING_TIMEOUT_SECONDS, settings.step_timeout_seconds)
    if settings.grace_seconds < 2 * longest and not settings.testing:
        raise InvalidInputError(
            f"{shown('grace_seconds')} must be at least {2 * longest}: twice the longest time in"
            f" which a workflow may publish; only with {shown('testing')} it may be less"
        )


def _check_reserved(settings: Settings) -> None:
    """What the queue's poller may start must not be throttled by the function's own limit.

    Raises:
        InvalidInputError: it would be.
    """
    if 0 < settings.reserved_concurrency < settings.max_concurrency:
        raise InvalidInputError(
            f"{shown('reserved_concurrency')} must be 0 for none, or at least"
            f" {shown('max_concurrency')}, {settings.max_concurrency}"
        )


def _check_commit_memory(settings: Settings) -> None:
    """A claim that cuts a fragment holds it three times (`usecases.truncate`), beside Python.

    Raises:
        InvalidInputError: it would die of that each time, and its stream stand still.
    """
    least = 3 * settings.fragment_size_mib + _PYTHON_MIB
    if settings.commit_memory_mib < least:
        raise InvalidInputError(
            f"{shown('commit_memory_mib')} must be at least {least}: three fragments of"
            f" {shown('fragment_size_mib')}, {settings.fragment_size_mib}, and {_PYTHON_MIB}"
        )
