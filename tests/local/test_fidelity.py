"""What coldstream relies on, asked of the embedded AWS: it must answer as AWS does."""

from __future__ import annotations

import base64
import json
import threading
import time
import urllib.parse
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import obstore
import pytest
from botocore.exceptions import ClientError
from obstore.store import S3Store

from coldstream_devkit.emulator import Emulator
from tests.support.probe_stack import Probe, eventually

pytestmark = [pytest.mark.emulator, pytest.mark.slow]


@pytest.fixture
def bucket(emulator: Emulator) -> str:
    name = f"bucket-{uuid.uuid4().hex}"
    emulator.client("s3").create_bucket(Bucket=name)
    return name


@pytest.fixture
def queue(emulator: Emulator) -> str:
    url: str = emulator.client("sqs").create_queue(QueueName=uuid.uuid4().hex)["QueueUrl"]
    return url


@pytest.fixture
def table(emulator: Emulator) -> Iterator[str]:
    name = uuid.uuid4().hex
    emulator.client("dynamodb").create_table(
        TableName=name,
        KeySchema=[{"AttributeName": "k", "KeyType": "HASH"}],
        AttributeDefinitions=[{"AttributeName": "k", "AttributeType": "S"}],
        BillingMode="PAY_PER_REQUEST",
    )
    yield name
    emulator.client("dynamodb").delete_table(TableName=name)


def code_of(error: pytest.ExceptionInfo[ClientError]) -> tuple[int, str]:
    response = error.value.response
    return response["ResponseMetadata"]["HTTPStatusCode"], response["Error"]["Code"]


def obstore_of(emulator: Emulator, bucket: str) -> S3Store:
    return S3Store(
        bucket,
        config={
            "endpoint": emulator.endpoint,
            "access_key_id": "local",
            "secret_access_key": "local",
            "region": "us-east-1",
            "checksum_algorithm": "CRC64NVME",
            "conditional_put": "etag",
        },
        client_options={"allow_http": True},
    )


def test_of_sixteen_puts_with_if_none_match_one_wins(emulator: Emulator, bucket: str) -> None:
    store = emulator.client("s3")

    def put(key: str, writer: int) -> str:
        try:
            store.put_object(Bucket=bucket, Key=key, Body=b"%d" % writer, IfNoneMatch="*")
        except ClientError as exc:
            return str(exc.response["Error"]["Code"])
        return "won"

    with ThreadPoolExecutor(16) as pool:
        for round_ in range(5):
            key = f"race-{round_}"
            outcomes = list(pool.map(put, [key] * 16, range(16)))
            assert outcomes.count("won") == 1
            assert set(outcomes) <= {"won", "PreconditionFailed", "ConditionalRequestConflict"}
            body = store.get_object(Bucket=bucket, Key=key)["Body"].read()
            assert body == b"%d" % outcomes.index("won")


def test_a_suffix_range_gives_the_end_of_an_object(emulator: Emulator, bucket: str) -> None:
    store = emulator.client("s3")
    store.put_object(Bucket=bucket, Key="key", Body=b"0123456789")

    answer = store.get_object(Bucket=bucket, Key="key", Range="bytes=-3")
    assert answer["Body"].read() == b"789"
    assert answer["ContentRange"] == "bytes 7-9/10"
    assert answer["ResponseMetadata"]["HTTPStatusCode"] == 206
    whole = store.get_object(Bucket=bucket, Key="key", Range="bytes=-100")
    assert whole["Body"].read() == b"0123456789"
    assert store.get_object(Bucket=bucket, Key="key", Range="bytes=8-99")["Body"].read() == b"89"


def test_a_range_behind_the_end_is_refused(emulator: Emulator, bucket: str) -> None:
    store = emulator.client("s3")
    store.put_object(Bucket=bucket, Key="key", Body=b"0123456789")

    with pytest.raises(ClientError) as error:
        store.get_object(Bucket=bucket, Key="key", Range="bytes=10-12")
    assert code_of(error) == (416, "InvalidRange")


def test_a_listing_starts_after_a_key_that_need_not_exist_and_comes_in_pages(
    emulator: Emulator, bucket: str
) -> None:
    store = emulator.client("s3")
    keys = [f"p/{n:04d}.fragment" for n in range(25)]
    for key in [*keys, "q/other"]:
        store.put_object(Bucket=bucket, Key=key, Body=b"")

    pages = store.get_paginator("list_objects_v2").paginate(
        Bucket=bucket,
        Prefix="p/",
        StartAfter="p/0010",
        PaginationConfig={"PageSize": 4},
    )
    listed = [[one["Key"] for one in page["Contents"]] for page in pages]

    assert [len(page) for page in listed] == [4, 4, 4, 3]
    assert [key for page in listed for key in page] == keys[10:]


def test_a_crc64_that_does_not_fit_the_body_is_refused_and_nothing_is_stored(
    emulator: Emulator, bucket: str
) -> None:
    store = emulator.client("s3")

    with pytest.raises(ClientError) as error:
        store.put_object(
            Bucket=bucket,
            Key="key",
            Body=b"body",
            ChecksumCRC64NVME=base64.b64encode(bytes(8)).decode(),
        )
    assert code_of(error) == (400, "BadDigest")
    assert store.list_objects_v2(Bucket=bucket)["KeyCount"] == 0


def test_a_crc64_sent_by_obstore_is_checked_and_kept(emulator: Emulator, bucket: str) -> None:
    obstore.put(obstore_of(emulator, bucket), "key", b"123456789", use_multipart=False)

    head = emulator.client("s3").head_object(Bucket=bucket, Key="key", ChecksumMode="ENABLED")
    # The check value of CRC-64/NVME in the catalogue of CRC algorithms.
    assert base64.b64decode(head["ChecksumCRC64NVME"]).hex() == "ae8b14860a799888"


def test_an_object_and_its_metadata_come_back_from_obstore(emulator: Emulator, bucket: str) -> None:
    store = obstore_of(emulator, bucket)
    obstore.put(store, "key", b"body", attributes={"write-id": "7"}, mode="create")

    with pytest.raises(obstore.exceptions.AlreadyExistsError):
        obstore.put(store, "key", b"other", attributes={"write-id": "8"}, mode="create")
    found = obstore.get(store, "key", options={"range": {"suffix": 2}})
    assert (bytes(found.bytes()), found.attributes["write-id"]) == (b"dy", "7")


def test_a_refused_conditional_write_shows_the_item_that_stands(
    emulator: Emulator, table: str
) -> None:
    database = emulator.client("dynamodb")
    database.put_item(TableName=table, Item={"k": {"S": "a"}, "epoch": {"N": "2"}})

    with pytest.raises(ClientError) as error:
        database.update_item(
            TableName=table,
            Key={"k": {"S": "a"}},
            UpdateExpression="SET epoch = :new",
            ConditionExpression="epoch < :new",
            ExpressionAttributeValues={":new": {"N": "1"}},
            ReturnValuesOnConditionCheckFailure="ALL_OLD",
        )
    assert code_of(error) == (400, "ConditionalCheckFailedException")
    assert error.value.response["Item"] == {"k": {"S": "a"}, "epoch": {"N": "2"}}


def test_concurrent_conditional_updates_lose_nothing(emulator: Emulator, table: str) -> None:
    database = emulator.client("dynamodb")
    key = {"k": {"S": "counter"}}
    database.put_item(TableName=table, Item={**key, "n": {"N": "0"}})

    def add_five(_: int) -> None:
        done = 0
        while done < 5:
            seen = database.get_item(TableName=table, Key=key, ConsistentRead=True)["Item"]["n"]
            try:
                database.update_item(
                    TableName=table,
                    Key=key,
                    UpdateExpression="SET n = :next",
                    ConditionExpression="n = :seen",
                    ExpressionAttributeValues={
                        ":seen": seen,
                        ":next": {"N": str(int(seen["N"]) + 1)},
                    },
                )
                done += 1
            except database.exceptions.ConditionalCheckFailedException:
                continue

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(add_five, range(8)))
    assert database.get_item(TableName=table, Key=key)["Item"]["n"] == {"N": "40"}


def test_a_long_poll_answers_as_soon_as_a_message_arrives(emulator: Emulator, queue: str) -> None:
    queues = emulator.client("sqs")
    sender = threading.Timer(0.5, lambda: queues.send_message(QueueUrl=queue, MessageBody="late"))
    sender.start()
    started = time.monotonic()

    found = queues.receive_message(QueueUrl=queue, WaitTimeSeconds=20)

    assert [one["Body"] for one in found["Messages"]] == ["late"]
    assert 0.4 < time.monotonic() - started < 15  # it was there after 0.5 of 20 seconds
    sender.join()


def test_an_object_reaches_the_function_as_an_event_of_s3(probe: Probe) -> None:
    mark = uuid.uuid4().hex
    key = f"in/a b=ü/{mark}.fragment"
    put = probe.client("s3").put_object(Bucket=probe.outputs["Bucket"], Key=key, Body=b"12345")

    batch = eventually(lambda: probe.batches(mark))

    [record] = json.loads(batch[0][0])["Records"]
    assert (record["eventSource"], record["eventName"]) == ("aws:s3", "ObjectCreated:Put")
    assert record["s3"]["bucket"]["name"] == probe.outputs["Bucket"]
    about: dict[str, Any] = record["s3"]["object"]
    assert about["key"] == urllib.parse.quote_plus(key, safe="/")
    assert about["size"] == 5
    assert about["eTag"] == put["ETag"].strip('"')
    assert int(about["sequencer"], 16) > 0


def test_objects_that_the_filter_leaves_out_cause_no_event(probe: Probe) -> None:
    mark = uuid.uuid4().hex
    for key in (f"in/{mark}.manifest", f"out/{mark}.fragment", f"in/{mark}-last.fragment"):
        probe.client("s3").put_object(Bucket=probe.outputs["Bucket"], Key=key, Body=b"")

    eventually(lambda: probe.batches(f"{mark}-last"))

    assert [len(batch) for batch in probe.batches(mark)] == [1]


def test_of_a_batch_only_the_messages_named_come_back_and_end_as_dead_letters(
    probe: Probe,
) -> None:
    mark = uuid.uuid4().hex
    queues = probe.client("sqs")
    for body in (f"ok {mark}", f"fail {mark}"):
        queues.send_message(QueueUrl=probe.outputs["Queue"], MessageBody=body)

    def dead() -> list[str]:
        found = queues.receive_message(
            QueueUrl=probe.outputs["DeadLetters"], VisibilityTimeout=0, MaxNumberOfMessages=10
        )
        return [one["Body"] for one in found.get("Messages", []) if mark in one["Body"]]

    assert eventually(dead) == [f"fail {mark}"]
    seen = [body for batch in probe.batches(mark) for body in batch]
    assert sorted(seen) == [f"fail {mark}", f"fail {mark}", f"ok {mark}"]


def test_a_batch_whose_function_raised_comes_back_whole(probe: Probe) -> None:
    mark = uuid.uuid4().hex
    entries = [
        {"Id": str(n), "MessageBody": f"{word} {mark}"} for n, word in enumerate(("ok", "raise"))
    ]
    probe.client("sqs").send_message_batch(QueueUrl=probe.outputs["Queue"], Entries=entries)

    eventually(lambda: len(probe.batches(mark)) == 2)

    assert [len(batch) for batch in probe.batches(mark)] == [2, 2]
