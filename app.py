#!/usr/bin/env python3
"""The CDK app: one stack that holds everything coldstream needs in an AWS account.

    cdk deploy                                   with the settings of cdk.json
    cdk deploy -c coldstream:stack-name=prod -c coldstream:prefix=prod/     another cluster's stack
    CDK_OUTDIR=build/cdk.out python app.py       synthesise only, without the CDK's own CLI

Synthesis reads this checkout and nothing else: no account, no git, no clock. The network it needs
the first time, for the packages of uv.lock; they are kept.
"""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent
# The app also runs where the package is not installed, and from any directory.
sys.path[:0] = [str(ROOT), str(ROOT / "src")]

import aws_cdk as cdk  # noqa: E402
from cdk_nag import AwsSolutionsChecks  # noqa: E402

from coldstream.errors import InvalidInputError  # noqa: E402
from infra import glue_bundle  # noqa: E402
from infra.bundle import BundleError, build  # noqa: E402
from infra.config import Settings, default_context, refuse_move  # noqa: E402
from infra.glue_job import Code  # noqa: E402
from infra.stack import ColdstreamStack  # noqa: E402


def main() -> None:
    """Synthesise the app; cdk-nag is always on, and a finding makes this fail."""
    app = cdk.App(context=default_context(ROOT), analytics_reporting=False)
    settings = Settings.from_context(app.node.get_all_context())
    refuse_move(settings, Settings.from_context(default_context(ROOT)))
    stack = ColdstreamStack(
        app,
        settings.stack_name,
        settings=settings,
        bundle=build(ROOT),
        job_code=Code(directory=glue_bundle.build(ROOT)),
        description="Bottomless storage for RabbitMQ streams in Amazon S3",
    )
    # For the bill: activate it as a cost allocation tag. One stack is one cluster.
    cdk.Tags.of(stack).add("coldstream", settings.stack_name)
    cdk.Validations.of(app).add_plugins(AwsSolutionsChecks(app))
    app.synth()


if __name__ == "__main__":
    try:
        main()
    except (InvalidInputError, BundleError) as error:
        sys.exit(f"app.py: {error}")
