"""Saved queries of Logs Insights: what a person asks the functions' logs first."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import cast

from aws_cdk import Stack
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_logs as logs
from constructs import Construct

QUERIES = Path(__file__).with_name("log_queries")


def save_queries(scope: Construct, functions: Mapping[str, Sequence[lambda_.IFunction]]) -> None:
    """Save every query of `log_queries/`, in a folder of the stack's name.

    Args:
        scope: where they belong.
        functions: whose logs each is about, by the query's name.

    Raises:
        KeyError: nobody says whose logs one is about.
        ValueError: one does not begin with a comment that says what it answers.
    """
    for path in sorted(QUERIES.glob("*.txt")):
        text = path.read_text("utf-8")
        if not re.match(r"# .+\n", text):
            raise ValueError(f"{path.name} does not begin with what it answers")
        groups = [cast("lambda_.Function", each).log_group for each in functions[path.stem]]
        logs.CfnQueryDefinition(
            scope,
            f"Query{path.stem.title()}",
            name=f"{Stack.of(scope).stack_name}/{path.stem}",
            query_string=text,
            log_group_names=[each.log_group_name for each in groups],
        )
