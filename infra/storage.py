"""The bucket: private, encrypted, TLS only; nothing in it is overwritten, few may delete."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from aws_cdk import Duration
from aws_cdk import aws_iam as iam
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_s3 as s3
from constructs import Construct

from coldstream.names import FRAGMENT_SUFFIX, HOLE_SUFFIX
from infra.bucket import private_bucket
from infra.commit import CommitQueue
from infra.nag import accept


class Storage(Construct):
    """The bucket and its policy. It outlives the stack: what is in it is all there is.

    Args:
        scope: where it belongs.
        id: its name there.
        name: of the bucket; empty for one that CloudFormation makes up.
        prefix: what lies below it is ours. The whole bucket is protected, so that no change of a
            setting lifts the protection of what is there.
        encryption_key: ARN of a KMS key; empty for S3's own.
        commit_queue: told of every new fragment and hole.
        deleted_kept_days: for how long what was deleted can be had back.
        archive_after_days: when data goes to a class that is cheaper to keep; 0 for never.

    Attributes:
        bucket: the bucket.
    """

    def __init__(
        self,
        scope: Construct,
        id: str,  # noqa: A002 - the CDK's own word
        *,
        name: str,
        prefix: str,
        encryption_key: str,
        commit_queue: CommitQueue,
        deleted_kept_days: int,
        archive_after_days: int,
    ) -> None:
        super().__init__(scope, id)
        self.bucket = private_bucket(
            self,
            "Bucket",
            name=name,
            encryption_key=encryption_key,
            keep_versions=Duration.days(deleted_kept_days),
            more_rules=[_archive(prefix, archive_after_days)] if archive_after_days else [],
        )
        _notify(cast("s3.CfnBucket", self.bucket.node.default_child), prefix, commit_queue)
        for statement in _immutability(self.bucket):
            self.bucket.add_to_resource_policy(statement)
        accept(
            self.bucket,
            "S1",
            "Server access logs are best effort, need a second bucket and cost a record for each of"
            " millions of range GETs. Who needs an audit trail turns on CloudTrail data events for"
            " this bucket: those are complete, and the account's own choice.",
        )

    def deny_deletes_but_by(
        self, functions: Sequence[lambda_.IFunction], *, of_versions: lambda_.IFunction
    ) -> None:
        """Let nobody delete but the roles of these functions, and no versions but by one more.

        A right to delete that somebody has through a role of their own, an administrator's too, is
        none here. Versions go by the lifecycle rule, which acts in S3 and needs no right, and by an
        erasure. An administrator who must delete by hand changes this policy first, and that leaves
        a trace.

        Args:
            functions: those that delete objects, whose versions stay.
            of_versions: the one that deletes versions, and nothing else.
        """
        for sid, action, allowed in (
            ("DenyDeletes", "s3:DeleteObject", functions),
            ("DenyDeletesOfVersions", "s3:DeleteObjectVersion", [of_versions]),
        ):
            roles = [each.role.role_arn for each in allowed if each.role is not None]
            self.bucket.add_to_resource_policy(
                iam.PolicyStatement(
                    sid=sid,
                    effect=iam.Effect.DENY,
                    principals=[iam.AnyPrincipal()],
                    actions=[action],
                    resources=[self.bucket.arn_for_objects("*")],
                    conditions={"ArnNotEquals": {"aws:PrincipalArn": roles}},
                )
            )


def _archive(prefix: str, after_days: int) -> s3.LifecycleRule:
    """Move what is large to a class that answers at once and costs a fifth to keep.

    No prefix stands for data alone, because the stream's name comes before; manifests are small,
    and read often. S3 asks for 90 days of it, also of what goes earlier.
    """
    return s3.LifecycleRule(
        id="Archive",
        prefix=f"{prefix}stream/",
        object_size_greater_than=2**20,
        transitions=[
            s3.Transition(
                storage_class=s3.StorageClass.GLACIER_INSTANT_RETRIEVAL,
                transition_after=Duration.days(after_days),
            )
        ],
    )


def _notify(bucket: s3.CfnBucket, prefix: str, commit_queue: CommitQueue) -> None:
    """Send an event for each new fragment and hole, by a property of the bucket itself.

    The CDK's own way, `add_event_notification`, deploys a custom resource: one more function with
    rights over all buckets. A property needs nothing, but CloudFormation then asks S3 to check the
    queue's policy while it creates the bucket, so the policy has to be there first. For the same
    reason the policy names the bucket by a pattern (see `CommitQueue`).

    Only data triggers anything. Manifest nodes end in other suffixes, so a commit never causes an
    event, let alone another commit.
    """
    bucket.notification_configuration = s3.CfnBucket.NotificationConfigurationProperty(
        queue_configurations=[
            s3.CfnBucket.QueueConfigurationProperty(
                event="s3:ObjectCreated:*",
                queue=commit_queue.queue.queue_arn,
                filter=s3.CfnBucket.NotificationFilterProperty(
                    s3_key=s3.CfnBucket.S3KeyFilterProperty(
                        rules=[
                            s3.CfnBucket.FilterRuleProperty(
                                name="prefix", value=f"{prefix}stream/"
                            ),
                            s3.CfnBucket.FilterRuleProperty(name="suffix", value=suffix),
                        ]
                    )
                ),
            )
            for suffix in (FRAGMENT_SUFFIX, HOLE_SUFFIX)
        ]
    )
    bucket.node.add_dependency(commit_queue.policy)


def _immutability(bucket: s3.Bucket) -> list[iam.PolicyStatement]:
    """Refuse every write that could replace an object (docs/architecture.md: immutability).

    `s3:PutObject` stands for many operations. The keys: `s3:if-none-match` is the header of that
    name, and `s3:ObjectCreationOperation` is true where an operation makes an object appear. What
    S3 documents (User Guide, "Enforce conditional writes on Amazon S3 buckets"), and what follows:

        PutObject, form POST       Without the header: 403, also with `If-Match` in its place.
                                   With `If-None-Match: *`: 200, or 412 where the key exists.
        CompleteMultipartUpload    Creates the object, takes the header: as PutObject.
        CreateMultipartUpload,     Take no conditional headers and create no object: exempt by the
        UploadPart,                second key. Without it no multipart upload could ever start.
        UploadPartCopy
        CopyObject                 Without the header: 403. With it the guide promises a 501, but
                                   since October 2025 S3 carries it out. Nothing here copies whole
                                   objects (a copy brings its source's write-id along, so a lost
                                   answer could not be told from another's write): always 403.

    Anybody can add roles to an account, so it is this Deny for everybody that makes the invariant
    hold, and not only the care taken in our own roles. Where neither key is known (an emulator),
    both statements are without effect, because `Bool` does not match a key that is absent.
    """
    creates = {"Bool": {"s3:ObjectCreationOperation": "true"}}
    return [
        iam.PolicyStatement(
            sid="DenyOverwrites",
            effect=iam.Effect.DENY,
            principals=[iam.AnyPrincipal()],
            actions=["s3:PutObject"],
            resources=[bucket.arn_for_objects("*")],
            conditions={"Null": {"s3:if-none-match": "true"}, **creates},
        ),
        iam.PolicyStatement(
            sid="DenyCopies",
            effect=iam.Effect.DENY,
            principals=[iam.AnyPrincipal()],
            actions=["s3:PutObject"],
            resources=[bucket.arn_for_objects("*")],
            conditions={"Null": {"s3:x-amz-copy-source": "false"}, **creates},
        ),
    ]
