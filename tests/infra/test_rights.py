"""Who may do what: exact lists, so that a right that slips in fails here."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

import pytest

from coldstream.deployment import JOBS, WORKFLOWS
from coldstream.names import MAX_PREFIX
from tests.support.iam import like

if TYPE_CHECKING:
    from conftest import Assembly

DATA, METADATA = (
    "<Bucket.Arn>/rabbitmq/stream/*/data/*",
    "<Bucket.Arn>/rabbitmq/stream/*/metadata/*",
)

FRAGMENTS, HOLES = f"{DATA}.fragment", f"{DATA}.hole"
COMMIT = {
    "s3:GetObject": [DATA, METADATA],
    # A fragment, of the part of another that reaches over the end.
    "s3:PutObject": [FRAGMENTS, METADATA],
    "s3:ListBucket": ["<Bucket.Arn>"],
    "dynamodb:DescribeTable": ["<CatalogTable.Arn>"],
    "dynamodb:GetItem": ["<CatalogTable.Arn>"],
    "dynamodb:UpdateItem": ["<CatalogTable.Arn>"],
}
OWN_LOGS = {"logs:CreateLogStream", "logs:PutLogEvents"}


def granted(assembly: Assembly, part: str) -> dict[str, list[str]]:
    """Each action that a role has, with the resources it has it for."""
    actions: dict[str, set[str]] = {}
    for statement in assembly.rights(part):
        if statement["Effect"] == "Deny":
            continue  # takes away only; test_rights_matrix.py evaluates it
        for action in statement["Action"]:
            actions.setdefault(action, set()).update(statement["Resource"])
    return {action: sorted(resources) for action, resources in actions.items()}


def without(actions: dict[str, list[str]], *services: str) -> dict[str, list[str]]:
    return {name: where for name, where in actions.items() if name.split(":")[0] not in services}


LIST = {"s3:ListBucket": ["<Bucket.Arn>"]}
CATALOG = {name: where for name, where in COMMIT.items() if name.startswith("dynamodb:")}
READ_TREE = {"s3:GetObject": [METADATA], **LIST}
WRITE_TREE = {"s3:PutObject": [METADATA], **CATALOG}
DELETE = {"s3:DeleteObject": [DATA, METADATA]}
DELETE_ALL = {"s3:DeleteObject": ["<Bucket.Arn>/rabbitmq/stream/*"]}
CHECK_RULES = {"dynamodb:ConditionCheckItem": ["<CatalogTable.Arn>"]}
START_REBALANCE = {
    "states:StartExecution": [
        "arn:<AWS::Partition>:states:<AWS::Region>:<AWS::AccountId>:stateMachine:"
        "coldstream-rebalance"
    ]
}
START_REBALANCE["states:DescribeExecution"] = [
    START_REBALANCE["states:StartExecution"][0].replace(":stateMachine:", ":execution:") + ":*"
]
START_DELETE = {
    action: [where.replace("rebalance", "delete") for where in resources]
    for action, resources in START_REBALANCE.items()
}
START_BOTH = {
    action: [*resources, *START_REBALANCE[action]] for action, resources in START_DELETE.items()
}

STEPS: dict[str, dict[str, list[str]]] = {
    "RebalanceStep": READ_TREE | WRITE_TREE,
    "RetentionStep": READ_TREE | WRITE_TREE,
    "ConsolidateStep": READ_TREE
    | WRITE_TREE
    | {
        "s3:GetObject": [DATA, METADATA],
        "s3:PutObject": [DATA, METADATA],
        "s3:AbortMultipartUpload": [DATA],
    },
    "CollectStep": COMMIT | {"s3:PutObject": [METADATA]} | DELETE,
    "DeleteStep": LIST | DELETE_ALL | CATALOG | CHECK_RULES,
    "EraseStep": COMMIT
    | {
        "s3:PutObject": [METADATA],
        "s3:DeleteObjectVersion": [DATA],
        "s3:ListBucketVersions": ["<Bucket.Arn>"],
    },
    "ReconcileStep": COMMIT | START_BOTH,
    "StepsSurvey": {
        "dynamodb:GetItem": ["<CatalogTable.Arn>"],
        "dynamodb:Query": ["<CatalogTable.Arn>"],
        "dynamodb:Scan": ["<CatalogTable.Arn>"],
        "dynamodb:DescribeTable": ["<CatalogTable.Arn>"],
        "s3:GetObject": ["<Bucket.Arn>/rabbitmq/stream/.complete/metadata/*"],
        "s3:PutObject": ["<Bucket.Arn>/rabbitmq/stream/.complete/metadata/*"],
        **LIST,
    },
    "StepsReport": {},
}
DELETERS = ("CollectStep", "DeleteStep", "EraseStep")
FUNCTIONS = ("CommitRuns", "ClaimsClaim", *STEPS, "DeleteTombstone")


def test_commit_runs_reads_data_writes_roots_and_moves_items_and_no_more(
    assembly: Assembly,
) -> None:
    actions = granted(assembly, "CommitRuns")

    assert without(actions, "logs", "sqs") == COMMIT | START_REBALANCE
    assert {name for name in actions if name.startswith("sqs:")} == {
        "sqs:ChangeMessageVisibility",
        "sqs:DeleteMessage",
        "sqs:GetQueueAttributes",
        "sqs:GetQueueUrl",
        "sqs:ReceiveMessage",
        "sqs:SendMessage",
    }


@pytest.mark.parametrize("part", STEPS)
def test_a_step_of_a_workflow_has_exactly_the_rights_of_its_work(
    assembly: Assembly, part: str
) -> None:
    assert without(granted(assembly, part), "logs") == STEPS[part]


@pytest.mark.parametrize("which", ["assembly", "customised"])
def test_whoever_may_put_an_object_may_look_whose_it_is(
    which: str, request: pytest.FixtureRequest
) -> None:
    # A PUT that is refused because the key is taken may be an earlier attempt of the same writer.
    made: Assembly = request.getfixturevalue(which)
    roles = [*made.of_type("AWS::IAM::Policy"), *made.of_type("AWS::IAM::ManagedPolicy")]
    tried = 0
    for name in roles:
        rights = granted(made, name)
        for written in rights.get("s3:PutObject", []):
            tried += 1
            assert any(like(each, written) for each in rights.get("s3:GetObject", [])), name
    assert tried > 10


def test_who_follows_the_table_starts_deletions_and_no_more(assembly: Assembly) -> None:
    actions = without(granted(assembly, "DeleteTombstone"), "logs", "sqs")

    assert actions == START_DELETE | {
        "dynamodb:ListStreams": ["*"],
        "dynamodb:DescribeStream": ["<CatalogTable.StreamArn>"],
        "dynamodb:GetRecords": ["<CatalogTable.StreamArn>"],
        "dynamodb:GetShardIterator": ["<CatalogTable.StreamArn>"],
    }


@pytest.mark.parametrize("name", WORKFLOWS)
def test_a_machine_calls_its_steps_and_starts_only_itself(assembly: Assembly, name: str) -> None:
    actions = granted(assembly, f"{name.capitalize()}Workflow")
    scans = name in ("retention", "consolidate", "collect", "reconcile")
    called = sorted(each.split("Function")[0] for each in actions.pop("lambda:InvokeFunction"))

    step, report, scan = f"<{name.capitalize()}Step", "<StepsReportStep", "<StepsSurveyStep"
    assert called == sorted([step, report, scan] if scans else [step, report])
    arn = START_REBALANCE["states:StartExecution"][0].replace("rebalance", name)
    children = arn.replace(":stateMachine:", ":execution:") + ":*"
    own = {
        "states:StartExecution": [arn],
        "states:DescribeExecution": [children],
        "states:StopExecution": [children],
        # Redrive in the console: of the children of the machine's map, whatever its label.
        "states:RedriveExecution": [children.removesuffix(":*") + "/*:*"],
    }
    assert without(actions, "logs", "xray") == (own if scans else {})


def test_only_collect_and_delete_may_delete_objects_and_erase_versions_of_data(
    assembly: Assembly,
) -> None:
    may = {
        name.split("Role")[0]
        for name, resource in assembly.resources.items()
        if "s3:Delete" in str(resource.get("Properties", {}))
    }

    # Those of the jobs are for the files of their own tables: test_glue.py. The bucket's own policy
    # refuses them to all others.
    others = {name for name in may if not name.startswith(("Jobs", "StorageBucketPolicy"))}
    assert others == {"CollectStep", "DeleteStep", "EraseStep"}
    assert "s3:DeleteObject" not in granted(assembly, "EraseStep")


@pytest.mark.parametrize("part", FUNCTIONS)
def test_a_function_writes_to_its_own_log_group_only(assembly: Assembly, part: str) -> None:
    actions = granted(assembly, part)

    assert set(without(actions, "s3", "dynamodb", "sqs", "xray", "states")) == {
        "logs:CreateLogStream",
        "logs:PutLogEvents",
    }
    (group,) = actions["logs:PutLogEvents"]
    assert group.startswith(f"<{part}")
    assert "Logs" in group


def test_an_agent_adds_fragments_looks_and_asks_and_does_nothing_else(assembly: Assembly) -> None:
    actions = granted(assembly, "Agents")
    (queue,), (function,) = actions.pop("sqs:SendMessage"), actions.pop("lambda:InvokeFunction")

    assert queue.startswith("<CommitQueue")
    assert "DeadLetters" not in queue
    assert function.startswith("<ClaimsClaimFunction")
    assert actions == {
        "s3:GetObject": [DATA, METADATA],
        "s3:PutObject": [FRAGMENTS],
        "s3:ListBucket": ["<Bucket.Arn>"],
        "dynamodb:DescribeTable": ["<CatalogTable.Arn>"],
        "dynamodb:GetItem": ["<CatalogTable.Arn>"],
        # Its heartbeat, and no other item.
        "dynamodb:PutItem": ["<CatalogTable.Arn>"],
    }


def test_who_claims_for_agents_anchors_commits_and_declares_holes(assembly: Assembly) -> None:
    actions = without(granted(assembly, "ClaimsClaim"), "logs")

    assert actions == COMMIT | START_REBALANCE | {
        "s3:PutObject": sorted([FRAGMENTS, HOLES, METADATA]),
        "dynamodb:PutItem": ["<CatalogTable.Arn>"],
    }


def test_an_agent_sees_items_of_its_own_prefix_and_writes_its_heartbeat(assembly: Assembly) -> None:
    own = ["#agents/rabbitmq/", "#words/rabbitmq/"]  # its heartbeats, and what it says of streams
    for statement in assembly.rights("Agents"):
        actions = set(statement["Action"]) - {"dynamodb:DescribeTable"}
        if any(action.startswith("dynamodb:") for action in actions):
            assert statement["Condition"] == (
                {"ForAllValues:StringEquals": {"dynamodb:LeadingKeys": own}}
                if "dynamodb:PutItem" in actions
                else {"ForAllValues:StringLike": {"dynamodb:LeadingKeys": ["rabbitmq/?*"]}}
            )


@pytest.mark.parametrize(
    "part",
    ["CommitRuns", "Agents", *(part for part, may in STEPS.items() if "s3:ListBucket" in may)],
)
def test_nobody_lists_outside_the_prefix(assembly: Assembly, part: str) -> None:
    (statement,) = (each for each in assembly.rights(part) if each["Action"] == ["s3:ListBucket"])

    assert statement["Condition"] == {"StringLike": {"s3:prefix": "rabbitmq/stream/*"}}


@pytest.mark.parametrize(
    "part",
    ["Agents", *(part for part in FUNCTIONS if part not in DELETERS)],
)
def test_nobody_deletes_anything_but_handled_messages(assembly: Assembly, part: str) -> None:
    deletes = {action for action in granted(assembly, part) if "Delete" in action}

    assert deletes <= {"sqs:DeleteMessage"}


def test_versions_are_listed_below_the_prefix_only(assembly: Assembly) -> None:
    (statement,) = (
        each for each in assembly.rights("EraseStep") if each["Action"] == ["s3:ListBucketVersions"]
    )

    assert statement["Condition"] == {"StringLike": {"s3:prefix": "rabbitmq/stream/*"}}


def test_only_what_knows_no_resources_is_granted_on_everything(
    assembly: Assembly,
) -> None:
    for resource in assembly.resources.values():
        if resource["Type"] not in ("AWS::IAM::Policy", "AWS::IAM::ManagedPolicy"):
            continue
        for statement in resource["Properties"]["PolicyDocument"]["Statement"]:
            actions = statement["Action"]
            actions = [actions] if isinstance(actions, str) else actions
            assert not any("*" in action for action in actions)
            if statement["Resource"] == "*":
                assert all(
                    action.startswith("xray:")
                    or statement.get("Sid") in ("SeeNames", "SeeNamesOfLogs")
                    or action in ("dynamodb:ListStreams", "glue:GetSchemaVersion")
                    or (action.startswith("logs:") and action not in OWN_LOGS)
                    or (action == "cloudwatch:PutMetricData" and statement["Condition"])
                    for action in actions
                )


def test_no_role_has_a_policy_that_aws_manages(assembly: Assembly) -> None:
    for role in assembly.of_type("AWS::IAM::Role").values():
        for policy in role["Properties"].get("ManagedPolicyArns", []):
            assert list(policy) == ["Ref"]


def test_each_role_is_assumed_by_the_one_service_that_needs_it(assembly: Assembly) -> None:
    trusted = {
        name[: name.index("Role")]: each["Principal"]["Service"]
        for name, role in assembly.of_type("AWS::IAM::Role").items()
        for each in role["Properties"]["AssumeRolePolicyDocument"]["Statement"]
    }

    jobs = {name: service for name, service in trusted.items() if name.startswith("Jobs")}
    assert set(jobs.values()) == {"glue.amazonaws.com"}
    assert {name: one for name, one in trusted.items() if name not in jobs} == {
        "Agents": "ec2.amazonaws.com",
        **dict.fromkeys(
            ("ClaimsClaim", "CommitRuns", "DeleteTombstoneStep"), "lambda.amazonaws.com"
        ),
        **dict.fromkeys(("StepsSurveyStep", "StepsReportStep"), "lambda.amazonaws.com"),
        **{f"{name.capitalize()}Step": "lambda.amazonaws.com" for name in WORKFLOWS},
        **{f"{name.capitalize()}Workflow": "states.amazonaws.com" for name in WORKFLOWS},
        **{
            f"{name.capitalize()}WorkflowSchedule": "scheduler.amazonaws.com"
            for name in ("retention", "consolidate", "collect", "reconcile")
        },
    }


@pytest.mark.parametrize("name", ["Retention", "Consolidate", "Collect", "Reconcile"])
def test_a_schedule_may_start_its_machine_and_nothing_else(assembly: Assembly, name: str) -> None:
    role = assembly.only("AWS::IAM::Role", f"{name}WorkflowScheduleRole")["Properties"]
    (policy,) = role["Policies"]
    (statement,) = policy["PolicyDocument"]["Statement"]

    assert statement["Action"] == "states:StartExecution"
    assert statement["Resource"]["Ref"].startswith(f"{name}WorkflowMachine")


def test_only_our_bucket_of_our_account_sends_events(assembly: Assembly) -> None:
    policy = assembly.only("AWS::SQS::QueuePolicy", "CommitQueuePolicy")
    (statement,) = (
        each
        for each in policy["Properties"]["PolicyDocument"]["Statement"]
        if each["Effect"] == "Allow"
    )

    assert statement["Principal"] == {"Service": "s3.amazonaws.com"}
    assert statement["Action"] == "sqs:SendMessage"
    assert statement["Condition"]["StringEquals"] == {
        "aws:SourceAccount": {"Ref": "AWS::AccountId"}
    }
    # CloudFormation names a bucket <stack>-<logical id>-<random>, all in lower case.
    pattern = statement["Condition"]["ArnLike"]["aws:SourceArn"]["Fn::Join"][1][-1]
    assert pattern == ":s3:::coldstream-bucket-*"


@pytest.mark.parametrize("kind", ["AWS::S3::BucketPolicy", "AWS::SQS::QueuePolicy"])
def test_nothing_is_read_or_written_without_tls(assembly: Assembly, kind: str) -> None:
    policies = assembly.of_type(kind)
    assert policies
    for policy in policies.values():
        refused = [
            each
            for each in policy["Properties"]["PolicyDocument"]["Statement"]
            if each.get("Condition") == {"Bool": {"aws:SecureTransport": "false"}}
        ]
        (statement,) = refused
        assert statement["Effect"] == "Deny"
        assert statement["Principal"] == {"AWS": "*"}
        assert statement["Action"] in ("s3:*", "sqs:*")


CREATES = {"s3:ObjectCreationOperation": "true"}
CREATES_NOTHING = {"s3:ObjectCreationOperation": "false"}
ABSENT = {"s3:if-none-match": "*"}
SOURCE = {"s3:x-amz-copy-source": "bucket/key"}


@pytest.mark.parametrize(
    ("operation", "context", "refused"),
    [
        ("PutObject without a condition", CREATES, True),
        ("PutObject with If-Match", CREATES | {"s3:if-match": "etag"}, True),
        ("PutObject with If-None-Match: *", CREATES | ABSENT, False),
        ("CreateMultipartUpload", CREATES_NOTHING, False),
        ("UploadPart", CREATES_NOTHING, False),
        ("UploadPartCopy", CREATES_NOTHING | SOURCE, False),
        ("CompleteMultipartUpload without a condition", CREATES, True),
        ("CompleteMultipartUpload with If-None-Match: *", CREATES | ABSENT, False),
        ("CopyObject without a condition", CREATES | SOURCE, True),
        ("CopyObject with If-None-Match: *", CREATES | SOURCE | ABSENT, True),
    ],
)
def test_the_bucket_refuses_every_write_that_could_replace_an_object(
    assembly: Assembly, operation: str, context: dict[str, str], refused: bool
) -> None:
    denials = [
        each
        for each in assembly.only("AWS::S3::BucketPolicy", "StorageBucket")["Properties"][
            "PolicyDocument"
        ]["Statement"]
        if each["Action"] == "s3:PutObject"
    ]

    assert any(_matches(each["Condition"], context) for each in denials) is refused, operation
    for each in denials:
        assert each["Effect"] == "Deny"
        assert each["Principal"] == {"AWS": "*"}
        assert each["Resource"]["Fn::Join"][1][-1] == "/*"


def _matches(condition: dict[str, dict[str, Any]], context: dict[str, str]) -> bool:
    """IAM's rules for the two operators in use: every clause has to hold."""
    assert set(condition) <= {"Null", "Bool"}
    nulls = (
        (key not in context) == (wanted == "true")
        for key, wanted in condition.get("Null", {}).items()
    )
    bools = (context.get(key) == wanted for key, wanted in condition.get("Bool", {}).items())
    return all(nulls) and all(bools)


def test_what_the_console_is_shown_of_everything_is_lists_and_numbers(assembly: Assembly) -> None:
    shown = {
        action
        for part in ("PeopleConsoles", "PeopleLogs")
        for each in assembly.rights(part)
        if each["Resource"] == ["*"]
        for action in each["Action"]
    }

    assert all(re.match(r"\w+:(List|Describe|Get|StopQuery)", action) for action in shown)
    assert not any(action.startswith(("s3:", "dynamodb:", "iam:")) for action in shown)


def test_an_operator_does_in_the_console_what_the_runbook_says(assembly: Assembly) -> None:
    """Redrive, the dead letters, jobs: with less somebody attaches AdministratorAccess."""
    actions = granted(assembly, "PeopleOperators")

    assert {each.rpartition(":")[2] for each in actions["states:StartExecution"]} == {
        f"coldstream-{name}" for name in WORKFLOWS
    }
    assert len(actions["states:RedriveExecution"]) == len(WORKFLOWS)
    assert all("CommitQueue" in each or "Missed" in each for each in actions["sqs:ReceiveMessage"])
    assert len(actions["glue:StartJobRun"]) == len(JOBS)


def test_the_console_s_policies_look_and_change_nothing(assembly: Assembly) -> None:
    for part in ("PeopleConsoles", "PeopleLogs"):
        verbs = {each.split(":")[1] for each in granted(assembly, part)}
        looks = ("BatchGet", "Describe", "Get", "List", "Filter", "StartQuery", "StopQuery")
        assert all(verb.startswith(looks) for verb in verbs)


def test_every_managed_policy_is_short_enough_for_aws_whatever_the_stack_is_called(
    customised: Assembly,
) -> None:
    """6,144 characters without white space, with the longest names of stack, region and prefix."""
    for name, one in customised.of_type("AWS::IAM::ManagedPolicy").items():
        plain = json.dumps(_written(one["Properties"]["PolicyDocument"]), separators=(",", ":"))
        longest = plain.replace("rabbit-eu", "s" * 40).replace("prod/eu/", "p" * MAX_PREFIX)
        assert len(longest) <= 6144, name


def _written(value: Any) -> Any:
    """A document as CloudFormation would write it: references are names and ARNs."""
    if isinstance(value, list):
        return [_written(each) for each in value]
    if not isinstance(value, dict):
        return value
    if len(value) == 1:
        ((function, argument),) = value.items()
        if function == "Ref":
            return {"AWS::Partition": "aws-us-gov", "AWS::Region": "ap-southeast-2"}.get(
                argument, "1" * 12
            )
        if function == "Fn::GetAtt":
            place = "arn:aws-us-gov:logs:ap-southeast-2:111111111111:log-group:rabbit-eu-"
            return f"{place}{argument[0]}-ABCDEFGHIJKL:*"
        if function == "Fn::Join":
            return str(argument[0]).join(map(_written, argument[1]))
    return {key: _written(each) for key, each in value.items()}
