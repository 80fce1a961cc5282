"""Tables as people have them: `check` reads each of them as its owner would.

A file NAME.txt of `tests/everyday` holds commands, each with what it prints, of the table beside it.
"""

import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

HERE = Path(__file__).parent / "everyday"
PAGES = sorted(HERE.glob("*.txt"))


def _commands(page: str) -> Iterator[tuple[str, str]]:
    """The arguments of each command of a page, and what it prints."""
    for part in page.split("$ forecaster ")[1:]:
        command, _, printed = part.partition("\n")
        yield command, printed.strip()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_an_everyday_table_is_read_as_its_owner_would(page, shell, monkeypatch):
    monkeypatch.chdir(HERE)
    for command, expected in _commands(page.read_text(encoding="utf-8")):
        answer = shell(*shlex.split(command))
        lines = (answer.out + answer.err).splitlines()
        printed = "\n".join(line.rstrip() for line in lines).strip()
        assert printed == expected, command


def test_everyday_tables_are_small_and_each_has_its_page():
    tables = {path.stem: path for path in HERE.iterdir() if path.suffix not in (".txt", ".py")}
    assert tables.keys() == {page.stem for page in PAGES}
    for table in tables.values():
        assert table.read_bytes().count(b"\n") <= 61, table.name
