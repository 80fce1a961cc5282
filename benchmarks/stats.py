"""Size of the code base per folder: code lines, docstring lines, files, settings, tests.

    python benchmarks/stats.py

A code line holds at least one token that is neither a comment nor part of a docstring. Totals are
printed last; only totals show growth.
"""

from __future__ import annotations

import ast
import io
import re
import tokenize
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
LAYOUT = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT}
TEST = re.compile(r"^\s*def test_", re.MULTILINE)


@dataclass
class Size:
    """Line counts of some files."""

    files: int = 0
    code: int = 0
    docstring: int = 0
    comment: int = 0
    blank: int = 0

    def __add__(self, other: Size) -> Size:
        return Size(*(a + b for a, b in zip(vars(self).values(), vars(other).values(), strict=True)))

    @property
    def docstring_share(self) -> float:
        """Docstring lines per non-blank line."""
        return self.docstring / max(1, self.code + self.docstring + self.comment)


def docstring_lines(source: str) -> set[int]:
    """Numbers of the lines that docstrings cover, those of attributes included."""
    lines: set[int] = set()
    for node in ast.walk(ast.parse(source)):
        body = getattr(node, "body", None)
        for statement in body if isinstance(body, list) else ():
            if (
                isinstance(statement, ast.Expr)
                and isinstance(statement.value, ast.Constant)
                and isinstance(statement.value.value, str)
            ):
                lines.update(range(statement.lineno, (statement.end_lineno or statement.lineno) + 1))
    return lines


def size_of(path: Path) -> Size:
    """Counts the lines of one file."""
    source = path.read_text(encoding="utf-8")
    docstrings = docstring_lines(source)
    code: set[int] = set()
    comments: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            comments.add(token.start[0])
        elif token.type not in LAYOUT and token.type != tokenize.ENDMARKER:
            code.update(range(token.start[0], token.end[0] + 1))
    code -= docstrings
    blank = sum(not line.strip() for line in source.splitlines())
    return Size(1, len(code), len(docstrings), len(comments - code - docstrings), blank)


def settings() -> dict[str, int]:
    """Number of settings per section of the config."""
    from pydantic import BaseModel

    from forecaster.config import Config

    counts = {"top": 0}
    for name, field in Config.model_fields.items():
        if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel):
            counts[name] = len(field.annotation.model_fields)
        else:
            counts["top"] += 1
    return counts


def main() -> None:
    """Prints the table."""
    row = "{:<24} {:>6} {:>8} {:>8} {:>8} {:>9}".format
    print(row("folder", "files", "code", "docstr.", "comments", "docstr. %"))
    total = Size()
    package = ROOT / "forecaster"
    folders = [package, *sorted(path for path in package.iterdir() if path.is_dir())]
    for folder in folders:
        files = folder.glob("*.py") if folder == package else folder.rglob("*.py")
        size = sum((size_of(file) for file in files), Size())
        if size.files:
            name = folder.relative_to(ROOT).as_posix()
            share = f"{size.docstring_share:.0%}"
            print(row(name, size.files, size.code, size.docstring, size.comment, share))
            total += size
    share = f"{total.docstring_share:.0%}"
    print(row("forecaster, all", total.files, total.code, total.docstring, total.comment, share))
    for name in ("tests", "benchmarks"):
        files = sorted((ROOT / name).rglob("*.py"))
        lines = sum(len(file.read_text(encoding="utf-8").splitlines()) for file in files)
        tests = sum(len(TEST.findall(file.read_text(encoding="utf-8"))) for file in files)
        print(f"{name}: {len(files)} files, {lines:,} lines, {tests:,} test functions")
    docs = sum(
        len(file.read_text(encoding="utf-8").splitlines()) for file in (ROOT / "docs").rglob("*.md")
    )
    print(f"docs: {docs:,} lines")
    counts = settings()
    print(f"settings: {sum(counts.values())} ({', '.join(f'{k} {v}' for k, v in counts.items())})")


if __name__ == "__main__":
    main()
