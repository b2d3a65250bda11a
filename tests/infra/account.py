"""The roles of a deployment, as IAM evaluates them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from coldstream import deployment
from coldstream.names import DataKey, root_path
from tests.infra.conftest import flat, listed, normal
from tests.support.iam import Call, Statement, allowed, trusted

if TYPE_CHECKING:
    from conftest import Assembly

STREAM, PREFIX = "__orders_1", "rabbitmq/"
FRAGMENT = DataKey(STREAM, 0, 10, 1, 7, "fragment").path(PREFIX)
HOLE = DataKey(STREAM, 10, 10**15, 1, 7, "hole").path(PREFIX)
ROOT = root_path(PREFIX, STREAM, 1, 1, 7)
TABLE = "<CatalogTable.Arn>"
ITEM, RULES = f"{PREFIX}{STREAM}", PREFIX
CREATES = {"s3:ObjectCreationOperation": "true", "aws:SecureTransport": "true"}
NEW = {**CREATES, "s3:if-none-match": "*"}
ROLES = {
    "agent": "Agents",
    "reader": "PeopleReaders",
    "gateway": "PeopleGateways",
    "operator": "PeopleOperators",
    "console": "PeopleConsoles",
    "logs": "PeopleLogs",
    "commit_runs": "CommitRuns",
    "claim": "ClaimsClaim",
    "collect": "CollectStep",
    "delete": "DeleteStep",
    "erase": "EraseStep",
    "consolidate": "ConsolidateStep",
    "reconcile": "ReconcileStep",
    "retention": "RetentionStep",
    "rebalance": "RebalanceStep",
    "scan": "StepsSurvey",
}
#: Roles that have nothing to do with a stream's objects and items, or read them only.
OTHERS = {
    "report": "StepsReport",
    "tombstone": "DeleteTombstone",
    **{f"job {name}": f"Jobs{name.title()}" for name in deployment.JOBS},
    **{f"machine {name}": f"{name.title()}Workflow" for name in deployment.WORKFLOWS},
    **{
        f"schedule {name}": f"{name.title()}WorkflowScheduleRole"
        for name in ("retention", "consolidate", "collect", "reconcile")
    },
}


#: Roles that only some settings make; tried in the app with every setting changed.
BY_SETTING = {
    "optimizers": "JobsOptimizers",
    **{
        f"schedule job {name}": f"Jobs{name.title()}ScheduleRole"
        for name in ("materialise", "scrub", "profile", "fleet")
    },
}
#: What has a policy of its own: (its ARN in the template, kind of the policy, part of its name).
RESOURCES = (
    ("<Bucket.Arn>", "AWS::S3::BucketPolicy", "StorageBucket"),
    ("<Warehouse.Arn>", "AWS::S3::BucketPolicy", "Warehouse"),
    ("<CommitQueueDeadLetters", "AWS::SQS::QueuePolicy", "CommitQueueDeadLetters"),
    ("<CommitQueue", "AWS::SQS::QueuePolicy", "CommitQueuePolicy"),
    ("<AlarmsTopic", "AWS::SNS::TopicPolicy", "AlarmsTopic"),
)


#: For an `Account` of the app with cdk.json's settings, and of that with every setting changed.
NOWHERE_ELSE: Mapping[str, str] = {}
CUSTOMISED = {
    PREFIX: "prod/eu/",
    "coldstream-": "rabbit-eu-",
    "table/coldstream/": "table/streams_eu/",
}


class Account:
    """The roles of a deployment, and an administrator, and what they may do.

    Args:
        assembly: what was synthesised.
        elsewhere: what this deployment calls what questions call as with cdk.json's settings.
    """

    def __init__(self, assembly: Assembly, elsewhere: Mapping[str, str] = NOWHERE_ELSE) -> None:
        self._assembly, self._elsewhere = assembly, elsewhere
        self._policies = {
            arn: [
                _plain(each)
                for each in assembly.only(kind, part)["Properties"]["PolicyDocument"]["Statement"]
            ]
            for arn, kind, part in RESOURCES
        }

    def may(self, role: str, action: str, resource: str, **context: Any) -> bool:
        own: list[Statement] = [{"Effect": "Allow", "Action": "*", "Resource": "*"}]
        principal = f"<{role}.Arn>"
        part = {**ROLES, **OTHERS, **BY_SETTING}.get(role)
        if role.endswith(".amazonaws.com"):
            own, principal = [], role
        elif part is not None:
            own = self._rights(part)
            principal = next(
                (
                    f"<{name}.Arn>"
                    for name in self._assembly.of_type("AWS::IAM::Role")
                    if name.startswith(f"{part}Role")
                ),
                principal,
            )
        call = Call(principal, action, self._here(resource), self._here(context))
        of_resource = next(
            (policy for arn, policy in self._policies.items() if resource.startswith(arn)), []
        )
        return allowed(call, own, of_resource)

    def takes(self, service: str, part: str, **context: Any) -> bool:
        """Whether a service may take the role whose logical id contains `part`."""
        role = self._assembly.only("AWS::IAM::Role", part)["Properties"]
        trust = [_plain(each) for each in role["AssumeRolePolicyDocument"]["Statement"]]
        return trusted(Call(service, "sts:AssumeRole", "*", context), trust)

    def arn(self, kind: str, part: str) -> str:
        """The ARN, as it is in the template, of the one resource of a kind."""
        (name,) = (each for each in self._assembly.of_type(kind) if part in each)
        return f"<{name}>" if kind == "AWS::SNS::Topic" else f"<{name}.Arn>"

    def _here(self, value: Any) -> Any:
        """A question about the deployment of cdk.json, made one about this one."""
        if isinstance(value, str):
            for there, here in self._elsewhere.items():
                value = value.replace(there, here)
            return value
        if isinstance(value, list):
            return [self._here(each) for each in value]
        return {key: self._here(each) for key, each in value.items()}

    def _rights(self, part: str) -> list[dict[str, Any]]:
        """The statements of a role's policy, also of one within the role."""
        if not part.endswith("ScheduleRole"):
            return [_plain(each) for each in self._assembly.rights(part)]
        (policy,) = self._assembly.only("AWS::IAM::Role", part)["Properties"]["Policies"]
        return [_plain(normal(each)) for each in policy["PolicyDocument"]["Statement"]]

    def puts(self, role: str, key: str, context: dict[str, str] = NEW) -> bool:
        return self.may(role, "s3:PutObject", f"<Bucket.Arn>/{key}", **context)

    def changes(self, role: str, action: str, key: str) -> bool:
        return self.may(role, f"dynamodb:{action}", TABLE, **{"dynamodb:LeadingKeys": [key]})

    def lists(self, role: str, below: str | None, action: str = "s3:ListBucket") -> bool:
        """LIST of the bucket below a prefix; None for one that names none."""
        context = {} if below is None else {"s3:prefix": below}
        return self.may(role, action, "<Bucket.Arn>", **context, **{"aws:SecureTransport": "true"})


def _plain(statement: dict[str, Any]) -> dict[str, Any]:
    """A statement with ARNs as plain text, also in its conditions."""
    condition = {
        operator: {key: [flat(each) for each in listed(value)] for key, value in keys.items()}
        for operator, keys in statement.get("Condition", {}).items()
    }
    resources = [flat(each) for each in listed(statement.get("Resource", "*"))]
    return {**statement, "Resource": resources, "Condition": condition}
