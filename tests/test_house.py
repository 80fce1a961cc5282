"""The repository guards itself: names, folders, pins; the direction of imports is for lint-imports."""

import ast
import re
import subprocess
import tomllib
from collections.abc import Iterable
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

import forecaster
from forecaster.config import Config, Section

ROOT = Path(__file__).parents[1]
FOLDERS = {"forecaster", "data", "configs", "tests", "notebooks", "benchmarks", "docs"}
TWICE = {"store.py"}
"""Names that are still used twice; no other may be."""
SHAPELESS_NAMES = {"utils", "helpers", "misc", "common", "manager"}


@pytest.fixture(scope="module")
def modules() -> dict[str, ast.Module]:
    """The package's files, parsed, by their path in the repository."""
    files = sorted((ROOT / "forecaster").rglob("*.py"))
    assert files
    return {
        file.relative_to(ROOT).as_posix(): ast.parse(file.read_text(encoding="utf-8")) for file in files
    }


def _assert_none(faults: Iterable[str]) -> None:
    found = list(faults)
    assert not found, "\n".join(["", *found])


def test_no_file_or_folder_has_a_name_that_says_nothing():
    _assert_none(
        path.relative_to(ROOT).as_posix()
        for path in (ROOT / "forecaster").rglob("*")
        if path.stem.strip("_") in SHAPELESS_NAMES
    )


def _shared(names: Iterable[tuple[str, str]]) -> Iterable[str]:
    """Lines for names that occur in several places, out of (name, place)."""
    places: dict[str, list[str]] = {}
    for name, place in names:
        places.setdefault(name, []).append(place)
    return (
        f"{name}: {', '.join(found)}"
        for name, found in places.items()
        if len(found) > 1 and name not in TWICE
    )


def test_no_two_files_share_a_name(modules):
    """An editor's tabs show names only. Verbs are called like the files that do their work."""
    own = (path for path in modules if "/cli/" not in path and not path.endswith("__init__.py"))
    _assert_none(_shared((path.rsplit("/", 1)[-1], path) for path in own))


def test_no_two_classes_share_a_name(modules):
    _assert_none(
        _shared(
            (node.name, path)
            for path, module in modules.items()
            for node in ast.walk(module)
            if isinstance(node, ast.ClassDef)
        )
    )


def test_every_setting_is_read(modules):
    read = {
        node.attr
        for path, module in modules.items()
        if path != "forecaster/config.py"
        for node in ast.walk(module)
        if isinstance(node, ast.Attribute)
    }
    sections = [getattr(Config(), name) for name in Config.model_fields]
    settings = [
        name for part in sections if isinstance(part, Section) for name in type(part).model_fields
    ]
    _assert_none(name for name in settings if name not in read)


def test_the_top_folders_are_the_ones_on_the_map():
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=False)
    if listed.returncode:
        pytest.skip("no git checkout")
    folders = {path.split("/")[0] for path in listed.stdout.splitlines() if "/" in path}
    assert {name for name in folders if not name.startswith(".")} == FOLDERS


def _pins(file: str) -> dict[str, str]:
    pins = {}
    for line in (ROOT / file).read_text(encoding="utf-8").splitlines():
        if line and not line.startswith("#"):
            found = re.fullmatch(r"([\w.-]+)==([\w.]+)", line)
            assert found, f"{file}: {line!r} is not name==version"
            pins[canonicalize_name(found[1])] = found[2]
    return pins


def _direct() -> list[Requirement]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"].values()
    return [Requirement(line) for group in (project["dependencies"], *extras) for line in group]


def test_every_direct_dependency_is_pinned_within_its_bounds():
    direct, pins = _direct(), _pins("constraints.txt")
    assert set(pins) == {canonicalize_name(need.name) for need in direct}
    _assert_none(
        f"{need}: pinned to {pins[canonicalize_name(need.name)]}"
        for need in direct
        if not need.specifier.contains(pins[canonicalize_name(need.name)])
    )


def test_the_lowest_pins_are_the_lower_bounds():
    """`make lowest` tests what pyproject.toml promises: each direct dependency at its bound."""
    bounds = {
        canonicalize_name(need.name): bound.version
        for need in _direct()
        for bound in need.specifier
        if bound.operator == ">="
    }
    pins = _pins("constraints-lowest.txt")
    assert set(pins) == set(bounds)
    _assert_none(
        f"{name}: bound {bounds[name]}, pinned to {pin}"
        for name, pin in pins.items()
        if Version(pin) != Version(bounds[name])
    )


def test_what_code_and_wheel_say_of_the_version_is_one_string():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    assert "version" in project["project"]["dynamic"] and "version" not in project["project"]
    assert project["tool"]["hatch"]["version"] == {"path": "forecaster/__init__.py"}
    assert Version(forecaster.__version__)
