"""What works without any extra, and what a missing one says: in a process that cannot import them."""

import subprocess
import sys

import pytest
from forecast import tiny

EXTRAS = (
    "matplotlib",
    "holidays",
    "onnx",
    "onnxruntime",
    "onnxscript",
    "ray",
    "fastexcel",
    "xlsxwriter",
    "mcp_types",
)
BLOCKED = f"""
import sys
from importlib.metadata import Distribution, PackageNotFoundError
sys.modules |= dict.fromkeys({EXTRAS})
installed = Distribution.from_name
def from_name(name):
    if name in {EXTRAS}:
        raise PackageNotFoundError(name)
    return installed(name)
Distribution.from_name = from_name
"""
"""As if not installed: imports fail, `find_spec` and the metadata, which torchmetrics asks, have none."""
MAIN = """
from forecaster.cli import main
def run(*words):
    sys.argv = ["forecaster", *words]
    try:
        main()
    except SystemExit as left:
        return left.code
"""


@pytest.fixture
def python(tmp_path):
    """Runs a program without the extras, in a folder with a small model and its table."""
    tiny.plain_model().save(tmp_path / "model")
    tiny.plain().write_csv(tmp_path / "shop.csv")
    (tmp_path / "shop.xlsx").write_bytes(b"PK\x03\x04" + bytes(26) + b"[Content_Types].xml")

    def run(program: str) -> subprocess.CompletedProcess[str]:
        words = [sys.executable, "-c", BLOCKED + program]
        return subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, timeout=300)

    return run


@pytest.mark.slow
def test_fit_predict_backtest_and_the_demo_run_without_any_extra(python, tmp_path):
    """The demo is a fit, a prediction and a backtest, tracked."""
    program = f"""
import forecaster.runs.pipeline as pipeline
from forecaster.fitting.fit import resolve
few = {{"model": {{"width": 8, "heads": 2, "experts": ["seasonal_naive"]}}, "fit": {{"steps": 2, "batch_size": 8}}}}
pipeline.resolve = lambda panel, config, start=None: resolve(panel, config.replaced(**few), start)
{MAIN}
assert not run("demo")
"""
    done = python(program)
    assert done.returncode == 0, done.stdout + done.stderr
    needs = "pictures and pages need matplotlib: pip install matplotlib"
    said = " ".join(done.stdout.split())
    assert f"no loss.png, forecast.png, report.html: {needs}; the model itself is complete" in said
    assert f"no backtest.png, report.html: {needs}; the scores are complete" in said
    assert f"no forecast.png, report.html: {needs}; everything else is complete" in said
    assert "picture " not in said and "report " not in said
    made = {path.name for path in (tmp_path / "demo").iterdir()}
    assert made >= {"model", "forecasts.csv", "backtest.parquet", "mlflow.db"}
    assert not made & {"forecast.png", "report.html"}


@pytest.mark.long
def test_a_missing_extra_is_one_line_with_the_pip_command_before_any_work(python, tmp_path):
    commands = {
        "fit shop.csv --horizon 7 --out new --holidays DE": "pip install holidays",
        "fit shop.csv --horizon 7 --out new --report page.html": "pip install matplotlib",
        "export model --onnx model.onnx": "pip install onnx onnxruntime onnxscript",
        "predict model shop.csv --out all.csv --engine ray": "pip install 'ray[data]'",
        "predict model shop.csv --out all.csv --plot some.png": "pip install matplotlib",
        "backtest model shop.csv --report page.html": "pip install matplotlib",
        "predict model shop.csv --out all.xlsx": "pip install xlsxwriter",
        "predict model shop.xlsx": "pip install fastexcel",
        "explain model shop.csv --only a --out page.html": "pip install matplotlib",
        "mcp": "pip install 'mcp>=2'",
    }
    before = sorted(tmp_path.iterdir())
    program = f"""{MAIN}
for words in {list(commands)}:
    assert run(*words.split()) == 2, words
import forecaster as fc
try:
    fc.load("model").predict("shop.csv").plot()
except fc.ConfigError as error:
    print(f"in Python: {{error}}")
"""
    done = python(program)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "in Python: pictures and pages need matplotlib: pip install matplotlib\n" in done.stdout
    lines = done.stderr.splitlines()
    assert len(lines) == len(commands), done.stderr
    for line, pip in zip(lines, commands.values(), strict=True):
        assert line.startswith("error: ") and line.endswith(f": {pip}"), line
    assert sorted(tmp_path.iterdir()) == before
