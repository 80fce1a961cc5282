"""Writes docs/errors.md from catalogue.yaml, which the tests hold to be true."""

from itertools import groupby
from pathlib import Path
from typing import Any

import yaml

HERE = Path(__file__).parent
PAGE = HERE.parents[1] / "docs" / "errors.md"
HEAD = """# What is refused, and what it says

Every table below is broken in one way; the files are in `tests/bad_inputs/`. `forecaster check` and
`forecaster fit` answer with the lines shown, exit with code 2 and write nothing. Rows are counted from
1, without the header. This page is made from the tests' own catalogue.
"""


def page(cases: list[dict[str, Any]]) -> str:
    """Returns the page: a heading per group, and per case what is wrong, the command and its answer."""
    parts = [HEAD]
    for group, members in groupby(cases, key=lambda case: case["group"]):
        parts.append(f"## {group}\n")
        for case in members:
            command = " ".join(["$ forecaster check", case["file"], case.get("flags", "")]).rstrip()
            lines = [command, *(f"error: {line}" for line in case["says"])]
            parts.append("\n".join([f"**{case['why']}**", "", "```", *lines, "```", ""]))
    return "\n".join(parts)


if __name__ == "__main__":
    found = yaml.safe_load((HERE / "catalogue.yaml").read_text(encoding="utf-8"))
    PAGE.write_text(page(found), encoding="utf-8")
