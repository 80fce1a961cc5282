"""The built package: the sdist has what the wheel is made of, the wheel runs where nothing else of us is."""

import json
import os
import re
import shlex
import subprocess
import sys
import tarfile
import zipfile
from importlib.metadata import distribution
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from test_readme import README, TINY, TUTORIAL, copy_few_shops, readme_blocks, readme_commands

from forecaster.config import PRESETS

ROOT = Path(__file__).parents[1]
pytestmark = pytest.mark.slow

DRIVER = f"""
import json, sys
import forecaster.runs.pipeline, forecaster.runs.tune.trial
from forecaster.cli import main
from forecaster.fitting.experts import cold_bands, tuning
from forecaster.fitting.fit import resolve
from forecaster.forecast import error_levels

assert forecaster.__file__.startswith(sys.prefix), forecaster.__file__
def prepare_tiny(panel, config, start=None):
    return resolve(panel, config.replaced(**{TINY}), start)
forecaster.runs.pipeline.resolve = forecaster.runs.tune.trial.resolve = prepare_tiny
tuning.STEPS, tuning._ROWS, cold_bands._WINDOWS, error_levels.CUTOFFS = 3, 64, 20, 10

commands, blocks = json.loads(sys.argv[1])
for command in commands:
    sys.argv = command
    try:
        main()
    except SystemExit as left:
        assert left.code == 0, command
scope = {{}}
for block in blocks:
    exec(block, scope)
"""
"""Runs README's quick start in the installed package, with trainings of two steps."""


@pytest.fixture(scope="module")
def built(tmp_path_factory) -> tuple[Path, Path]:
    """The sdist, and the wheel that is built from it."""
    out = tmp_path_factory.mktemp("dist")
    words = [sys.executable, "-m", "build", "--outdir", str(out), str(ROOT)]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    (sdist,), (wheel,) = out.glob("*.tar.gz"), out.glob("*.whl")
    return sdist, wheel


def test_the_sdist_holds_what_a_packager_needs_and_no_more(built):
    with tarfile.open(built[0]) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    top = {name.partition("/")[0] for name in names}
    texts = {"README.md", "LICENSE", "CHANGELOG.md", "constraints.txt", "pyproject.toml", "PKG-INFO"}
    assert top - {".gitignore"} == texts | {"forecaster", "configs", "data"}
    assert {name for name in names if name.startswith("data/")} == {
        "data/demo.csv",
        "data/demo_future.csv",
    }
    assert not {name for name in names if "__pycache__" in name}


def test_the_wheel_holds_the_package_and_the_files_of_configs_and_data(built):
    with zipfile.ZipFile(built[1]) as archive:
        names = set(archive.namelist())
        code = {f"forecaster/{path.relative_to(ROOT / 'forecaster').as_posix()}"
                for path in (ROOT / "forecaster").rglob("*.py")}  # fmt: skip
        assert code <= names
        copies = {f"configs/{name}.yaml": f"forecaster/presets/{name}.yaml" for name in PRESETS}
        copies |= {
            f"data/{name}": f"forecaster/demo_data/{name}" for name in ("demo.csv", "demo_future.csv")
        }
        copies["configs/sweeps/default.yaml"] = "forecaster/sweeps/default.yaml"
        for own, copy in copies.items():
            assert archive.read(copy) == (ROOT / own).read_bytes(), copy
        top = {name.partition("/")[0] for name in names}
    assert {name for name in top if not name.endswith(".dist-info")} == {"forecaster"}


def _link(required: list[str], packages: Path) -> None:
    """Links what is required, and what that requires, from the running environment: two gigabytes stay there."""
    wanted, seen = [(text, "") for text in required], set()
    while wanted:
        requirement = Requirement(wanted[-1][0])
        extra = wanted.pop()[1]
        if requirement.marker is not None and not requirement.marker.evaluate({"extra": extra}):
            continue
        extras = {"", *requirement.extras}
        new = {(requirement.name.lower(), one) for one in extras} - seen
        seen |= new
        if not new:
            continue
        found = distribution(requirement.name)
        wanted += [(text, one) for text in found.requires or () for _, one in new]
        for top in {file.parts[0] for file in found.files or ()} - {"..", "__pycache__"}:
            link = packages / top
            if not link.exists() and not top.endswith(".pth"):
                link.symlink_to(found.locate_file(top))


def test_the_quick_start_and_the_demo_run_from_the_wheel_alone(built, tmp_path):
    """In an environment with what the wheel requires, without extras, and a folder with data alone.

    What tutorial.md shows is run by test_readme.py.
    """
    subprocess.run([sys.executable, "-m", "venv", tmp_path / "venv"], check=True)
    python, forecaster = (tmp_path / "venv" / "bin" / name for name in ("python", "forecaster"))
    (packages,) = (tmp_path / "venv" / "lib").glob("python*/site-packages")
    install = [python, "-m", "pip", "install", "-q", "--disable-pip-version-check"]
    subprocess.run([*install, "--no-deps", "--no-index", built[1]], check=True)
    with zipfile.ZipFile(built[1]) as archive:
        (metadata,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        text = archive.read(metadata).decode()
    _link(re.findall("^Requires-Dist: (.+)$", text, re.MULTILINE), packages)
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    env = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    env |= {"XDG_DATA_HOME": str(tmp_path / "of the user")}
    env.pop("MLFLOW_TRACKING_URI", None)

    def run(*words: object) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*map(str, words)], cwd=folder, env=env, capture_output=True, text=True, check=False
        )

    # With its own data; as it stands it is run by tests/cli/test_verbs.py.
    done = run(python, "-c", DRIVER, json.dumps([[["forecaster", "demo"]], []]))
    assert done.returncode == 0, done.stdout + done.stderr
    assert (folder / "demo" / "report.html").exists() and (folder / "demo" / "forecast.png").exists()
    done = run(forecaster, "config", "--preset", "long")
    assert done.returncode == 0 and "attention: local" in done.stdout, done.stderr

    copy_few_shops(folder / "data")
    commands = [command for command in readme_commands(README) if command[0] == "forecaster"]
    (onnx,) = [command for command in readme_commands(TUTORIAL) if "--onnx" in command]
    done = run(python, "-c", DRIVER, json.dumps([commands, readme_blocks("python", README)]))
    assert done.returncode == 0, done.stdout + done.stderr
    assert {"check", "fit", "predict", "backtest", "detect", "explain"} == {one[1] for one in commands}
    for command in commands:
        for flag in {"--out", "--plot", "--report"} & {*command}:
            assert (folder / command[command.index(flag) + 1]).exists(), command
    done = run(forecaster, *onnx[1:])
    assert done.returncode == 2 and "pip install onnx onnxruntime onnxscript" in done.stderr, (
        shlex.join(onnx) + done.stderr
    )
