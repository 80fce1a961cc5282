"""The pages of the gallery are what their scripts write."""

import re
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "docs"))

from make_gallery import GALLERY, SCRIPTS, index, page  # noqa: E402

NUMBER = re.compile(r"\d[\d,]*(?:\.\d+)?")
every_script = pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.stem)


def _value(text: str) -> tuple[float, float]:
    """A number and one unit of its last digit."""
    plain = text.replace(",", "").rstrip(".")
    return float(plain), 10.0 ** -len(plain.partition(".")[2])


def test_each_script_has_a_page_a_picture_and_a_place_in_the_list():
    pages = {path.stem for path in GALLERY.glob("*.md")} - {"README"}
    pictures = {path.stem for path in GALLERY.glob("*.png")}
    assert pages == pictures == {script.stem for script in SCRIPTS} and len(SCRIPTS) == 12
    assert (GALLERY / "README.md").read_text(encoding="utf-8") == index()


@every_script
def test_a_page_is_short_and_its_picture_small(script):
    text = script.with_suffix(".md").read_text(encoding="utf-8")
    (code,) = re.findall(r"^```python\n(.*?)^```$", text, flags=re.MULTILINE | re.DOTALL)
    assert code.strip() in script.read_text(encoding="utf-8")
    assert len([line for line in code.splitlines() if line]) <= 25
    assert script.with_suffix(".png").stat().st_size < 300_000


@pytest.mark.slow
@every_script
def test_a_page_is_what_its_script_writes(script, tmp_path):
    """The words to the letter; numbers within 5 %, or a unit of their last digit: machines round differently."""
    shown = script.with_suffix(".md").read_text(encoding="utf-8")
    made = page(script, tmp_path)
    (picture,) = tmp_path.glob("*.png")
    assert picture.name == f"{script.stem}.png" and picture.stat().st_size > 10_000
    parts = [re.sub(r"\s+", " ", NUMBER.sub("0", text)) for text in (shown, made)]
    assert parts[0] == parts[1], f"run: python docs/make_gallery.py {script.relative_to(ROOT)}"
    for there, here in zip(NUMBER.findall(shown), NUMBER.findall(made), strict=True):
        (expected, unit), (found, _) = _value(there), _value(here)
        assert found == pytest.approx(expected, rel=0.05, abs=1.01 * unit)
