"""A key of the customer's own for both buckets: who may touch objects may use it for them."""

from __future__ import annotations

from aws_cdk import Fn, Stack
from aws_cdk import aws_iam as iam

#: What S3 asks of the key for whoever does this to an object. Parts of an upload are decrypted
#: before they are put together.
_USES = {
    "s3:GetObject": ("kms:Decrypt",),
    "s3:GetObjectVersion": ("kms:Decrypt",),
    "s3:PutObject": ("kms:Decrypt", "kms:GenerateDataKey"),
}


def let_use(stack: Stack, key_arn: str) -> None:
    """Give every policy of a stack that permits objects the right to use their key through S3.

    The key's own policy must leave it to IAM who may use it, as that of a new key does.

    Args:
        stack: complete: what is added later is not seen.
        key_arn: of the key.
    """
    through_s3 = Fn.join(".", ["s3", stack.region, stack.url_suffix])
    for each in stack.node.find_all():
        if not isinstance(each, iam.Policy | iam.ManagedPolicy):
            continue
        wanted = sorted({use for action in _actions(each) for use in _USES.get(action, ())})
        if wanted:
            each.document.add_statements(
                iam.PolicyStatement(
                    sid="UseKey",
                    actions=wanted,
                    resources=[key_arn],
                    conditions={"StringEquals": {"kms:ViaService": through_s3}},
                )
            )


def _actions(policy: iam.Policy | iam.ManagedPolicy) -> set[str]:
    statements = (policy.document.to_json() or {}).get("Statement", [])
    found: set[str] = set()
    for each in statements:
        if each["Effect"] == "Allow":
            action = each.get("Action", [])
            found.update([action] if isinstance(action, str) else action)
    return found
