"""A guard taken out of a function by an edit of its source, for as long as a mutant lives."""

from __future__ import annotations

import inspect
import textwrap
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import CodeType
from typing import Any

#: Owner, name of its attribute, value while the patch lasts.
Patch = tuple[Any, str, Any]
_OF_FUNCTIONS = ("__code__", "__kwdefaults__")


@contextmanager
def applied(patches: Sequence[Patch]) -> Iterator[None]:
    """Values exchanged for a while; those that a class has inherited are inherited again after."""
    before = []
    for owner, name, value in patches:
        local = name in _OF_FUNCTIONS or name in vars(owner)
        before.append(
            (
                owner,
                name,
                vars(owner)[name] if local and name not in _OF_FUNCTIONS else getattr(owner, name),
                local,
            )
        )
        setattr(owner, name, value)
    try:
        yield
    finally:
        for owner, name, value, local in reversed(before):
            if local:
                setattr(owner, name, value)
            else:
                delattr(owner, name)


def edit(function: Callable[..., Any], before: str, after: str) -> Patch:
    """The patch that puts `after` in the place of `before` in a function's source.

    Its code is exchanged, not the function, so that everybody who has imported it runs the mutant.

    Args:
        function: a function or method of a module; not one that uses `super` or a closure.
        before: occurs in its source exactly once.
        after: what stands there instead.

    Raises:
        ValueError: `before` does not occur once, so the mutant is out of date.
    """
    source = textwrap.dedent(inspect.getsource(function))
    if source.count(before) != 1:
        raise ValueError(f"{function.__qualname__}: {before!r} occurs {source.count(before)} times")
    module = compile(
        f"from __future__ import annotations\n{source.replace(before, after)}",
        f"<mutant of {function.__qualname__}>",
        "exec",
    )
    code = _code_of(module, function.__name__)
    if code.co_freevars != function.__code__.co_freevars:
        raise ValueError(f"{function.__qualname__} is a closure")
    return function, "__code__", code


def _code_of(module: CodeType, name: str) -> CodeType:
    return next(
        each for each in module.co_consts if isinstance(each, CodeType) and each.co_name == name
    )
