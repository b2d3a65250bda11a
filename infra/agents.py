"""What the agents beside the brokers may do: add fragments, look, and ask; nothing else."""

from __future__ import annotations

from aws_cdk import aws_iam as iam
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_sqs as sqs
from constructs import Construct

from infra import rights
from infra.nag import accept_keys
from infra.steps import Site


class Agents(Construct):
    """One managed policy, and a role and instance profile that carry it.

    Broker nodes that have a role of their own keep it and get the policy attached; an instance has
    room for one role only.

    Who has stolen an agent's credentials can add fragments and claims, and read; all that the tier
    already holds stays, because only functions move a manifest (docs/security.md).

    Args:
        scope: where it belongs.
        id: its name there.
        site: what they work on, and who may assume the role besides EC2.
        queue: where an agent asks for a commit.
        claim: the function that claims and commits for it.

    Attributes:
        role: the role.
        policy: the managed policy.
    """

    def __init__(
        self,
        scope: Construct,
        id: str,  # noqa: A002 - the CDK's own word
        *,
        site: Site,
        queue: sqs.IQueue,
        claim: lambda_.IFunction,
    ) -> None:
        super().__init__(scope, id)
        bucket, table, prefix = site.bucket, site.table, site.settings.prefix
        self.policy = iam.ManagedPolicy(
            self,
            "Policy",
            description="What a coldstream agent beside a RabbitMQ broker needs",
            statements=[
                rights.read_objects(bucket=bucket, prefix=prefix),
                rights.write_fragments(bucket=bucket, prefix=prefix),
                rights.write_no_metadata(bucket=bucket, prefix=prefix),
                rights.list_streams(bucket=bucket, prefix=prefix),
                *rights.see_in_catalog(table=table, prefix=prefix),
                rights.write_heartbeats(table=table, prefix=prefix),
                iam.PolicyStatement(
                    sid="AskForCommit",
                    actions=["sqs:SendMessage"],
                    resources=[queue.queue_arn],
                ),
                iam.PolicyStatement(
                    sid="AskForClaim",
                    actions=["lambda:InvokeFunction"],
                    resources=[claim.function_arn],
                ),
            ],
        )
        accept_keys(
            self.policy,
            bucket=bucket,
            prefix=prefix,
            kinds=("data", "metadata", "data/*.fragment"),
        )
        self.role = iam.Role(
            self,
            "Role",
            assumed_by=iam.CompositePrincipal(
                iam.ServicePrincipal("ec2.amazonaws.com"),
                *(
                    iam.AccountPrincipal(one) if one.isdigit() else iam.ArnPrincipal(one)
                    for one in site.settings.agent_principals
                ),
            ),
            managed_policies=[self.policy],
            description="Assumed by the coldstream agents of RabbitMQ broker nodes",
        )
        iam.InstanceProfile(self, "InstanceProfile", role=self.role)
