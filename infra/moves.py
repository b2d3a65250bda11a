"""CloudFormation itself refuses to move a stack to the prefix of another cluster."""

from __future__ import annotations

from aws_cdk import CfnParameter, CfnRule, CfnRuleAssertion, Fn
from constructs import Construct

#: A parameter of the template; its value stays with the stack.
SERVED_PREFIX = "ServedPrefix"


def refuse_moves(scope: Construct, prefix: str) -> None:
    """Keep the prefix that a stack was made with, whoever deploys, and from whatever checkout.

    A new stack takes the parameter's default. For one that is there the CDK's command line asks for
    the value that it has (`UsePreviousValue`), and the rule compares that with the prefix of the
    template, before CloudFormation changes anything. To move a stack that holds nothing, give the
    parameter: `npx cdk deploy --parameters ServedPrefix=new/`.

    Args:
        scope: the stack.
        prefix: what it serves.
    """
    served = CfnParameter(
        scope,
        SERVED_PREFIX,
        type="String",
        default=prefix,
        description="The prefix that this stack was made for. Another cluster is another stack.",
    )
    CfnRule(
        scope,
        "OnePrefix",
        assertions=[
            CfnRuleAssertion(
                assert_=Fn.condition_equals(served.value_as_string, prefix),
                assert_description=(
                    f"This stack serves another prefix than {prefix}: another cluster is another"
                    " coldstream:stack-name"
                ),
            )
        ],
    )
