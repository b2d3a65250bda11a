"""cdk-nag and cfn-lint have nothing to say, and were really asked."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from coldstream import deployment
from tests.support.slow import slow

if TYPE_CHECKING:
    from conftest import Assembly


@pytest.mark.parametrize("which", ["assembly", "customised"])
def test_cdk_nag_finds_nothing_that_is_not_accepted_with_a_reason(
    which: str, request: pytest.FixtureRequest
) -> None:
    # That the fixture exists means that synthesis did not fail, which it does on any finding.
    assembly: Assembly = request.getfixturevalue(which)
    (report,) = [
        each for each in assembly.report["pluginReports"] if each["pluginName"] == "AwsSolutions"
    ]

    assert report["conclusion"] == "success"
    assert report["violations"] == []
    assert all(len(each["reason"]) > 40 for each in report["suppressedViolations"])


def test_few_findings_are_accepted_and_each_is_known(assembly: Assembly) -> None:
    (report,) = assembly.report["pluginReports"]

    assert {each["ruleName"] for each in report["suppressedViolations"]} == {
        "AwsSolutions-S1",
        "AwsSolutions-L1",
        "AwsSolutions-IAM5[Resource::*]",
        "AwsSolutions-IAM5[Resource::<Bucket.Arn>/rabbitmq/stream/*]",
        "AwsSolutions-IAM5[Resource::<Bucket.Arn>/rabbitmq/stream/*/data/*]",
        "AwsSolutions-IAM5[Resource::<Bucket.Arn>/rabbitmq/stream/*/data/*.fragment]",
        "AwsSolutions-IAM5[Resource::<Bucket.Arn>/rabbitmq/stream/*/data/*.hole]",
        "AwsSolutions-IAM5[Resource::<Bucket.Arn>/rabbitmq/stream/*/metadata/*]",
        "AwsSolutions-IAM5[Resource::<Bucket.Arn>/rabbitmq/stream/.complete/metadata/*]",
        "AwsSolutions-SF1",
        "AwsSolutions-SF2",
        "AwsSolutions-SQS3",
        *(
            "AwsSolutions-IAM5[Resource::arn:<AWS::Partition>:states:<AWS::Region>:"
            f"<AWS::AccountId>:execution:coldstream-{name}:*]"
            for name in deployment.WORKFLOWS
        ),
        *(
            "AwsSolutions-IAM5[Resource::arn:<AWS::Partition>:states:<AWS::Region>:"
            f"<AWS::AccountId>:{kind}:coldstream-{name}/*{rest}]"
            for name in ("retention", "consolidate", "collect", "reconcile")
            for kind, rest in (("execution", ":*"), ("mapRun", ""))
        ),
        "AwsSolutions-GL1",
        "AwsSolutions-GL3",
        *(
            "AwsSolutions-IAM5[Resource::arn:<AWS::Partition>:logs:<AWS::Region>:<AWS::AccountId>:"
            f"log-group:/aws-glue/jobs/coldstream/{name}:log-stream:*]"
            for name in ("output", "error")
        ),
        *(f"AwsSolutions-IAM5[Resource::<Warehouse.Arn>/{name}/*]" for name in deployment.JOBS),
        *(
            "AwsSolutions-IAM5[Resource::arn:<AWS::Partition>:glue:<AWS::Region>:<AWS::AccountId>:"
            f"table/coldstream/{pattern}]"
            for pattern in ("*", "scrub_*", "profile_*", "fleet_*", "rebuild_*")
        ),
    }


@pytest.mark.parametrize("which", ["assembly", *slow(["customised"])])
def test_cfn_lint_finds_nothing(which: str, request: pytest.FixtureRequest) -> None:
    from cfnlint.api import ManualArgs, lint  # seconds, which only who runs this should pay

    assembly: Assembly = request.getfixturevalue(which)

    findings = lint(assembly.template_path.read_text(), config=ManualArgs(regions=["eu-central-1"]))

    assert [str(each) for each in findings] == []
