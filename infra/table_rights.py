"""What a Glue job and Glue's optimisers may do with tables and their files; see `rights.py`.

The warehouse is a bucket that holds no stream, so here objects may be deleted.
"""

from __future__ import annotations

from aws_cdk import aws_iam as iam
from aws_cdk import aws_s3 as s3


def keep_tables(
    *, bucket: s3.IBucket, prefix: str, catalog: str, database: str, tables: str
) -> list[iam.PolicyStatement]:
    """Make and change tables in a database, with their files below one prefix of a bucket.

    Args:
        bucket: the warehouse, which holds no stream.
        prefix: below which the files are.
        catalog: what the ARNs of the account's databases and tables begin with.
        database: the database.
        tables: pattern of the tables' names; "" for no table at all.
    """
    files = [
        iam.PolicyStatement(
            sid="KeepFiles",
            actions=[
                "s3:AbortMultipartUpload",
                # Compaction and retention of tables remove their files; streams have none here.
                "s3:DeleteObject",
                "s3:GetObject",
                "s3:PutObject",
            ],
            resources=[bucket.arn_for_objects(f"{prefix}*")],
        ),
        iam.PolicyStatement(
            sid="ListFiles",
            actions=["s3:ListBucket"],
            resources=[bucket.bucket_arn],
            conditions={"StringLike": {"s3:prefix": f"{prefix}*"}},
        ),
    ]
    if not tables:
        return files
    return [
        *files,
        iam.PolicyStatement(
            sid="KeepTables",
            actions=[
                "glue:CreateTable",
                "glue:GetDatabase",
                "glue:GetTable",
                "glue:UpdateTable",
            ],
            resources=_tables(catalog, database, tables),
        ),
    ]


def decode_bodies() -> iam.PolicyStatement:
    """Schemas of Glue's registry by the id that a body begins with: no ARN can be named by it."""
    return iam.PolicyStatement(
        sid="ReadSchemas", actions=["glue:GetSchemaVersion"], resources=["*"]
    )


def read_secret(*, arn: str) -> iam.PolicyStatement:
    """One secret of AWS Secrets Manager."""
    return iam.PolicyStatement(
        sid="ReadSecret", actions=["secretsmanager:GetSecretValue"], resources=[arn]
    )


def switch_optimizers(
    *, role: iam.IRole, catalog: str, database: str, tables: str
) -> list[iam.PolicyStatement]:
    """Switch on Glue's optimisers of tables, and let them, and nothing else, take their role."""
    return [
        iam.PolicyStatement(
            sid="SwitchOptimizers",
            actions=[
                "glue:CreateTableOptimizer",
                "glue:GetTableOptimizer",
                "glue:UpdateTableOptimizer",
            ],
            resources=_tables(catalog, database, tables),
        ),
        iam.PolicyStatement(
            sid="PassOptimizerRole",
            actions=["iam:PassRole"],
            resources=[role.role_arn],
            conditions={"StringEquals": {"iam:PassedToService": "glue.amazonaws.com"}},
        ),
    ]


def optimize_tables(
    *, bucket: s3.IBucket, prefix: str, catalog: str, database: str, tables: str
) -> list[iam.PolicyStatement]:
    """What Glue's optimisers do with tables: as `keep_tables`, and make none."""
    files, listing, _ = keep_tables(
        bucket=bucket, prefix=prefix, catalog=catalog, database=database, tables=tables
    )
    return [
        files,
        listing,
        iam.PolicyStatement(
            sid="OptimizeTables",
            actions=["glue:GetDatabase", "glue:GetTable", "glue:UpdateTable"],
            resources=_tables(catalog, database, tables),
        ),
    ]


def _tables(catalog: str, database: str, tables: str) -> list[str]:
    """What a right to tables is for: Glue wants the catalog and the database named, too."""
    return [
        f"{catalog}:catalog",
        f"{catalog}:database/{database}",
        f"{catalog}:table/{database}/{tables}",
    ]
