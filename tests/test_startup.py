"""What is loaded when: the command line answers before anything heavy is there."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from forecast import tiny

HEAVY = ("torch", "pytorch_lightning", "mlflow", "optuna", "pandas", "polars", "matplotlib")
TRACKED = ("pytorch_lightning", "mlflow", "optuna")

_RUN = (
    "import sys\nfrom forecaster.cli import main\n"
    "def show():\n"
    f"    print([name for name in {('torch', 'sympy', *TRACKED)} if name in sys.modules])\n"
    "def run(*words):\n"
    "    sys.argv = ['forecaster', *words]\n"
    "    try:\n        main()\n    except SystemExit as left:\n        assert not left.code\n"
    "    show()\n"
)  # sympy: torch's compiler


def _python(*words: object, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *map(str, words)], cwd=cwd, capture_output=True, text=True, timeout=120
    )


@pytest.mark.parametrize(
    "verb",
    [[], ["fit"], ["predict"], ["explain"], ["export"], ["runs"]],
    ids=["all", "fit", "predict", "explain", "export", "runs"],
)
def test_help_answers_without_loading_anything_heavy(tmp_path, verb):
    done = _python("-X", "importtime", "-m", "forecaster", *verb, "--help", cwd=tmp_path)
    assert done.returncode == 0
    assert "Usage: " in done.stdout
    loaded = {line.rsplit("|", 1)[-1].strip() for line in done.stderr.splitlines() if "|" in line}
    assert "forecaster.cli" in loaded
    assert not loaded & set(HEAVY)
    if not verb:  # typer itself imports pydantic to show the types of a verb's options
        # Of rich the oldest typer looks whether it is there.
        assert not loaded & {"pydantic", "yaml", "rich.console"}


@pytest.mark.parametrize(
    ("typed", "offered"), [("forecaster pre", "predict"), ("forecaster predict --what", "--what-if")]
)
def test_tab_completes_verbs_and_their_options(tmp_path, typed, offered):
    words = {"COMP_WORDS": typed, "COMP_CWORD": str(typed.count(" "))}
    program = "import sys; sys.argv = ['forecaster']; from forecaster.cli import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=tmp_path,
        env=os.environ | words | {"_FORECASTER_COMPLETE": "complete_bash"},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.stdout.split() == [offered], done.stderr


def test_importing_the_package_loads_nothing_heavy(tmp_path):
    program = (
        "import sys, forecaster; forecaster.ForecasterError, dir(forecaster); "
        f"print([name for name in {(*HEAVY, 'numpy', 'pydantic')} if name in sys.modules])"
    )
    done = _python("-c", program, cwd=tmp_path)
    assert done.stdout.strip() == "[]", done.stderr


def test_what_is_quickly_refused_is_refused_before_anything_heavy_is_loaded(tmp_path):
    tiny.plain_model().save(tmp_path / "model")
    tiny.plain().write_csv(tmp_path / "shop.csv")
    (tmp_path / "there.csv").touch()
    commands = [
        ["fit", "shpo.csv", "--horizon", "7", "--out", "new"],
        ["fit", "shop.csv", "--out", "new"],
        ["fit", "shop.csv", "--horizon", "7", "--out", "model"],
        ["fit", "shop.csv", "--horizon", "7", "--out", "new", "--future", "away.csv"],
        ["fit", "shop.csv", "--horizon", "7", "--out", "new", "--from", "away"],
        ["tune", "shop.csv"],
        ["tune", "shop.csv", "--horizon", "7", "--out", "model"],
        ["predict", "model", "shpo.csv", "--out", "new.csv"],
        ["predict", "away", "shop.csv", "--out", "new.csv"],
        ["predict", "model", "shop.csv", "--out", "there.csv"],
        ["predict", "shop.csv", "--out", "new.csv"],
        ["predict", "shop.csv", "--horizon", "7", "--label", "store"],
        ["predict", "shpo.csv", "--horizon", "7"],
        ["predict", "model"],
        ["explain", "shop.csv", "--out", "new.html"],
        ["backtest", "model", "shpo.csv"],
        ["backtest", "model", "shop.csv", "--out", "there.csv"],
        ["detect", "model", "shop.csv", "--out", "there.csv"],
    ]
    program = (
        "import sys\nfrom forecaster.cli import main\n"
        f"for words in {commands}:\n"
        "    sys.argv = ['forecaster', *words]\n"
        "    try:\n        main()\n    except SystemExit as left:\n        assert left.code == 2\n"
        f"print([name for name in {HEAVY} if name in sys.modules])\n"
    )
    done = _python("-c", program, cwd=tmp_path)
    assert done.stdout.strip() == "[]", done.stdout + done.stderr
    assert len(done.stderr.splitlines()) == len(commands)


def test_a_table_is_checked_and_converted_without_torch(tmp_path):
    tiny.plain().write_csv(tmp_path / "shop.csv")
    program = "run('check', 'shop.csv')\nrun('convert', 'shop.csv', 'store')\n"
    done = _python("-c", _RUN + program, cwd=tmp_path)
    loaded = [line for line in done.stdout.splitlines() if line.startswith("[")]
    assert loaded == ["[]", "[]"], done.stdout + done.stderr


@pytest.mark.slow
def test_verbs_load_only_what_they_need(tmp_path):
    tiny.plain_model().save(tmp_path / "model")
    tiny.plain().write_csv(tmp_path / "shop.csv")
    tiny.write_tiny(tmp_path / "tiny.yaml")
    days = [f"2024-01-{day:02d},{day % 7 + day / 30}" for day in range(1, 31)]
    (tmp_path / "short.csv").write_text("\n".join(["date,y", *days]))  # too few windows for a network
    # As the names of the series are counted before a saved model is loaded.
    sizes = {"context_length": 16, "patch": 4, "decoder_patch": 4}
    program = (
        "import torch\ntorch.zeros(1, device='meta')\nshow()\n"
        "run('predict', 'model', 'shop.csv', '--out', 'ahead.csv')\n"
        "run('predict', 'shop.csv', '--horizon', '7', '--out', 'alone.csv')\n"
        "from forecaster.config import ModelPlan\nfrom forecaster.model.embedding import Shape\n"
        "from forecaster.model.size import count_parameters\n"
        f"count_parameters(ModelPlan(**{sizes}, head='classes'), Shape(0, 2, classes=3))\n"
        "run('check', 'shop.csv')\n"
        "run('fit', 'short.csv', '--horizon', '3', '--no-tracking', '--out', 'few')\n"
        "run('fit', 'shop.csv', '--horizon', '7', '--config', 'tiny.yaml', '--out', 'new')\n"
    )
    done = _python("-c", _RUN + program, cwd=tmp_path)
    loaded = [line for line in done.stdout.splitlines() if line.startswith("[")]
    shapes = loaded[0]  # torch by itself, for shapes alone: 2.7 loads sympy too
    assert shapes in ("['torch']", "['torch', 'sympy']")
    assert loaded == [*[shapes] * 5, "['torch', 'sympy', 'pytorch_lightning']"], (
        done.stdout + done.stderr
    )
    assert (tmp_path / "ahead.csv").is_file() and (tmp_path / "new" / "contract.json").is_file()


@pytest.mark.long
def test_a_wrong_series_horizon_or_cutoff_is_refused_before_torch_loads(tmp_path):
    tiny.model().save(tmp_path / "model")
    tiny.shop().write_csv(tmp_path / "shop.csv")
    tiny.prices().write_csv(tmp_path / "prices.csv")
    wrong = {
        "--only d": "error: shop.csv: no series 'd' among 3; the first is 'a'",
        "--horizon 8": "error: horizon 8: this model forecasts 1 to 7 steps",
        "--cutoff 2024-04-17": "error: shop.csv: cutoff 2024-04-17 is 1 steps of 1d after the end of the table",
    }
    program = (
        "import sys; from forecaster.__main__ import main\n"
        "for wrong in sys.argv[1:]:\n"
        "    words = ['predict', 'model', 'shop.csv', '--future', 'prices.csv', '--out', 'new.csv']\n"
        "    sys.argv = ['forecaster', *words, *wrong.split()]\n"
        "    try:\n"
        "        main()\n"
        "    except SystemExit as end:\n"
        "        print(end.code, 'torch' in sys.modules)\n"
    )
    done = _python("-c", program, *wrong, cwd=tmp_path)
    assert done.stdout.splitlines() == ["2 False"] * 3, done.stderr
    for line, expected in zip(done.stderr.splitlines(), wrong.values(), strict=True):
        assert line.startswith(expected)
    assert not list(tmp_path.glob("new*"))
