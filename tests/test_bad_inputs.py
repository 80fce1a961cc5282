"""The catalogue of broken tables: each is refused with its lines, at once, and nothing is written.

`tests/bad_inputs/catalogue.yaml` names the files beside it, the flags and the lines to expect.
"""

import re
import shutil
from pathlib import Path

import pytest
import yaml
from forecast.tiny import tree

HERE = Path(__file__).parent / "bad_inputs"
CASES = yaml.safe_load((HERE / "catalogue.yaml").read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def tables(tmp_path_factory) -> Path:
    """A copy of the broken tables."""
    return shutil.copytree(HERE, tmp_path_factory.mktemp("bad") / "inputs")


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["why"])
@pytest.mark.parametrize("verb", ["check", "fit"])
def test_a_broken_table_is_refused_with_its_lines(case, verb, tables, shell, monkeypatch):
    monkeypatch.chdir(tables)
    before = tree(tables)
    words = [verb, case["file"], *case.get("flags", "").split()]
    answer = shell(*words, *(["--horizon", 2, "--out", "model"] if verb == "fit" else []))
    said = answer.err.replace(str(tables), "FOLDER")
    said = re.sub(r"\(parquet: [^)]+\)", "(parquet: …)", said).splitlines()
    assert said == [f"error: {line}" for line in case["says"]]
    assert answer.code == 2 and "Traceback" not in answer.out
    assert tree(tables) == before


def test_the_catalogue_is_large_and_every_file_of_it_is_used():
    assert len(CASES) >= 60 and len({case["why"] for case in CASES}) == len(CASES)
    words = {word for case in CASES for word in (case["file"], *case.get("flags", "").split())}
    files = [
        path for path in HERE.iterdir() if path.suffix not in (".py", ".yaml") and path.name[0] != "_"
    ]
    assert {path.name for path in files} <= words
