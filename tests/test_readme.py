"""What README.md and docs/tutorial.md show is run.

Training is cut to a few steps of a tiny network behind the command line's back, so that each command
stands here exactly as a reader types it.
"""

import re
import shlex
import subprocess
import sys
from pathlib import Path

import polars as pl
import pytest

import forecaster.runs.pipeline
import forecaster.runs.tune.trial
from forecaster.cli import main
from forecaster.fitting.fit import resolve
from forecaster.forecast.saved_model import load_artifact

ROOT = Path(__file__).parents[1]
README, TUTORIAL = (
    (ROOT / name).read_text(encoding="utf-8") for name in ("README.md", "docs/tutorial.md")
)
NOT_RUN = {
    "python": "installs the package",
}
# MLflow 3.17 maps its tables in a way that SQLAlchemy 2.1 deprecates.
tracked = pytest.mark.filterwarnings("ignore:The ``noload`` loader strategy is deprecated")
TINY = {
    "model": {
        "width": 8,
        "heads": 2,
        "encoder_layers": 1,
        "experts": ["seasonal_naive", "linear"],
    },
    "fit": {"steps": 2, "batch_size": 8},
}
FEWER = {"--trials": "2", "--workers": "1"}
"""A search is cut as well: its workers would be processes that know nothing of a tiny network."""


def readme_blocks(language: str, *pages: str) -> list[str]:
    """The fenced blocks of a language in some pages: README and tutorial."""
    fence = re.compile(rf"^```{language}\n(.*?)^```$", flags=re.MULTILINE | re.DOTALL)
    return [block for page in pages or (README, TUTORIAL) for block in fence.findall(page)]


def readme_commands(*pages: str) -> list[list[str]]:
    """Every command of the shell blocks, as words."""
    lines = "\n".join(readme_blocks("sh", *pages)).replace("\\\n", " ").splitlines()
    commands = [shlex.split(line, comments=True) for line in lines]
    return [command for command in commands if command]


def copy_few_shops(folder: Path) -> None:
    """Writes the tables of data/ to a folder, with the rows of four shops."""
    folder.mkdir()
    for path in (ROOT / "data").glob("*.csv"):
        shops = pl.col("store").is_in([f"store_{number}" for number in range(1, 5)])
        rows = pl.read_csv(path, infer_schema=False).filter(shops)
        rows.write_csv(folder / path.name)


@pytest.fixture
def in_a_fresh_folder(tmp_path, monkeypatch, short_fits):
    """A working directory with nothing but data/, and trainings of two steps."""
    copy_few_shops(tmp_path / "data")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "of the user"))
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)

    def prepare_tiny(panel, config, start=None):
        return resolve(panel, config.replaced(**TINY), start)

    for module in (forecaster.runs.pipeline, forecaster.runs.tune.trial):
        monkeypatch.setattr(module, "resolve", prepare_tiny)
    return tmp_path


def _run(command: list[str], monkeypatch) -> None:
    for flag, fewer in FEWER.items():
        if flag in command:
            place = command.index(flag) + 1
            command = [*command[:place], fewer, *command[place + 1 :]]
    if "--onnx" in command:  # torch cannot follow a network whose shapes are checked
        subprocess.run([sys.executable, "-m", *command], check=True, capture_output=True)
        return
    monkeypatch.setattr(sys, "argv", command)
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 0, shlex.join(command)


def test_every_command_is_run_or_known_not_to_be():
    assert {command[0] for command in readme_commands()} <= {"forecaster", "make", *NOT_RUN}


def test_every_make_target_exists():
    targets = set(re.findall(r"^(\w+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    shown = {word for command in readme_commands() if command[0] == "make" for word in command[1:]}
    assert shown and shown <= targets


@pytest.mark.slow
@tracked
def test_the_shell_quick_start_runs_as_it_stands(in_a_fresh_folder, monkeypatch):
    """The tutorial's, after README's fit, whose model they read; all of README's are run by test_wheel.py."""
    fits = [command for command in readme_commands(README) if command[:2] == ["forecaster", "fit"]]
    commands = fits + [command for command in readme_commands(TUTORIAL) if command[0] == "forecaster"]
    commands.remove(["forecaster", "ui"])  # serves until it is stopped
    assert {"fit", "predict", "runs", "tune", "export"} <= {command[1] for command in commands}
    for command in commands:
        _run(command, monkeypatch)
        for flag in ("--out", "--plot"):
            if flag in command:
                assert Path(command[command.index(flag) + 1]).exists()
    files = {path.name for path in Path("models/sales").iterdir()}
    shown = set(re.findall(r"^[├└]── (\S+\.\w+) ", _block_of("models/sales/"), re.MULTILINE))
    # After two steps no width may help.
    assert files == shown
    assert Path("of the user/forecaster/mlflow.db").exists() and not Path("mlflow.db").exists()


@pytest.mark.slow
@tracked
def test_the_demo_runs_and_leaves_what_the_readme_shows(in_a_fresh_folder, monkeypatch, capsys):
    _run(["forecaster", "demo"], monkeypatch)
    shown = _block_of("store,cutoff,date").splitlines()
    made = Path("demo/forecasts.csv").read_text(encoding="utf-8").splitlines()
    head, tail = shown[0].split(",…,")
    assert made[0].startswith(head) and made[0].endswith(tail)
    # The keys are the same; the numbers are those of a full training.
    keys = [line.split(",")[:5] for line in shown[1:]]
    assert keys == [line.split(",")[:5] for line in made[1 : len(shown)]]
    assert Path("demo/forecast.png").stat().st_size > 10_000
    assert Path("demo/mlflow.db").exists() and not Path("of the user").exists()
    assert (
        f"forecaster ui --uri sqlite:///{Path('demo').absolute()}/mlflow.db\n"
        in capsys.readouterr().out
    )


@pytest.mark.slow
@tracked
def test_the_python_quick_start_runs_as_it_stands(in_a_fresh_folder):
    scope: dict[str, object] = {}
    for block in readme_blocks("python", TUTORIAL):  # README's is run by test_wheel.py
        exec(compile(block, "tutorial.md", "exec"), scope)
    assert Path("forecasts.parquet").exists()
    assert load_artifact("models/sales_too").plan.fit.steps == 2


def test_the_readme_is_short():
    assert len(README.splitlines()) <= 110


def test_the_picture_of_the_demo_is_small():
    assert (ROOT / "docs" / "images" / "demo_forecast.png").stat().st_size < 300_000


def _block_of(first_words: str) -> str:
    (block,) = [block for block in readme_blocks("text") if block.startswith(first_words)]
    return block
