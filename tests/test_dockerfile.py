"""The image: its steps are run in an empty folder and a new environment, without Docker."""

import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from test_wheel import _link

ROOT = Path(__file__).parents[1]
TEXT = (ROOT / "Dockerfile").read_text(encoding="utf-8")
STEPS = [line.split(" ", 1) for line in TEXT.splitlines() if line and not line.startswith("#")]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def _copied() -> list[tuple[list[str], str]]:
    """What each COPY takes, and where to."""
    words = [rest.split() for name, rest in STEPS if name == "COPY"]
    return [(sources, target) for *sources, target in words]


def test_the_image_is_made_of_what_docker_is_given():
    ignored = (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
    sent = {line[1:] for line in ignored if line.startswith("!")}
    assert "*" in ignored
    assert sent == {source for sources, _ in _copied() for source in sources}
    assert [name for name in sent if not (ROOT / name).exists()] == []


def test_the_image_is_short_and_its_python_supported():
    assert len(TEXT.splitlines()) <= 15
    (version,) = re.findall(r"^FROM python:(3\.\d+)-slim$", TEXT, flags=re.MULTILINE)
    assert f"Programming Language :: Python :: {version}" in PROJECT["classifiers"]


@pytest.mark.slow
def test_the_steps_of_the_image_install_a_command_that_forecasts(tmp_path):
    subprocess.run([sys.executable, "-m", "venv", tmp_path / "venv"], check=True)
    (packages,) = (tmp_path / "venv" / "lib").glob("python*/site-packages")
    extras = re.findall(r'"\.\[(.+)\]"', TEXT)[0].split(",")
    needs = [line for name in extras for line in PROJECT["optional-dependencies"][name]]
    _link([*PROJECT["dependencies"], *needs], packages)
    env = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    env |= {"PATH": f"{tmp_path / 'venv' / 'bin'}:{env['PATH']}", "HOME": str(tmp_path)}

    def run(command: str) -> str:
        words = ["sh", "-c", command]
        done = subprocess.run(words, cwd=folder, env=env, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    folder, start = tmp_path, list[str]()
    for name, rest in STEPS:
        if name == "WORKDIR":
            folder = tmp_path / rest.lstrip("/")
            folder.mkdir()
        elif name == "ENV":
            key, value = rest.split("=", 1)
            env[key] = value
        elif name == "COPY":
            *sources, target = rest.split()
            for source in map(ROOT.joinpath, sources):
                copy = shutil.copytree if source.is_dir() else shutil.copy
                copy(source, folder / target)
        elif name == "RUN":
            # Packages are linked from the running environment: pip must not write into it.
            (planned,) = re.findall("^Would install (.+)$", run(f"{rest} --dry-run"), re.MULTILINE)
            if not re.fullmatch(r"attention-forecaster-\S+", planned):
                pytest.skip(f"this environment is not that of constraints.txt: {planned}")
            run(rest)
        elif name == "ENTRYPOINT":
            start = json.loads(rest)
        else:
            assert name in ("FROM", "CMD")
    assert "predict" in run(" ".join([*start, "--help"]))
    shutil.copytree(ROOT / "data", folder / "data")
    (shown,) = re.findall(r"^# docker build .* forecaster (predict .+)$", TEXT, flags=re.MULTILINE)
    run(" ".join([*start, shown]))
    assert len((folder / "now.csv").read_text(encoding="utf-8").splitlines()) == 12 * 28 + 1
