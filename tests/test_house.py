"""The repository guards itself: sizes, names, docstrings, the direction of imports, folders, pins."""

import ast
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterable, Iterator
from fnmatch import fnmatch
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[1]
FOLDERS = {"forecaster", "data", "configs", "tests", "notebooks", "benchmarks", "docs"}
FILE_LINES = 320
FUNCTION_LINES = 60
PARAMETERS = 9
SHAPELESS_NAMES = {"utils", "helpers", "misc", "common", "manager"}

Function = ast.FunctionDef | ast.AsyncFunctionDef
Definition = Function | ast.ClassDef


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


def _functions(module: ast.Module) -> Iterator[Function]:
    return (node for node in ast.walk(module) if isinstance(node, Function))


def _is_command(path: str, function: Function) -> bool:
    """Whether the shell's flags are this function's parameters, so that it may have many."""
    return path.startswith("forecaster/cli/") and not function.name.startswith("_")


def _lines_without_docstring(function: Function, from_body: bool) -> int:
    docstring = ast.get_docstring(function) is not None
    first = function.body[0]
    written = first.end_lineno - first.lineno + 1 if docstring else 0
    start = first.lineno if from_body else function.lineno
    return function.end_lineno - start + 1 - written


def _public(parent: ast.Module | ast.ClassDef, path: str) -> Iterator[tuple[str, Definition]]:
    for node in parent.body:
        if isinstance(node, Definition) and not node.name.startswith("_"):
            name = f"{path}:{node.lineno} {node.name}"
            yield name, node
            if isinstance(node, ast.ClassDef):
                yield from _public(node, path)


def test_no_file_is_longer_than_a_reader_holds_in_mind():
    lengths = {
        file.relative_to(ROOT).as_posix(): len(file.read_text(encoding="utf-8").splitlines())
        for file in (ROOT / "forecaster").rglob("*.py")
    }
    _assert_none(f"{path}: {n} lines" for path, n in lengths.items() if n > FILE_LINES)


def test_no_function_is_longer_than_a_screen(modules):
    lengths = {
        f"{path}:{function.lineno} {function.name}": _lines_without_docstring(
            function, from_body=_is_command(path, function)
        )
        for path, module in modules.items()
        for function in _functions(module)
    }
    _assert_none(f"{name}: {n} lines" for name, n in lengths.items() if n > FUNCTION_LINES)


def test_no_function_has_more_parameters_than_a_call_can_show(modules):
    counts = {}
    for path, module in modules.items():
        for function in _functions(module):
            if _is_command(path, function):
                continue
            spec = function.args
            names = [arg.arg for arg in (*spec.posonlyargs, *spec.args, *spec.kwonlyargs)]
            names += [arg.arg for arg in (spec.vararg, spec.kwarg) if arg is not None]
            if names[:1] in (["self"], ["cls"]):
                names.pop(0)
            counts[f"{path}:{function.lineno} {function.name}"] = len(names)
    _assert_none(f"{name}: {n} parameters" for name, n in counts.items() if n > PARAMETERS)


def test_no_file_or_folder_has_a_name_that_says_nothing():
    _assert_none(
        path.relative_to(ROOT).as_posix()
        for path in (ROOT / "forecaster").rglob("*")
        if path.stem.strip("_") in SHAPELESS_NAMES
    )


def test_no_import_is_relative(modules):
    _assert_none(
        f"{path}:{node.lineno}"
        for path, module in modules.items()
        for node in ast.walk(module)
        if isinstance(node, ast.ImportFrom) and node.level > 0
    )


def test_everything_public_has_a_docstring(modules):
    silent = [path for path, module in modules.items() if ast.get_docstring(module) is None]
    silent += [
        name
        for path, module in modules.items()
        for name, definition in _public(module, path)
        if ast.get_docstring(definition) is None
    ]
    _assert_none(silent)


def test_imports_flow_down_only():
    # Without the cache: a test leaves nothing behind and sees the files as they are.
    program = (
        "import sys; from importlinter.cli import lint_imports; "
        "sys.exit(lint_imports(no_cache=True, no_logo=True))"
    )
    result = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, timeout=120
    )
    assert result.returncode == 0, result.stdout + result.stderr


def _top_folders() -> set[str]:
    """Top folders without hidden ones: the tracked ones, or outside git those not ignored."""
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=False)
    tracked = listed.stdout.splitlines() if listed.returncode == 0 else []
    if tracked:
        folders = {path.split("/")[0] for path in tracked if "/" in path}
    else:
        lines = (ROOT / ".gitignore").read_text(encoding="utf-8").splitlines()
        ignored = [line.rstrip("/") for line in lines if line.endswith("/")]
        folders = {
            path.name
            for path in ROOT.iterdir()
            if path.is_dir() and not any(fnmatch(path.name, pattern) for pattern in ignored)
        }
    return {name for name in folders if not name.startswith(".")}


def test_the_top_folders_are_the_ones_on_the_map():
    assert _top_folders() == FOLDERS


def _pins() -> dict[str, str]:
    pins = {}
    for line in (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines():
        if line and not line.startswith("#"):
            found = re.fullmatch(r"([\w.-]+)==([\w.]+)", line)
            assert found, f"constraints.txt: {line!r} is not name==version"
            pins[canonicalize_name(found[1])] = found[2]
    return pins


def test_every_direct_dependency_is_pinned_within_its_bounds():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"].values()
    direct = [Requirement(line) for group in (project["dependencies"], *extras) for line in group]
    pins = _pins()
    assert set(pins) == {canonicalize_name(need.name) for need in direct}
    _assert_none(
        f"{need}: pinned to {pins[canonicalize_name(need.name)]}"
        for need in direct
        if not need.specifier.contains(pins[canonicalize_name(need.name)])
    )
