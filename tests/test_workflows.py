"""The workflows of continuous integration run what exists, on the versions that the package supports."""

import re
import tomllib
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[1]
FILES = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def jobs(path):
    return yaml.safe_load(path.read_text(encoding="utf-8"))["jobs"]


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_each_command_of_a_workflow_exists(path):
    targets = set(re.findall(r"^(\w+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    for job in jobs(path).values():
        assert job["timeout-minutes"] <= 90
        for command in [step["run"] for step in job["steps"] if "run" in step]:
            if command.startswith("make "):
                assert command.removeprefix("make ") in targets
            elif command.startswith("."):
                assert (ROOT / command).stat().st_mode & 0o111
            else:
                assert re.match(
                    r"python -m (pip install|build|pytest -q tests/)|cd .* && forecaster ", command
                )


def test_the_tests_run_on_each_python_that_the_package_names():
    named = [text.rsplit(" ", 1)[1] for text in PROJECT["classifiers"] if ":: 3." in text]
    (checks,) = [path for path in FILES if path.stem == "checks"]
    assert jobs(checks)["test"]["strategy"]["matrix"]["python"] == named


def test_the_citation_has_the_license_of_the_package():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert citation["license"] == PROJECT["license"]
