"""The roles of a deployment, as IAM evaluates them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from coldstream import names
from coldstream.names import DataKey, root_path
from tests.infra.conftest import flat, normal
from tests.support.iam import Call, Statement, allowed

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
    **{f"job {name}": f"Jobs{name.title()}" for name in names.JOBS},
    **{f"machine {name}": f"{name.title()}Workflow" for name in names.WORKFLOWS},
    **{
        f"schedule {name}": f"{name.title()}WorkflowScheduleRole"
        for name in ("retention", "consolidate", "collect", "reconcile")
    },
}


class Account:
    """The roles of a deployment, and an administrator, and what they may do."""

    def __init__(self, assembly: Assembly) -> None:
        self._assembly = assembly
        policy = assembly.only("AWS::S3::BucketPolicy", "StorageBucket")
        self._bucket = [
            _plain(each) for each in policy["Properties"]["PolicyDocument"]["Statement"]
        ]

    def may(self, role: str, action: str, resource: str, **context: Any) -> bool:
        own: list[Statement] = [{"Effect": "Allow", "Action": "*", "Resource": "*"}]
        principal = f"<{role}.Arn>"
        part = {**ROLES, **OTHERS}.get(role)
        if part is not None:
            own = self._rights(part)
            principal = next(
                (
                    f"<{name}.Arn>"
                    for name in self._assembly.of_type("AWS::IAM::Role")
                    if name.startswith(f"{part}Role")
                ),
                principal,
            )
        call = Call(principal, action, resource, context)
        of_resource = self._bucket if action.startswith("s3:") else ()
        return allowed(call, own, of_resource)

    def _rights(self, part: str) -> list[dict[str, Any]]:
        """The statements of a role's policy, also of one within the role."""
        if not part.endswith("ScheduleRole"):
            return self._assembly.rights(part)
        (policy,) = self._assembly.only("AWS::IAM::Role", part)["Properties"]["Policies"]
        return [normal(each) for each in policy["PolicyDocument"]["Statement"]]

    def puts(self, role: str, key: str, context: dict[str, str] = NEW) -> bool:
        return self.may(role, "s3:PutObject", f"<Bucket.Arn>/{key}", **context)

    def changes(self, role: str, action: str, key: str) -> bool:
        return self.may(role, f"dynamodb:{action}", TABLE, **{"dynamodb:LeadingKeys": [key]})


def _plain(statement: dict[str, Any]) -> dict[str, Any]:
    """A statement of the bucket's policy with ARNs as plain text."""
    resource = statement["Resource"]
    resources = [flat(each) for each in (resource if isinstance(resource, list) else [resource])]
    condition = {
        operator: {
            key: [flat(each) for each in value] if isinstance(value, list) else value
            for key, value in keys.items()
        }
        for operator, keys in statement.get("Condition", {}).items()
    }
    return {**statement, "Resource": resources, "Condition": condition}
