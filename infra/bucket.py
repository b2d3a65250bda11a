"""What every bucket here is: private, encrypted, TLS only, and it outlives the stack."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from aws_cdk import Duration, RemovalPolicy
from aws_cdk import aws_kms as kms
from aws_cdk import aws_s3 as s3
from constructs import Construct


def private_bucket(
    scope: Construct,
    logical_id: str,
    *,
    name: str,
    encryption_key: str,
    keep_versions: Duration | None = None,
    more_rules: Sequence[s3.LifecycleRule] = (),
) -> s3.Bucket:
    """Make a bucket that nobody reaches without a right of their own, and that is never emptied.

    Args:
        scope: where it belongs; its id there is "Bucket".
        logical_id: its name in the template. A new one would mean a new, empty bucket, so it must
            survive any refactoring.
        name: of the bucket; empty for one that CloudFormation makes up.
        encryption_key: ARN of a KMS key; empty for S3's own.
        keep_versions: for how long what was deleted can be had back; None for not at all.
        more_rules: what its lifecycle does besides clearing up after uploads that never ended.
    """
    bucket = s3.Bucket(
        scope,
        "Bucket",
        bucket_name=name or None,
        block_public_access=s3.BlockPublicAccess.BLOCK_ALL,
        object_ownership=s3.ObjectOwnership.BUCKET_OWNER_ENFORCED,
        encryption=s3.BucketEncryption.KMS if encryption_key else s3.BucketEncryption.S3_MANAGED,
        encryption_key=(
            kms.Key.from_key_arn(scope, "Key", encryption_key) if encryption_key else None
        ),
        # One request to KMS for very many objects.
        bucket_key_enabled=True if encryption_key else None,
        enforce_ssl=True,
        versioned=keep_versions is not None,
        lifecycle_rules=[
            s3.LifecycleRule(
                id="AbortUnfinishedUploads",
                abort_incomplete_multipart_upload_after=Duration.days(1),
            ),
            *([] if keep_versions is None else [_forget(keep_versions)]),
            *more_rules,
        ],
        removal_policy=RemovalPolicy.RETAIN_ON_UPDATE_OR_DELETE,
    )
    cast("s3.CfnBucket", bucket.node.default_child).override_logical_id(logical_id)
    if bucket.policy is not None:
        # A bucket that stays must not lose its protection when the stack goes.
        bucket.policy.apply_removal_policy(RemovalPolicy.RETAIN_ON_UPDATE_OR_DELETE)
    return bucket


def _forget(after: Duration) -> s3.LifecycleRule:
    """What was deleted goes for good after a time, and what marks it as deleted with it."""
    return s3.LifecycleRule(
        id="ForgetDeleted",
        noncurrent_version_expiration=after,
        expired_object_delete_marker=True,
    )
