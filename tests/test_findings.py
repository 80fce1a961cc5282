"""The rules that findings name in the code are the rules that docs/how-to.md explains."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
PLACE = {
    "Finding": 1,
    "finding": 1,
    "fault": 0,
    "row_fault": 0,
    "Faults": 0,
    "_on_series": 1,
    "_drift": 0,
}
"""Which argument is the rule."""


def _constants(node: ast.expr) -> Iterator[str]:
    if isinstance(node, ast.Constant):
        yield node.value
    elif isinstance(node, ast.IfExp):
        yield from _constants(node.body)
        yield from _constants(node.orelse)


def _rules_in_code() -> set[str]:
    return {
        rule
        for file in (ROOT / "forecaster").rglob("*.py")
        for call in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
        if isinstance(call, ast.Call) and getattr(call.func, "id", None) in PLACE
        for rule in (*call.args[PLACE[call.func.id] :][:1],)
        for rule in _constants(rule)
    }


def test_every_rule_is_explained_and_every_explained_rule_exists():
    page = (ROOT / "docs" / "how-to.md").read_text(encoding="utf-8")
    table = page[page.index("| rule | severity |") :].split("\n\n")[0]
    explained = {
        rule for line in table.splitlines() for rule in re.findall(r"`([a-z-]+)`", line.split("|")[1])
    }
    rules = _rules_in_code()
    assert len(rules) > 40
    # An error that names no rule of its own is one of the table.
    assert explained == rules | {"table"}
