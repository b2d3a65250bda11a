"""ARNs that are made from names and not from references.

So a function can know the ARN of a machine that calls the function.
"""

from __future__ import annotations

from aws_cdk import Stack


def machine_arn_prefix(stack: Stack) -> str:
    """What the ARNs of the stack's state machines begin with; a workflow's name completes it."""
    return f"{_place(stack, 'states')}:stateMachine:{stack.stack_name}-"


def machine_arn(stack: Stack, name: str) -> str:
    """The ARN of one of the stack's state machines."""
    return machine_arn_prefix(stack) + name


def executions_arn(stack: Stack, name: str) -> str:
    """The ARN of all executions of one of the stack's state machines."""
    return f"{machine_arn(stack, name).replace(':stateMachine:', ':execution:')}:*"


def job_arn(stack: Stack, name: str) -> str:
    """The ARN of a Glue job."""
    return f"{_place(stack, 'glue')}:job/{name}"


def catalog_arn(stack: Stack) -> str:
    """What the ARNs of the account's databases and tables begin with."""
    return _place(stack, "glue")


def alarms_arn(stack: Stack) -> str:
    """The ARN of all alarms of the account in this region."""
    return f"{_place(stack, 'cloudwatch')}:alarm:*"


def map_runs_arn(stack: Stack, name: str) -> str:
    """The ARN of all children that the Distributed Maps of a state machine start."""
    return f"{machine_arn(stack, name).replace(':stateMachine:', ':execution:')}/*:*"


def map_run_arns(stack: Stack, name: str) -> str:
    """The ARN of all runs of the Distributed Maps of a state machine."""
    return f"{machine_arn(stack, name).replace(':stateMachine:', ':mapRun:')}/*"


def log_group_arn(stack: Stack, name: str) -> str:
    """The ARN of a log group."""
    return f"{_place(stack, 'logs')}:log-group:{name}"


def _place(stack: Stack, service: str) -> str:
    return f"arn:{stack.partition}:{service}:{stack.region}:{stack.account}"
