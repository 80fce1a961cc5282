"""Size of the code base per folder: code lines, docstring lines, tokens, files, settings, tests.

    python benchmarks/stats.py [PATH ...]

A code line holds at least one token that is neither a comment nor part of a docstring; the comments
column counts lines that hold nothing else, comments per code line those after code too. Lines alone
deceive: they fell while each held more, so tokens are counted beside them, without comments, docstrings
and layout. Totals are printed last; only totals show growth. Of paths, files or folders, only their rows
are printed.
"""

from __future__ import annotations

import ast
import io
import re
import sys
import tokenize
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
LAYOUT = {tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}
TEST = re.compile(r"^\s*def test_", re.MULTILINE)


@dataclass
class Size:
    """Counts of lines, and of tokens, of some files."""

    files: int = 0
    code: int = 0
    docstring: int = 0
    comment: int = 0
    """Lines of a comment alone."""
    blank: int = 0
    tokens: int = 0
    remarks: int = 0
    """Comments, those after code too."""

    def __add__(self, other: Size) -> Size:
        return Size(*(a + b for a, b in zip(vars(self).values(), vars(other).values(), strict=True)))

    @property
    def docstring_share(self) -> float:
        """Docstring lines per non-blank line."""
        return self.docstring / max(1, self.code + self.docstring + self.comment)

    @property
    def density(self) -> float:
        """Tokens per code line."""
        return self.tokens / max(1, self.code)

    @property
    def remark_share(self) -> float:
        """Comments per code line."""
        return self.remarks / max(1, self.code)


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


def size_of(source: str) -> Size:
    """Counts the lines and tokens of one file."""
    docstrings = docstring_lines(source)
    code: set[int] = set()
    comments: set[int] = set()
    tokens = 0
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            comments.add(token.start[0])
        elif token.type not in LAYOUT and token.start[0] not in docstrings:
            tokens += 1
            code.update(range(token.start[0], token.end[0] + 1))
    blank = sum(not line.strip() for line in source.splitlines())
    return Size(
        files=1,
        code=len(code),
        docstring=len(docstrings),
        comment=len(comments - code),
        blank=blank,
        tokens=tokens,
        remarks=len(comments),
    )


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


ROW = "{:<24} {:>6} {:>8} {:>8} {:>8} {:>9} {:>9} {:>9} {:>10}".format


def print_size(name: str, size: Size) -> None:
    """Prints a row of the table."""
    counts = (size.files, size.code, size.docstring, size.comment, f"{size.docstring_share:.0%}")
    print(ROW(name, *counts, size.tokens, f"{size.density:.1f}", f"{size.remark_share:.3f}"))


def size_of_files(files: Sequence[Path]) -> Size:
    """Counts the lines and tokens of some files."""
    return sum((size_of(file.read_text(encoding="utf-8")) for file in files), Size())


def main(paths: Sequence[str]) -> None:
    """Prints the table."""
    heading = ("files", "code", "docstr.", "comments", "docstr. %", "tokens", "per line", "comm./line")
    print(ROW("folder", *heading))
    if paths:
        for path in map(Path, paths):
            print_size(path.as_posix(), size_of_files([*path.rglob("*.py")] or [path]))
        return
    total = Size()
    package = ROOT / "forecaster"
    folders = [package, *sorted(path for path in package.iterdir() if path.is_dir())]
    for folder in folders:
        size = size_of_files([*(folder.glob("*.py") if folder == package else folder.rglob("*.py"))])
        if size.files:
            print_size(folder.relative_to(ROOT).as_posix(), size)
            total += size
    print_size("forecaster, all", total)
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
    main(sys.argv[1:])
