"""Suites for the AWS adapters that change things: objects, states, rules, workflows."""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from coldstream.adapters.dynamodb import DynamoCatalog
from coldstream.adapters.dynamodb_heartbeats import DynamoHeartbeats
from coldstream.adapters.dynamodb_offsets import DynamoOffsets
from coldstream.adapters.dynamodb_policies import DynamoPolicies
from coldstream.adapters.s3_boto import BotoObjectStore
from coldstream.adapters.s3_compose import S3Composer
from coldstream.adapters.s3_delete import S3Deleter
from coldstream.adapters.s3_versions import S3Versions
from coldstream.adapters.stepfunctions import StepFunctionsWorkflows
from coldstream.errors import CorruptDataError, InvalidInputError
from coldstream.manifest.catalog import CatalogItem, changed
from coldstream.names import (
    CATALOG_ITEM,
    CATALOG_PARTITION_KEY,
    CATALOG_SORT_KEY,
    POLICIES_ITEM,
    heartbeat_partition,
    offsets_partition,
)
from coldstream.plans.heartbeats import MAX_INTERVAL_MS, Heartbeat
from coldstream.plans.policy import PolicySet
from coldstream.ports import (
    Catalog,
    Composer,
    ConsumerOffsets,
    Deleter,
    Heartbeats,
    Landed,
    ObjectStore,
    Policies,
    VersionDeleter,
    Workflows,
)
from coldstream_devkit.suites.adoption import AdoptionSuite
from coldstream_devkit.suites.compose import ComposerSuite, LostComposeAnswerSuite
from coldstream_devkit.suites.delete import DeleterSuite, LostDeleteAnswerSuite
from coldstream_devkit.suites.heartbeats import ONE as ONE_BEAT
from coldstream_devkit.suites.heartbeats import TWO as OTHER_BEAT
from coldstream_devkit.suites.heartbeats import HeartbeatsSuite
from coldstream_devkit.suites.object_store import StoreFixtures
from coldstream_devkit.suites.odd_keys import OddKeysDeleteSuite
from coldstream_devkit.suites.offsets import MOST, OffsetsSuite
from coldstream_devkit.suites.policies import ONE, LostSaveAnswerSuite, PoliciesSuite
from coldstream_devkit.suites.state import (
    LostChangeAnswerSuite,
    RulesSuite,
    StateSuite,
    change_of,
)
from coldstream_devkit.suites.versions import LostVersionAnswerSuite, VersionDeleterSuite
from coldstream_devkit.suites.workflows import WORKFLOW, LostStartAnswerSuite, WorkflowsSuite
from tests.support import faults
from tests.support.aws import BUCKET, PREFIX, TABLE, create_table

ROLE = "arn:aws:iam::000000000000:role/states"
STACK = "contract-"
WAITING = {"StartAt": "Wait", "States": {"Wait": {"Type": "Wait", "Seconds": 9999, "End": True}}}


class _OnS3(StoreFixtures):
    """Needs the fixture `s3` (client)."""

    @pytest.fixture
    def store(self, s3: Any) -> ObjectStore:
        return BotoObjectStore(client=s3, bucket=BUCKET)


class S3DeleterRules(_OnS3, DeleterSuite, OddKeysDeleteSuite, LostDeleteAnswerSuite):
    """Both suites for `S3Deleter`; needs the fixture `s3` (client)."""

    @pytest.fixture
    def deleter(self, s3: Any) -> Deleter:
        return S3Deleter(client=s3, bucket=BUCKET)

    @pytest.fixture
    def lose_delete_answers(self, s3: Any) -> Callable[[int], None]:
        return partial(faults.lose_answers, s3, "DeleteObjects")

    @pytest.fixture
    def lose_delete_requests(self, s3: Any) -> Callable[[int], None]:
        return partial(faults.lose_requests, s3, "DeleteObjects")

    @pytest.fixture
    def refuse_keys(self, s3: Any) -> Callable[..., None]:
        return partial(faults.leave_keys, s3)


class S3VersionsRules(VersionDeleterSuite, LostVersionAnswerSuite):
    """Both suites for `S3Versions`, in a bucket of their own; needs the fixture `s3` (client)."""

    _BUCKET = f"versions-{secrets.token_hex(4)}"

    @pytest.fixture
    def store(self, s3: Any) -> ObjectStore:
        names = [each["Name"] for each in s3.list_buckets()["Buckets"]]
        if self._BUCKET not in names:
            s3.create_bucket(Bucket=self._BUCKET)
            s3.put_bucket_versioning(
                Bucket=self._BUCKET, VersioningConfiguration={"Status": "Enabled"}
            )
        return BotoObjectStore(client=s3, bucket=self._BUCKET)

    @pytest.fixture
    def deleter(self, s3: Any) -> Deleter:
        return S3Deleter(client=s3, bucket=self._BUCKET)

    @pytest.fixture
    def versions(self, s3: Any) -> VersionDeleter:
        return S3Versions(client=s3, bucket=self._BUCKET)

    @pytest.fixture
    def lose_delete_answers(self, s3: Any) -> Callable[[int], None]:
        return partial(faults.lose_answers, s3, "DeleteObjects")


class S3ComposerRules(_OnS3, ComposerSuite, LostComposeAnswerSuite):
    """Both suites for `S3Composer`; needs the fixture `s3` (client)."""

    _s3: Any

    @pytest.fixture
    def composer(self, s3: Any) -> Composer:
        self._s3 = s3
        return S3Composer(client=s3, bucket=BUCKET)

    def uploads(self, prefix: str) -> list[str]:
        rows = self._s3.list_multipart_uploads(Bucket=BUCKET).get("Uploads", [])
        return [row["Key"] for row in rows if row["Key"].startswith(prefix)]

    @pytest.fixture
    def lose_step_answers(self, s3: Any) -> Callable[[str, int], None]:
        return partial(faults.lose_answers, s3)

    @pytest.fixture
    def lose_step_requests(self, s3: Any) -> Callable[[str, int], None]:
        return partial(faults.lose_requests, s3)

    @pytest.fixture
    def answer_step(self, s3: Any) -> Callable[[str, int, str, int], None]:
        return partial(faults.answer_error, s3)

    def test_no_byte_of_a_copied_part_passes_through_the_caller(
        self, s3: Any, composer: Composer, source: str, target: str
    ) -> None:
        from coldstream.ports import CopyPart

        sent: list[str] = []
        s3.meta.events.register("before-call.s3", lambda model, **_: sent.append(model.name))

        composer.compose(target, [CopyPart(source, 0, 100)], write_id="one")

        assert sent == [
            "HeadObject", "CreateMultipartUpload", "UploadPartCopy", "CompleteMultipartUpload",
        ]  # fmt: skip


class DynamoOffsetsRules(OffsetsSuite):
    """The suite for `DynamoOffsets`; needs the fixture `dynamodb` (client)."""

    @pytest.fixture
    def prefix(self) -> str:
        return f"t{secrets.token_hex(4)}/"

    @pytest.fixture
    def offsets(self, dynamodb: Any, prefix: str) -> ConsumerOffsets:
        return DynamoOffsets(client=dynamodb, table=TABLE, prefix=prefix, most=MOST)

    @pytest.mark.parametrize("stored", [{"N": "-1"}, {"N": str(2**70)}, {"S": "7"}, {"N": "1.5"}])
    def test_what_is_no_offset_is_an_error(
        self, dynamodb: Any, prefix: str, offsets: ConsumerOffsets, stored: dict[str, Any]
    ) -> None:
        key = {"stream": {"S": offsets_partition(prefix, "__s_1")}, "item": {"S": "app"}}
        dynamodb.put_item(TableName=TABLE, Item={**key, "offset": stored})

        with pytest.raises(CorruptDataError, match="__s_1"):
            offsets.query("__s_1", "app")

    def test_the_catalog_does_not_see_them(
        self, dynamodb: Any, prefix: str, offsets: ConsumerOffsets
    ) -> None:
        offsets.store("__s_1", "app", 7)

        catalog = DynamoCatalog(client=dynamodb, table=TABLE, prefix=prefix)
        assert list(catalog.streams()) == []


class DynamoHeartbeatsRules(HeartbeatsSuite):
    """The suite for `DynamoHeartbeats`; needs the fixture `dynamodb` (client)."""

    @pytest.fixture
    def prefix(self) -> str:
        return f"t{secrets.token_hex(4)}/"

    @pytest.fixture
    def heartbeats(self, dynamodb: Any, prefix: str) -> Heartbeats:
        return DynamoHeartbeats(client=dynamodb, table=TABLE, prefix=prefix)

    @pytest.mark.parametrize(
        "changed",
        [
            {"at_ms": {"N": "-1"}},
            {"streams": {"N": str(2**70)}},
            {"behind": {"S": "many"}},
            {"failing": {"N": "1.5"}},
            {"interval_ms": {"N": str(MAX_INTERVAL_MS + 1)}},
            {"item": {"S": "n" * 300}},
            {"instance": {"S": "f" * 33}},
        ],
    )
    def test_a_heartbeat_that_none_can_have_is_an_error_and_the_others_are_read(
        self, dynamodb: Any, prefix: str, heartbeats: Heartbeats, changed: dict[str, Any]
    ) -> None:
        for each in (ONE_BEAT, OTHER_BEAT):
            heartbeats.beat(each)
        found = dynamodb.get_item(
            TableName=TABLE,
            Key={"stream": {"S": heartbeat_partition(prefix)}, "item": {"S": ONE_BEAT.node}},
        )["Item"]
        dynamodb.put_item(TableName=TABLE, Item=found | {"item": {"S": "odd"}} | changed)

        read = heartbeats.all()

        assert sum(isinstance(each, CorruptDataError) for each in read) == 1
        assert {ONE_BEAT, OTHER_BEAT} <= {each for each in read if isinstance(each, Heartbeat)}

    def test_a_heartbeat_of_an_older_agent_which_says_less_is_read_and_given_back(
        self, dynamodb: Any, prefix: str, heartbeats: Heartbeats
    ) -> None:
        heartbeats.beat(ONE_BEAT)
        where = {"stream": {"S": heartbeat_partition(prefix)}, "item": {"S": ONE_BEAT.node}}
        item = dynamodb.get_item(TableName=TABLE, Key=where)["Item"]
        for name in ("racing", "pages", "lag_ms", "left_out", "shared", "instance"):
            del item[name]
        dynamodb.put_item(TableName=TABLE, Item=item)

        (read,) = heartbeats.all()
        assert isinstance(read, Heartbeat)
        assert (read.at_ms, read.shared, read.instance) == (ONE_BEAT.at_ms, 0, "")
        assert heartbeats.beat(ONE_BEAT) == read

    def test_a_thief_who_writes_very_many_heartbeats_is_told_of_and_fills_no_memory(
        self, heartbeats: Heartbeats
    ) -> None:
        for number in range(1002):
            heartbeats.beat(replace(ONE_BEAT, node=f"n{number}"))

        read = heartbeats.all()

        assert len(read) == 1001
        assert isinstance(read[-1], CorruptDataError)
        assert sum(isinstance(each, Heartbeat) for each in read) == 1000


class DynamoStateRules(StateSuite, RulesSuite, LostChangeAnswerSuite, AdoptionSuite):
    """All suites for `DynamoCatalog`; needs the fixture `dynamodb` (client)."""

    @pytest.fixture
    def prefix(self) -> str:
        return f"t{secrets.token_hex(4)}/"

    @pytest.fixture
    def table(self, dynamodb: Any) -> Iterator[str]:
        """One of the test's own: a page would have to pass the items of all tests before."""
        name = f"states-{secrets.token_hex(4)}"
        create_table(dynamodb, name)
        yield name
        dynamodb.delete_table(TableName=name)

    @pytest.fixture
    def catalog(self, dynamodb: Any, table: str, prefix: str) -> Catalog:
        return DynamoCatalog(client=dynamodb, table=table, prefix=prefix)

    @pytest.fixture
    def policies(self, dynamodb: Any, table: str, prefix: str) -> Policies:
        return DynamoPolicies(client=dynamodb, table=table, prefix=prefix)

    @pytest.fixture
    def lose_answer(self, dynamodb: Any) -> Callable[..., None]:
        return partial(faults.lose_answers, dynamodb, "UpdateItem", 1)

    @pytest.fixture
    def repeat_request(self, dynamodb: Any) -> Callable[..., None]:
        return partial(faults.repeat_request, dynamodb, "UpdateItem")

    @pytest.fixture
    def lose_request(self, dynamodb: Any) -> Callable[[], None]:
        return partial(faults.lose_requests, dynamodb, "UpdateItem", 1)

    def test_an_item_of_an_older_release_has_revision_0_and_can_be_changed(
        self, dynamodb: Any, stream: str
    ) -> None:
        catalog = DynamoCatalog(client=dynamodb, table=TABLE, prefix=PREFIX)
        item = catalog.anchor(CatalogItem(stream=stream, table_id=catalog.table_id()))
        dynamodb.update_item(
            TableName=TABLE,
            Key=_item_key(PREFIX + stream),
            UpdateExpression="REMOVE revision, undelete_until, state_token",
        )
        assert catalog.get(stream) == item
        change = change_of(item, uid=7)

        assert catalog.change_state(change) == Landed(changed(item, change))

    def test_a_page_shows_no_item_of_another_kind_or_prefix_and_its_cursor_passes_them(
        self, dynamodb: Any, table: str, stream: str
    ) -> None:
        prefix = f"t{secrets.token_hex(4)}/"
        ours = DynamoCatalog(client=dynamodb, table=table, prefix=prefix)
        theirs = DynamoCatalog(client=dynamodb, table=table, prefix=f"{prefix}eu/")
        DynamoPolicies(client=dynamodb, table=table, prefix=prefix).save(ONE, 0)
        for catalog in (ours, theirs):
            catalog.anchor(CatalogItem(stream=stream, table_id=catalog.table_id()))
        seen = []
        page = ours.page(None, 1)
        while page.cursor is not None:
            seen += page.items
            page = ours.page(page.cursor, 1)

        assert [each.stream for each in (*seen, *page.items)] == [stream]

    def test_a_page_names_the_items_that_cannot_be_read_and_gives_all_others(
        self, dynamodb: Any, stream: str
    ) -> None:
        prefix = f"t{secrets.token_hex(4)}/"
        catalog = DynamoCatalog(client=dynamodb, table=TABLE, prefix=prefix)
        names = [f"{stream}_{number}" for number in range(3)]
        for name in names:
            catalog.anchor(CatalogItem(stream=name, table_id=catalog.table_id()))
        key = _item_key(prefix + names[0])
        dynamodb.update_item(TableName=TABLE, Key=key, UpdateExpression="REMOVE ledger")

        items: list[str] = []
        damaged: list[CorruptDataError] = []
        page = catalog.page(None, 100)
        while True:
            items += [each.stream for each in page.items]
            damaged += page.damaged
            if page.cursor is None:
                break
            page = catalog.page(page.cursor, 100)

        assert sorted(items) == names[1:]
        assert [names[0] in str(each) for each in damaged] == [True]

    @pytest.mark.parametrize("hostile", ['["a"]', "[1, 2]", '["", ""]', "{}", "7", "[" * 10_000])
    def test_a_cursor_that_is_no_key_of_the_table_is_refused(
        self, catalog: Catalog, hostile: str
    ) -> None:
        with pytest.raises(InvalidInputError):
            catalog.page(hostile, 10)


class DynamoPoliciesRules(PoliciesSuite, LostSaveAnswerSuite):
    """Both suites for `DynamoPolicies`; needs the fixture `dynamodb` (client)."""

    @pytest.fixture
    def prefix(self) -> str:
        return f"t{secrets.token_hex(4)}/"

    @pytest.fixture
    def policies(self, dynamodb: Any, prefix: str) -> Policies:
        return DynamoPolicies(client=dynamodb, table=TABLE, prefix=prefix)

    @pytest.fixture
    def lose_save_answer(self, dynamodb: Any) -> Callable[..., None]:
        return partial(faults.lose_answers, dynamodb, "PutItem", 1)

    @pytest.fixture
    def repeat_save(self, dynamodb: Any) -> Callable[..., None]:
        return partial(faults.repeat_request, dynamodb, "PutItem")

    @pytest.fixture
    def lose_save_request(self, dynamodb: Any) -> Callable[[], None]:
        return partial(faults.lose_requests, dynamodb, "PutItem", 1)

    def test_rules_of_another_cluster_are_not_ours(
        self, dynamodb: Any, policies: Policies, prefix: str
    ) -> None:
        DynamoPolicies(client=dynamodb, table=TABLE, prefix=f"{prefix}eu/").save(ONE, 0)

        assert policies.load() == (PolicySet(), 0)

    @pytest.mark.parametrize("expression", ["SET document = :bad", "REMOVE document"])
    def test_rules_that_cannot_be_read_are_never_taken_for_no_rules(
        self, dynamodb: Any, policies: Policies, prefix: str, expression: str
    ) -> None:
        policies.save(ONE, 0)
        values = (
            {"ExpressionAttributeValues": {":bad": {"S": "{}"}}} if ":bad" in expression else {}
        )
        dynamodb.update_item(
            TableName=TABLE,
            Key=_item_key(prefix, POLICIES_ITEM),
            UpdateExpression=expression,
            **values,
        )

        with pytest.raises(CorruptDataError):
            policies.load()


class StepFunctionsRules(WorkflowsSuite, LostStartAnswerSuite):
    """Both suites for `StepFunctionsWorkflows`; needs the fixtures `states` (client), `machine`."""

    _states: Any
    _machine: str

    @pytest.fixture
    def workflows(self, states: Any, machine: str) -> Workflows:
        self._states, self._machine = states, machine
        return StepFunctionsWorkflows(
            client=states,
            arn_prefix=machine.removesuffix(WORKFLOW),
            new_uid=lambda: secrets.randbits(64),
        )

    def _execution(self, name: str) -> str:
        return f"{self._machine.replace(':stateMachine:', ':execution:')}:{name}"

    @pytest.fixture
    def end(self, workflows: Workflows, states: Any) -> Callable[[str], None]:
        return lambda name: states.stop_execution(
            executionArn=self._execution(name), error="Stopped", cause="by a test"
        )

    def given(self, workflows: Workflows, name: str) -> dict[str, Any]:
        found = self._states.describe_execution(executionArn=self._execution(name))
        given: dict[str, Any] = json.loads(found["input"])
        return given

    @pytest.fixture
    def lose_start_answer(self, states: Any) -> Callable[..., None]:
        return partial(faults.lose_answers, states, "StartExecution", 1)

    @pytest.fixture
    def lose_start_requests(self, states: Any) -> Callable[[int], None]:
        return partial(faults.lose_requests, states, "StartExecution")


def create_machine(states: Any) -> str:
    """ARN of a machine that waits until it is stopped."""
    arn: str = states.create_state_machine(
        name=f"{STACK}{WORKFLOW}", definition=json.dumps(WAITING), roleArn=ROLE
    )["stateMachineArn"]
    return arn


def _item_key(partition: str, sort: str = CATALOG_ITEM) -> dict[str, Any]:
    return {CATALOG_PARTITION_KEY: {"S": partition}, CATALOG_SORT_KEY: {"S": sort}}
