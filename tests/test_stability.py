"""What docs/stability.md says 1.x keeps is there."""

import re
from pathlib import Path

import forecaster as fc
from forecaster.cli import VERBS
from forecaster.cli.document import CODES

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "stability.md").read_text(encoding="utf-8")


def _listed(start: str) -> set[str]:
    """The words in code of the paragraph that starts so, without its first, the prefix."""
    (paragraph,) = [part for part in PAGE.split("\n\n") if part.startswith(start)]
    return set(re.findall(r"`(\w+)`", paragraph.partition(":")[2])) - {"forecaster"}


def test_every_name_that_is_kept_exists():
    """A new name is added to the page when it is released; none may leave it before 2.0."""
    assert _listed("Names of Python") <= set(fc.__all__)
    assert len(_listed("Names of Python")) >= 27
    assert all(getattr(fc, name) for name in _listed("Names of Python"))


def test_every_verb_that_is_kept_exists():
    assert _listed("Verbs of the shell") <= set(VERBS)
    assert len(_listed("Verbs of the shell")) >= 15


def test_every_code_of_an_error_that_is_kept_exists():
    page = (ROOT / "docs" / "how-to.md").read_text(encoding="utf-8")
    listed = page.partition("Codes: ")[2].partition("After Ctrl-C")[0]
    codes = set(re.findall(r"`(\w+)`", listed))
    assert codes == {*CODES.values(), "usage", "bug"} and len(codes) == 9


def test_every_test_that_the_page_names_exists():
    rows = [line.rsplit("|", 2)[1] for line in PAGE.splitlines() if line.startswith("| ")]
    named = re.findall(r"`([\w/.]+)`", " ".join(rows))
    assert len(named) >= 10
    assert [name for name in named if not (ROOT / "tests" / name).exists()] == []


def test_the_changes_begin_with_the_version_of_the_package():
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    (newest, *_) = re.findall(r"^## \[([\d.]+)\]", text, flags=re.MULTILINE)
    assert newest == fc.__version__
