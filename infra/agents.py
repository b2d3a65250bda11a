"""What the agents beside the brokers may do: write below their prefix, and delete nothing."""

from __future__ import annotations

from aws_cdk import aws_iam as iam
from aws_cdk import aws_sqs as sqs
from constructs import Construct

from infra import rights
from infra.nag import accept_keys
from infra.steps import Site


class Agents(Construct):
    """One managed policy, and a role and instance profile that carry it.

    Broker nodes that have a role of their own keep it and get the policy attached; an instance has
    room for one role only.

    Args:
        scope: where it belongs.
        id: its name there.
        site: what they work on, and who may assume the role besides EC2.
        queue: where an agent asks for a commit.

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
    ) -> None:
        super().__init__(scope, id)
        bucket, table, prefix = site.bucket, site.table, site.settings.prefix
        self.policy = iam.ManagedPolicy(
            self,
            "Policy",
            description="What a coldstream agent beside a RabbitMQ broker needs",
            statements=[
                rights.read_objects(bucket=bucket, prefix=prefix),
                rights.write_data(bucket=bucket, prefix=prefix),
                # An agent claims its stream for an epoch, and a claim is a new root.
                rights.write_metadata(bucket=bucket, prefix=prefix),
                rights.list_streams(bucket=bucket, prefix=prefix),
                *rights.anchor_in_catalog(table=table, prefix=prefix),
                iam.PolicyStatement(
                    sid="AskForCommit",
                    actions=["sqs:SendMessage"],
                    resources=[queue.queue_arn],
                ),
            ],
        )
        accept_keys(self.policy, bucket=bucket, prefix=prefix, kinds=("data", "metadata"))
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
