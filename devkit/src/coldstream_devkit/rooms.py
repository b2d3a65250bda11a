"""The rooms of the house: lines and modules of each package, and what goes in circles.

python -m coldstream_devkit.rooms (`make rooms`)

A room is a package or module right below `coldstream`. import-linter keeps imports between rooms
pointing down; this prints what it does not say: how large rooms are, and circles of modules.
"""

from __future__ import annotations

import ast
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import grimp

ROOT = Path(__file__).resolve().parents[3]
PACKAGE = "coldstream"
#: Lines from which on a function is named.
LONG = 60


def room_of(module: str) -> str:
    """`coldstream.spark` for `coldstream.spark.plan`."""
    return ".".join(module.split(".")[:2])


def circles(edges: dict[str, set[str]]) -> list[list[str]]:
    """Groups of nodes that reach one another (Tarjan), each sorted."""
    number: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found: list[list[str]] = []

    def visit(node: str) -> None:
        number[node] = low[node] = len(number)
        stack.append(node)
        for other in sorted(edges.get(node, ())):
            if other not in number:
                visit(other)
                low[node] = min(low[node], low[other])
            elif other in stack:
                low[node] = min(low[node], number[other])
        if low[node] == number[node]:
            group = stack[stack.index(node) :]
            del stack[stack.index(node) :]
            if len(group) > 1:
                found.append(sorted(group))

    for node in sorted(edges):
        if node not in number:
            visit(node)
    return found


def long_functions(path: Path) -> Iterator[tuple[int, str]]:
    """Functions of a file with more than `LONG` lines, docstring and all."""
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.end_lineno is not None:
            lines = node.end_lineno - node.lineno + 1
            if lines > LONG:
                yield lines, node.name


def main() -> None:
    """Print it all."""
    out = sys.stdout.write
    graph = grimp.build_graph(PACKAGE, cache_dir=None)
    modules: Counter[str] = Counter()
    lines: Counter[str] = Counter()
    functions: list[tuple[int, str, str]] = []
    for path in sorted((ROOT / "src" / PACKAGE).rglob("*.py")):
        within = path.relative_to(ROOT / "src").with_suffix("").parts
        room = ".".join(within[:2])
        modules[room] += 1
        lines[room] += len(path.read_text("utf-8").splitlines())
        where = path.relative_to(ROOT).as_posix()
        functions += [(length, where, name) for length, name in long_functions(path)]
    edges = {name: graph.find_modules_directly_imported_by(name) for name in graph.modules}
    arrows = {
        (room_of(one), room_of(other))
        for one, others in edges.items()
        for other in others
        if room_of(one) != room_of(other) and PACKAGE not in (room_of(one), room_of(other))
    }
    for room, count in lines.most_common():
        out(f"{count:7,} lines {modules[room]:4} modules  {room}\n")
    out(f"{sum(lines.values()):7,} lines {sum(modules.values()):4} modules\n")
    rooms: dict[str, set[str]] = {}
    for one, other in arrows:
        rooms.setdefault(one, set()).add(other)
    out(f"arrows between rooms: {len(arrows)}\n")
    for what, groups in (("rooms", circles(rooms)), ("modules", circles(edges))):
        out(f"circles of {what}: {len(groups)}\n")
        for group in groups:
            out(f"  {' '.join(group)}\n")
    out(f"functions above {LONG} lines: {len(functions)}\n")
    for length, where, name in sorted(functions, reverse=True):
        out(f"  {length:4} {where} {name}\n")


if __name__ == "__main__":
    main()
