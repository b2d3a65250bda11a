"""Rules that the template keeps, whatever is refactored above it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from coldstream import deployment, names
from tests.infra.conftest import KEY, flat, normal

if TYPE_CHECKING:
    from conftest import Assembly

ROOT = Path(__file__).resolve().parents[2]
BUCKET, TABLE = "AWS::S3::Bucket", "AWS::DynamoDB::Table"
QUEUE, FUNCTION = "AWS::SQS::Queue", "AWS::Lambda::Function"


@pytest.mark.parametrize("kind", [BUCKET, TABLE, "AWS::S3::BucketPolicy", "AWS::Glue::Database"])
def test_what_holds_or_protects_data_stays_when_the_stack_goes(
    assembly: Assembly, kind: str
) -> None:
    for resource in assembly.of_type(kind).values():
        # Not what a failed creation leaves: that would be in the way of the next try.
        assert resource["DeletionPolicy"] == "RetainExceptOnCreate"
        assert resource["UpdateReplacePolicy"] == "Retain"


def test_what_stayed_can_be_taken_over_because_its_primary_id_is_plain_text(
    assembly: Assembly, customised: Assembly
) -> None:
    """CloudFormation imports by itself what has such an id in the template, and nothing else.

    A bucket's policy is not among it, on purpose: the one that stayed names roles of the stack that
    is gone, and an import changes nothing. It must be deleted (docs/how-to/deploy.md says so), and
    a deployment that finds it there fails instead of living with it.
    """
    for logical, (kind, key) in {
        "Bucket": (BUCKET, "BucketName"),
        "Warehouse": (BUCKET, "BucketName"),
        "CatalogTable": (TABLE, "TableName"),
        "WarehouseDatabase": ("AWS::Glue::Database", "DatabaseName"),
    }.items():
        one = next(each for name, each in customised.resources.items()
                   if name.startswith(logical) and each["Type"] == kind)  # fmt: skip
        assert isinstance(one["Properties"][key], str), logical
        assert one["DeletionPolicy"] == "RetainExceptOnCreate"
    retained = {
        one["Type"]
        for one in customised.resources.values()
        if one.get("DeletionPolicy", "").startswith("Retain")
    }
    assert retained == {BUCKET, TABLE, "AWS::Glue::Database", "AWS::S3::BucketPolicy"}
    for policy in customised.of_type("AWS::S3::BucketPolicy").values():
        assert list(policy["Properties"]["Bucket"]) == ["Ref"]
    database = assembly.only("AWS::Glue::Database")["Properties"]
    assert database["DatabaseName"] == database["DatabaseInput"]["Name"] == "coldstream"


def test_the_logical_ids_of_what_holds_data_never_change(assembly: Assembly) -> None:
    # Another id would make CloudFormation create an empty bucket beside the full one.
    assert sorted(assembly.of_type(BUCKET)) == ["Bucket", "Warehouse"]
    assert list(assembly.of_type(TABLE)) == ["CatalogTable"]


def test_what_cannot_change_without_a_replacement_never_does_where_data_is(
    assembly: Assembly,
) -> None:
    # Another one makes an empty resource beside the full one; where its name is taken, as that of
    # the database, the deployment fails and is rolled back: no older stack could be upgraded.
    from cfnlint.schema.manager import PROVIDER_SCHEMA_MANAGER  # as in test_checks

    found: dict[str, dict[str, object]] = {}
    for name, one in assembly.resources.items():
        if one.get("UpdateReplacePolicy") == "Retain":
            schema = PROVIDER_SCHEMA_MANAGER.get_resource_schema("us-east-1", one["Type"]).schema
            fixed = [
                path.removeprefix("/properties/")
                for kind in ("createOnlyProperties", "conditionalCreateOnlyProperties")
                for path in schema.get(kind) or ()
            ]
            properties = one["Properties"]
            found[name] = {each: properties[each] for each in fixed if each in properties}
    assert found == {
        "Bucket": {},
        "Warehouse": {},
        "CatalogTable": {
            "KeySchema": [
                {"AttributeName": names.CATALOG_PARTITION_KEY, "KeyType": "HASH"},
                {"AttributeName": names.CATALOG_SORT_KEY, "KeyType": "RANGE"},
            ]
        },
        "WarehouseDatabaseF83EB1F4": {"DatabaseName": "coldstream"},
        "StorageBucketPolicy49CFBD91": {"Bucket": {"Ref": "Bucket"}},
        "WarehouseBucketPolicyED8565B5": {"Bucket": {"Ref": "Warehouse"}},
    }
    assert (names.CATALOG_PARTITION_KEY, names.CATALOG_SORT_KEY) == ("stream", "item")


def test_there_is_no_custom_resource_and_no_function_but_ours(assembly: Assembly) -> None:
    kinds = {one["Type"] for one in assembly.resources.values()}
    handlers = {one["Properties"]["Handler"] for one in assembly.of_type(FUNCTION).values()}

    assert not {kind for kind in kinds if kind.startswith("Custom::")}
    assert "AWS::CloudFormation::CustomResource" not in kinds
    assert handlers == {
        f"functions.{name}.handler"
        for name in (*deployment.WORKFLOWS, "claim", "commit_runs", "scan", "report", "tombstone")
    }
    for handler in handlers:
        assert (
            (ROOT / handler.replace(".handler", "").replace(".", "/")).with_suffix(".py").exists()
        )


def test_with_a_key_of_the_customers_whoever_may_touch_objects_may_use_it(
    assembly: Assembly, customised: Assembly
) -> None:
    for name in ("Bucket", "Warehouse"):
        (rule,) = customised.resources[name]["Properties"]["BucketEncryption"][
            "ServerSideEncryptionConfiguration"
        ]
        assert rule["ServerSideEncryptionByDefault"] == {
            "SSEAlgorithm": "aws:kms",
            "KMSMasterKeyID": KEY,
        }
        assert rule["BucketKeyEnabled"]

    def uses(made: Assembly) -> dict[str, tuple[bool, bool, set[str]]]:
        found = {}
        for kind in ("AWS::IAM::Policy", "AWS::IAM::ManagedPolicy"):
            for name, one in made.of_type(kind).items():
                rows = [normal(r) for r in one["Properties"]["PolicyDocument"]["Statement"]]
                acts = {act for row in rows if row["Effect"] == "Allow" for act in row["Action"]}
                key = {a for r in rows if r["Resource"] == [KEY] for a in r["Action"]}
                found[name] = (
                    bool({"s3:GetObject", "s3:GetObjectVersion"} & acts),
                    "s3:PutObject" in acts,
                    key,
                )
        return found

    with_key = uses(customised)
    assert sum(reads for reads, _, _ in with_key.values()) > 10
    for name, (reads, writes, key) in with_key.items():
        assert ("kms:Decrypt" in key) == (reads or writes), name
        assert ("kms:GenerateDataKey" in key) == writes, name
    assert not any(key for _, _, key in uses(assembly).values())


@pytest.mark.parametrize("name", ["Bucket", "Warehouse"])
def test_a_bucket_is_private_and_encrypted(assembly: Assembly, name: str) -> None:
    properties = assembly.resources[name]["Properties"]

    assert set(properties["PublicAccessBlockConfiguration"].values()) == {True}
    assert len(properties["PublicAccessBlockConfiguration"]) == 4
    assert properties["OwnershipControls"]["Rules"] == [{"ObjectOwnership": "BucketOwnerEnforced"}]
    (encryption,) = properties["BucketEncryption"]["ServerSideEncryptionConfiguration"]
    assert encryption["ServerSideEncryptionByDefault"] == {"SSEAlgorithm": "AES256"}


def test_what_is_deleted_stays_for_a_week_and_nothing_else_expires_but_unfinished_uploads(
    assembly: Assembly,
) -> None:
    properties = assembly.resources["Bucket"]["Properties"]

    assert properties["VersioningConfiguration"] == {"Status": "Enabled"}
    assert properties["LifecycleConfiguration"]["Rules"] == [
        {
            "Id": "AbortUnfinishedUploads",
            "Status": "Enabled",
            "AbortIncompleteMultipartUpload": {"DaysAfterInitiation": 1},
        },
        {
            "Id": "ForgetDeleted",
            "Status": "Enabled",
            "NoncurrentVersionExpiration": {"NoncurrentDays": 7},
            "ExpiredObjectDeleteMarker": True,
        },
    ]
    assert "VersioningConfiguration" not in assembly.resources["Warehouse"]["Properties"]


def test_new_fragments_and_holes_and_no_other_keys_go_to_the_commit_queue(
    assembly: Assembly,
) -> None:
    (policy_id,) = (
        name for name in assembly.of_type("AWS::SQS::QueuePolicy") if "CommitQueuePolicy" in name
    )
    bucket = assembly.resources["Bucket"]
    configuration = bucket["Properties"]["NotificationConfiguration"]

    assert list(configuration) == ["QueueConfigurations"]
    filters = []
    for one in configuration["QueueConfigurations"]:
        assert one["Event"] == "s3:ObjectCreated:*"
        (queue_id, attribute) = one["Queue"]["Fn::GetAtt"]
        assert (queue_id.startswith("CommitQueue"), attribute) == (True, "Arn")
        assert "DeadLetters" not in queue_id
        filters.append({rule["Name"]: rule["Value"] for rule in one["Filter"]["S3Key"]["Rules"]})
    assert filters == [
        {"prefix": "rabbitmq/stream/", "suffix": names.FRAGMENT_SUFFIX},
        {"prefix": "rabbitmq/stream/", "suffix": names.HOLE_SUFFIX},
    ]
    manifest = names.root_path("rabbitmq/", "s", 1, 1, 1)
    assert not manifest.endswith((names.FRAGMENT_SUFFIX, names.HOLE_SUFFIX))
    # S3 checks that it may send while CloudFormation creates the bucket.
    assert policy_id in bucket["DependsOn"]


def test_the_catalog_can_be_restored_and_followed_and_not_be_deleted(assembly: Assembly) -> None:
    properties = assembly.only(TABLE)["Properties"]

    assert properties["KeySchema"] == [
        {"AttributeName": names.CATALOG_PARTITION_KEY, "KeyType": "HASH"},
        {"AttributeName": names.CATALOG_SORT_KEY, "KeyType": "RANGE"},
    ]
    assert {one["AttributeType"] for one in properties["AttributeDefinitions"]} == {"S"}
    assert properties["BillingMode"] == "PAY_PER_REQUEST"
    assert properties["DeletionProtectionEnabled"] is True
    assert properties["PointInTimeRecoverySpecification"] == {"PointInTimeRecoveryEnabled": True}
    assert properties["StreamSpecification"] == {"StreamViewType": "NEW_AND_OLD_IMAGES"}


def test_an_event_that_fails_five_times_is_kept_for_a_person_for_two_weeks(
    assembly: Assembly,
) -> None:
    queues = assembly.of_type(QUEUE)
    (dead_id,) = (name for name in queues if "DeadLetters" in name)
    (queue,) = (one for name, one in queues.items() if name.startswith("CommitQueue5"))
    redrive = queue["Properties"]["RedrivePolicy"]

    assert redrive["maxReceiveCount"] == 5
    assert redrive["deadLetterTargetArn"] == {"Fn::GetAtt": [dead_id, "Arn"]}
    assert queues[dead_id]["Properties"]["MessageRetentionPeriod"] == 14 * 24 * 3600
    assert all(one["Properties"]["SqsManagedSseEnabled"] for one in queues.values())


def test_no_event_is_handed_out_again_while_a_function_may_still_hold_it(
    assembly: Assembly,
) -> None:
    from infra.commit import COMMIT_TIMEOUT_SECONDS

    visible_after = assembly.only(QUEUE, "CommitQueue5")["Properties"]["VisibilityTimeout"]
    timeout = assembly.only(FUNCTION, "CommitRuns")["Properties"]["Timeout"]

    assert timeout == COMMIT_TIMEOUT_SECONDS == 60
    assert visible_after >= 6 * timeout


def test_one_stream_that_fails_does_not_repeat_the_events_of_others(assembly: Assembly) -> None:
    properties = assembly.only("AWS::Lambda::EventSourceMapping", "CommitRuns")["Properties"]

    assert properties["FunctionResponseTypes"] == ["ReportBatchItemFailures"]
    assert properties["MaximumBatchingWindowInSeconds"] == 1
    assert properties["BatchSize"] == 100
    assert properties["ScalingConfig"] == {"MaximumConcurrency": 10}


def test_only_the_function_that_asks_itself_for_the_rest_of_a_backlog_may_run_in_a_loop(
    assembly: Assembly,
) -> None:
    """Lambda ends such a chain after about sixteen links; 100,000 fragments are twenty."""
    loops = {
        one["Properties"]["Handler"]: one["Properties"]["RecursiveLoop"]
        for one in assembly.of_type(FUNCTION).values()
        if "RecursiveLoop" in one["Properties"]
    }

    assert loops == {"functions.commit_runs.handler": "Allow"}


def test_every_function_is_arm64_and_logs_to_a_group_that_forgets(
    assembly: Assembly,
) -> None:
    groups = assembly.of_type("AWS::Logs::LogGroup")
    for function in assembly.of_type(FUNCTION).values():
        properties = function["Properties"]
        assert properties["Architectures"] == ["arm64"]
        assert properties["Runtime"] == "python3.13"
        copies = properties["Handler"] == "functions.consolidate.handler"
        assert properties["MemorySize"] == (1024 if copies else 512)
        assert "ReservedConcurrentExecutions" not in properties
        assert "TracingConfig" not in properties
        group = groups[properties["LoggingConfig"]["LogGroup"]["Ref"]]
        assert group["Properties"]["RetentionInDays"] == 30


def test_data_moves_to_a_cheaper_class_and_runs_are_traced_where_it_is_set(
    customised: Assembly,
) -> None:
    rules = customised.resources["Bucket"]["Properties"]["LifecycleConfiguration"]["Rules"]
    for function in customised.of_type(FUNCTION).values():
        assert function["Properties"]["TracingConfig"] == {"Mode": "Active"}
    for machine in customised.of_type("AWS::StepFunctions::StateMachine").values():
        assert machine["Properties"]["TracingConfiguration"] == {"Enabled": True}

    (archive,) = [each for each in rules if each["Id"] == "Archive"]
    assert archive == {
        "Id": "Archive",
        "Status": "Enabled",
        "Prefix": "prod/eu/stream/",
        "ObjectSizeGreaterThan": 1048576,
        "Transitions": [{"StorageClass": "GLACIER_IR", "TransitionInDays": 45}],
    }
    (kept,) = [each for each in rules if each["Id"] == "ForgetDeleted"]
    assert kept["NoncurrentVersionExpiration"] == {"NoncurrentDays": 30}


def test_every_function_is_told_where_things_are_and_reports_to_one_metric(
    assembly: Assembly,
) -> None:
    for function in assembly.of_type(FUNCTION).values():
        variables = function["Properties"]["Environment"]["Variables"]
        assert variables[deployment.ENV_BUCKET] == {"Ref": "Bucket"}
        assert variables[deployment.ENV_TABLE] == {"Ref": "CatalogTable"}
        assert variables[deployment.ENV_PREFIX] == "rabbitmq/"
        assert flat(variables[deployment.ENV_WORKFLOWS]).endswith(":stateMachine:coldstream-")
        assert variables[deployment.ENV_BRANCHING] == "1024"
        assert variables[deployment.ENV_FRAGMENT_SIZE] == str(64 * 2**20)
        assert variables[deployment.ENV_READ_WHOLE] == str(64 * 2**20)
        assert variables[deployment.ENV_GRACE_SECONDS] == "86400"
        # Deleters go by the item's own word, which an operator's command line has written.
        assert deployment.ENV_UNDELETE_SECONDS not in variables
        assert variables["POWERTOOLS_METRICS_NAMESPACE"] == deployment.METRIC_NAMESPACE
        assert variables["POWERTOOLS_SERVICE_NAME"] == "coldstream"


def test_all_functions_share_one_bundle(assembly: Assembly) -> None:
    codes = [one["Properties"]["Code"] for one in assembly.of_type(FUNCTION).values()]

    assert all(code == codes[0] for code in codes)
    assert len(list(assembly.directory.glob("asset.*"))) == 1


def test_no_write_replaces_an_object_anywhere_in_the_bucket(assembly: Assembly) -> None:
    """Whatever the prefix is: another setting must not lift the protection of what is there."""
    policy = assembly.only("AWS::S3::BucketPolicy", "StorageBucket")["Properties"]["PolicyDocument"]
    denied = {each["Sid"]: each for each in policy["Statement"] if each.get("Sid")}

    for sid in ("DenyOverwrites", "DenyCopies"):
        assert flat(denied[sid]["Resource"]) == "<Bucket.Arn>/*"
        assert denied[sid]["Principal"] in ("*", {"AWS": "*"})


def test_two_clusters_are_two_stacks_with_no_name_in_common(
    assembly: Assembly, customised: Assembly
) -> None:
    """A name that both had would make the second deployment fail, or rewrite the first."""
    named = ("Name", "StateMachineName", "LogGroupName", "DashboardName", "DatabaseName")
    named += ("AlarmName",)
    first, second = (
        {
            str(each["Properties"][key])
            for each in made.resources.values()
            for key in named
            if key in each.get("Properties", {})
        }
        for made in (assembly, customised)
    )

    assert min(len(first), len(second)) > 60
    assert not first & second


def test_cloudformation_itself_refuses_another_prefix_for_a_stack_that_is_there(
    assembly: Assembly, customised: Assembly
) -> None:
    """The CDK's command line deploys with the parameter's last value, not with its default."""
    for made, prefix in ((assembly, "rabbitmq/"), (customised, "prod/eu/")):
        parameter = made.template["Parameters"]["ServedPrefix"]
        (rule,) = made.template["Rules"]["OnePrefix"]["Assertions"]
        assert (parameter["Type"], parameter["Default"]) == ("String", prefix)
        assert rule["Assert"] == {"Fn::Equals": [{"Ref": "ServedPrefix"}, prefix]}
        assert prefix in rule["AssertDescription"]


def test_the_stack_cannot_be_deleted_by_one_wrong_word_once_it_is_there(
    assembly: Assembly, customised: Assembly
) -> None:
    """And before it is there it can: `infra.deploy` makes it with `protected` off."""
    for made, name, protected in ((assembly, "coldstream", True), (customised, "rabbit-eu", False)):
        manifest = json.loads((made.directory / "manifest.json").read_text())
        properties = manifest["artifacts"][name]["properties"]
        assert properties.get("terminationProtection", False) is protected
        assert made.only(TABLE)["Properties"]["DeletionProtectionEnabled"] is protected


def test_what_costs_money_has_the_tag_of_its_stack(customised: Assembly) -> None:
    for kind in (BUCKET, TABLE, FUNCTION, QUEUE, "AWS::StepFunctions::StateMachine"):
        for each in customised.of_type(kind).values():
            assert {"Key": "coldstream", "Value": "rabbit-eu"} in each["Properties"]["Tags"]


def test_the_outputs_are_those_that_the_command_line_looks_for(assembly: Assembly) -> None:
    expected = {value for name, value in vars(deployment).items() if name.startswith("OUTPUT_")}

    assert set(assembly.template["Outputs"]) == expected
    assert assembly.template["Outputs"][deployment.OUTPUT_BUCKET]["Value"] == {"Ref": "Bucket"}
    assert assembly.template["Outputs"][deployment.OUTPUT_PREFIX]["Value"] == "rabbitmq/"
    assert assembly.template["Outputs"][deployment.OUTPUT_UNDELETE_SECONDS]["Value"] == "604800"


def test_the_template_names_no_account_and_no_region(assembly: Assembly) -> None:
    manifest = (assembly.directory / "manifest.json").read_text()

    assert "aws://unknown-account/unknown-region" in manifest


def test_every_setting_reaches_the_template(customised: Assembly) -> None:
    bucket = customised.resources["Bucket"]["Properties"]
    mapping = customised.only("AWS::Lambda::EventSourceMapping", "CommitRuns")["Properties"]
    trusted = str(customised.only("AWS::IAM::Role", "Agents")["Properties"])

    assert bucket["BucketName"] == "what-was-left"
    assert customised.only(TABLE)["Properties"]["TableName"] == "what-was-left"
    warehouse = customised.resources["Warehouse"]["Properties"]
    assert warehouse["BucketName"] == "tables-that-were-left"
    # Events of that bucket are let in, whatever the stack is called.
    policy = customised.only("AWS::SQS::QueuePolicy", "CommitQueuePolicy")["Properties"]
    assert ":s3:::what-was-left'" in str(policy).replace('"', "'")
    assert "'prod/eu/stream/'" in str(bucket["NotificationConfiguration"])
    assert "rabbitmq/" not in customised.template_path.read_text()
    assert customised.only("AWS::SNS::Subscription")["Properties"]["Endpoint"] == "ops@example.com"
    assert mapping["MaximumBatchingWindowInSeconds"] == 7
    assert mapping["ScalingConfig"] == {"MaximumConcurrency": 3}
    assert customised.only(QUEUE, "CommitQueue5")["Properties"]["VisibilityTimeout"] == 367
    assert {
        name.split("Workflow")[0]: one["Properties"]["ScheduleExpression"]
        for name, one in customised.of_type("AWS::Scheduler::Schedule").items()
        if not name.startswith("Jobs")
    } == {
        "Reconcile": "rate(1 minute)",
        "Retention": "rate(2 minutes)",
        "Consolidate": "rate(3 minutes)",
        "Collect": "rate(4 minutes)",
    }
    step = customised.only(FUNCTION, "CollectStep")["Properties"]
    assert step["Timeout"] == 120
    variables = step["Environment"]["Variables"]
    assert variables[deployment.ENV_BRANCHING] == "16"
    assert variables[deployment.ENV_FRAGMENT_SIZE] == str(8 * 2**20)
    assert variables[deployment.ENV_GRACE_SECONDS] == "5"
    assert customised.only(FUNCTION, "CommitRuns")["Properties"]["MemorySize"] == 1024
    claim = customised.only(FUNCTION, "ClaimsClaim")["Properties"]
    assert (claim["MemorySize"], claim["ReservedConcurrentExecutions"]) == (1024, 4)
    assert (
        customised.only(FUNCTION, "CommitRuns")["Properties"]["ReservedConcurrentExecutions"] == 5
    )
    assert step["MemorySize"] == 1536
    assert customised.only(FUNCTION, "ConsolidateStep")["Properties"]["MemorySize"] == 1536
    assert variables[deployment.ENV_RECONCILE_MINUTES] == "1"
    assert variables[deployment.ENV_RECONCILE_IDLE_MINUTES] == "90"
    assert {
        one["Properties"]["RetentionInDays"]
        for one in customised.of_type("AWS::Logs::LogGroup").values()
    } == {90}
    assert ":iam::123456789012:root" in trusted
    assert "arn:aws:iam::210987654321:role/broker" in trusted
