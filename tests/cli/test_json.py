"""`--json`: one document on standard output, with these keys, and the same files; faults by code."""

import json
import math
import os
import shutil
import subprocess
import sys
from datetime import datetime
from pathlib import Path
from typing import NamedTuple

import numpy as np
import polars as pl
import pytest
from forecast import tiny

import forecaster as fc
from forecaster.cli import VERBS, document, load_verb, main
from forecaster.errors import ConfigError, FitError
from forecaster.runs import console

pytestmark = [
    pytest.mark.usefixtures("undrawn"),
    pytest.mark.filterwarnings("ignore::sqlalchemy.exc.SADeprecationWarning"),
]

COMMON = {"verb": "str", "version": "str", "exit_code": "int"}
TABLE = {
    "columns": ["because", "column", "kind", "role"],
    "layout": "str",
    "series": "int",
    "channels": "int",
    "rows": "int",
    "frequency": "str",
    "regular": "bool",
    "season_length": "int",
}
FIT = {
    "run": "null",
    "kind": "str",
    "horizon": "int",
    "steps": "int",
    "best_step": "int",
    "ended": "str",
    "network_weight": "null",
    "expert_weights": "null",
    "scores": "dict",
}
SCORES = {
    "scores": "dict",
    "verdict": "str",
    "cutoffs": "int",
    "scored": "int",
    "unscored": "int",
    "by_level": [],
}
LEVELS = [f"q0.{tenth}" for tenth in range(1, 10)]
ROWS = ["channel", "cutoff", "date", "forecast", "lead", "mean", *LEVELS, "status", "store"]
ANOMALY = ["actual", "anomaly", "channel", "date", "event", "forecast", "hi-99", "lo-99", "score"]
ONLY = ("--horizon", 7, "--windows", 1, "--no-fit", "--no-tracking")


class Case(NamedTuple):
    """A command, and the keys that its document has beside `COMMON` and findings."""

    words: tuple[object, ...]
    keys: dict[str, object]
    """A type by its name; of a list of rows the columns of the first."""


CASES = {
    "check": Case(("shop.csv", "--known", "price"), TABLE),
    "convert": Case(("shop.csv", "store"), {"out": "str", **TABLE}),
    "config": Case(("--set", "model.width=24"), {"settings": "dict"}),
    "fit": Case(
        ("plain.csv", "--horizon", 7, "--config", "tiny.yaml", "--out", "new"),
        {"out": "str", **FIT},
    ),
    "update": Case(
        ("plain_model", "later.csv", "--refit", "bands", "--no-tracking", "--out", "new"),
        {"out": "str", "new_steps": "int", **FIT},
    ),
    "predict": Case(
        ("plain_model", "plain.csv"), {"rows": sorted(ROWS), "plot": "null", "summary": "str"}
    ),
    "predict --out": Case(
        ("plain_model", "plain.csv", "--out", "new.parquet", "--plot", "new.png"),
        {
            "out": "str",
            "plot": "str",
            "whole": "bool",
            "parts": "int",
            "parts_made": "int",
            "summary": "str",
        },
    ),
    "backtest": Case(
        ("plain.csv", *ONLY, "--out", "new.csv", "--report", "new.html"),
        {"run": "null", **SCORES, "out": "str", "plot": "null", "report": "str"},
    ),
    "backtest --hierarchy": Case(
        ("plain.csv", *ONLY, "--hierarchy", "store"),
        {
            "run": "null",
            **SCORES,
            "by_level": [
                "MASE base",
                "MASE reconciled",
                "WAPE base",
                "WAPE reconciled",
                "level",
                "nodes",
            ],
            "out": "null",
            "plot": "null",
            "report": "null",
        },
    ),
    "monitor": Case(
        ("plain_model", "later.csv", "--no-tracking"),
        {
            "run": "null",
            "broken": "bool",
            "summary": "str",
            **SCORES,
            "out": "null",
            "plot": "null",
            "report": "null",
            "recalibrated": "null",
        },
    ),
    "detect": Case(
        ("plain_model", "plain.csv", "--out", "new.csv"),
        {
            "level": "float",
            "counts": "dict",
            "anomalies": sorted([*ANOMALY, "status", "store"]),
            "summary": "str",
            "out": "str",
            "plot": "null",
        },
    ),
    "explain": Case(
        ("plain_model", "plain.csv", "--only", "a", "--out", "new.html"),
        {
            "out": "str",
            "series": "str",
            "importance": ["cells", "change", "kind", "loss", "name"],
            "effects": ["channel", "effect", "high", "level", "low", "store", "term", "unit"],
            "experts": [],
            "summary": "str",
        },
    ),
    "export": Case(
        ("plain_model", "--mlflow", "plain", "--uri", "sqlite:///mlflow.db"),
        {"onnx": "null", "onnx_content": "null", "registered": "dict", "summary": "str"},
    ),
    "runs": Case(("--uri", "sqlite:///mlflow.db"), {"runs": [], "local_only": "int"}),
    "runs sync": Case((), {"copied": "dict", "refused": [], "busy": "int"}),
    "ui": Case(("--uri", "sqlite:///mlflow.db"), {"address": "str", "store": "str"}),
}
FINDING = ("severity", "rule", "text", "advice", "series", "where", "count")
ELSEWHERE = {"tune", "demo", "mcp"}
"""Verbs with a test of their own."""


def _shape(value):
    """The type of a value by its name; of a list of rows the columns of the first."""
    if isinstance(value, list):
        return sorted(value[0]) if value else []
    return {"NoneType": "null"}.get(type(value).__name__, type(value).__name__)


def _shapes(found):
    return {key: _shape(value) for key, value in found.items()}


@pytest.fixture
def place(folder, monkeypatch, empty_store):
    """The folder with a store without runs, and the shop some days later."""
    shutil.copy(empty_store, folder / "mlflow.db")
    tiny.plain(130).write_csv("later.csv")
    monkeypatch.setattr(os, "execv", lambda *given: None)
    monkeypatch.setattr(os, "dup2", lambda *given: None)
    return folder


@pytest.mark.parametrize("name", CASES)
def test_a_verb_prints_one_document_of_pinned_keys_and_writes_the_same_files(
    name, place, shell, monkeypatch
):
    monkeypatch.setattr(console, "_SHORT", 1e6)  # a busy machine prints stages that another does not
    verb = name.split(" --")[0].split()
    case = CASES[name]
    before = {path.name for path in place.iterdir()}
    first = shell(*verb, *case.words)
    files = _new_files(place, before)
    answer = shell(*verb, *case.words, "--json")
    assert answer.code == first.code == 0, answer.err
    found = json.loads(answer.out)
    findings = found.pop("findings")
    assert _shapes(found) == COMMON | case.keys
    assert [*found][:3] == [*COMMON]
    assert (found["verb"], found["version"], found["exit_code"]) == (verb[0], fc.__version__, 0)
    assert all(set(finding) == set(FINDING) for finding in findings)
    printed = _new_files(place, before), sorted(answer.err.splitlines())
    if name != "export":  # the registry has versions and times
        assert printed == (files, sorted((first.out + first.err).splitlines()))


@pytest.mark.long
def test_a_document_names_the_run_of_its_verb_in_its_store(place, shell):
    uri = f"sqlite:///{place}/mlflow.db"
    options = ("--horizon", 7, "--experts", "naive", "--set", f"tracking.uri={uri}", "--json")
    for words in (("fit", "plain.csv", "--out", "new"), ("backtest", "plain.csv", "--windows", 1)):
        run = json.loads(shell(*words, *options).out)["run"]
        newest = json.loads(shell("runs", "--uri", uri, "--json").out)["runs"][0]
        assert run == {"run_id": newest["run_id"], "tracking_uri": uri}


def _new_files(place, before):
    """What a command has made, taken away; of pages, which name the minute, that there is one."""
    made = {}
    for path in sorted(place.iterdir()):
        if path.name not in before:
            made |= tiny.tree(path) if path.is_dir() else {path.name: path.read_bytes()}
            made |= {page: b"" for page in made if page.endswith(".html")}
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    return made


def test_every_verb_has_the_option_and_a_pinned_document():
    assert {name.split()[0] for name in CASES} | ELSEWHERE == {*VERBS}
    for name in VERBS:
        verb = load_verb(name)
        for command in (verb, *getattr(verb, "commands", {}).values()):
            assert [option.opts for option in command.params].count(["--json"]) == 1


@pytest.mark.slow
def test_a_search_answers_with_its_best_settings_and_all_trials(folder, shell):
    space = {"model.width": {"choice": [16, 24]}}
    (folder / "space.yaml").write_text(json.dumps(space))
    words = ("--horizon", 7, "--config", "tiny.yaml", "--space", "space.yaml", "--trials", 2)
    found = json.loads(shell("tune", "plain.csv", *words, "--study", "shop", "--json").out)
    assert found.pop("findings") == []
    columns = ["WQL", "model.width", "note", "seconds", "state", "trial"]
    keys = {
        "run": "null",
        "study": "str",
        "metrics": "list",
        "best_value": "float",
        "preset_value": "float",
        "best": "dict",
        "trials": columns,
        "out": "null",
    }
    assert found.pop("metrics") == ["WQL"] and keys.pop("metrics")
    assert _shapes(found) == COMMON | keys and len(found["trials"]) == 2
    assert found["best"]["model"]["width"] in (16, 24)
    assert (folder / "studies" / "shop.best.yaml").read_text().count("--json") == 0


@pytest.mark.slow
def test_the_demo_answers_with_scores_and_paths(tmp_path, shell, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("forecaster.api.fit", lambda *given, **options: _small_fit(*given, **options))
    found = json.loads(shell("demo", "--json").out)
    assert found.pop("findings") == []
    assert _shapes(found) == COMMON | {"out": "str", "runs": "str"} | SCORES
    assert (tmp_path / found["out"] / "forecasts.csv").is_file()


fit = fc.fit


def _small_fit(data, horizon, **options):
    """The fit of the demo with the smallest network."""
    return fit(data, horizon, **options | {"config": tiny.NETWORK})


def test_a_client_of_mcp_gets_its_entry(shell, monkeypatch):
    monkeypatch.setitem(sys.modules, "mcp_types", sys)
    found = json.loads(shell("mcp", "--json").out)
    assert found["mcpServers"] == {"forecaster": {"command": "forecaster", "args": ["mcp"]}}


def _check_raises(monkeypatch, error):
    def run(*given, **options):
        raise error

    load_verb("check")  # its flags are those of the function itself
    monkeypatch.setattr("forecaster.api.check", run)


FAULTS = {
    "data": (("check", "away.csv"), None, "away.csv: no such file", None),
    "data of a column": (
        ("check", "words.csv"),
        None,
        "words.csv: no time column found among a, b",
        "pass --time COLUMN, or --time row",
    ),
    "config": (("predict", "plain.csv"), None, "a horizon is required", None),
    "artifact": (("predict", "tiny.yaml/none", "plain.csv"), None, "tiny.yaml/none: not a saved", None),
    "output": (
        ("predict", "plain_model", "plain.csv", "--out", "prices.csv"),
        None,
        "prices.csv: exists",
        "replace it with --overwrite, or choose another name",
    ),
    "usage": (
        ("predict", "--horzon", 7),
        None,
        "No such option: --horzon",
        " predict --help lists what there is",
    ),
    "usage of no verb": (("fot",), None, "No such command 'fot'", " --help lists what there is"),
    "fit": (
        ("check", "plain.csv"),
        FitError("loss nan at step 3; lower fit.learning_rate"),
        "loss nan",
        "lower",
    ),
    "memory": (
        ("check", "plain.csv"),
        MemoryError(),
        "out of memory: free",
        "free some, or give less data",
    ),
    "system": (
        ("check", "plain.csv"),
        OSError(28, "No space left", "x.csv"),
        "x.csv: No space left",
        None,
    ),
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_is_a_document_with_code_message_and_fix(name, folder, shell, monkeypatch):
    words, error, message, fix = FAULTS[name]
    (folder / "words.csv").write_text("a,b\nx,1\ny,2\n")
    if error is not None:
        _check_raises(monkeypatch, error)
    first, answer = shell(*words), shell(*words, "--json")
    assert (first.code, answer.code) == (2, 2) and answer.err.startswith("error: ")
    found = json.loads(answer.out)
    assert [*found][:4] == [*COMMON, "error"] and [*found][-1] == "findings"
    assert (found["verb"], found["version"], found["exit_code"]) == (words[0], fc.__version__, 2)
    fault = found["error"]
    assert [*fault] == ["code", "message", "fix"] and fault["code"] == name.split()[0]
    assert fault["message"].startswith(message)
    assert fault["fix"] is None if fix is None else fix in fault["fix"]
    if fault["code"] == "data":
        assert [one["severity"] for one in found["findings"]] == ["error"]


def test_a_fault_in_the_code_is_a_document_and_a_traceback(folder, shell, monkeypatch, capsys):
    _check_raises(monkeypatch, ZeroDivisionError("by zero"))
    monkeypatch.setattr(sys, "argv", ["forecaster", "check", "plain.csv", "--json"])
    with pytest.raises(ZeroDivisionError):
        main()
    found = json.loads(capsys.readouterr().out)
    assert found["exit_code"] == 1
    assert found["error"] == {"code": "bug", "message": "ZeroDivisionError: by zero", "fix": None}


@pytest.mark.parametrize(
    ("message", "fix"),
    [
        ("x.csv: exists; replace it with --overwrite", "replace it with --overwrite"),
        (
            "old; of format 2: upgrade it, or fit again: forecaster fit A",
            "upgrade it, or fit again: forecaster fit A",
        ),
        ("a: not there; did you mean 'b'?", "did you mean 'b'?"),
        ("a; give b; it has c", None),
        ("levels 100: expected numbers below 100", None),
        ("given: givers", None),
    ],
)
def test_the_fix_is_the_last_part_of_a_message_that_begins_with_what_to_do(message, fix):
    assert document.fault_of(ConfigError(message))["fix"] == fix


def test_what_is_no_number_is_null_and_names_of_no_encoding_are_escapes():
    values = {"nan": [math.nan, math.inf], "f4": np.float32(0.5), "array": np.array([1, np.nan])}
    rows = pl.DataFrame({"date": [tiny.day(0)], "time": [datetime(2024, 1, 1, 3)], "café": [None]})
    found = document.text(values | {"rows": rows, "path": Path("café\udc80")})
    assert "café".encode() in found
    assert json.loads(found) == {
        "nan": [None, None],
        "f4": 0.5,
        "array": [1, None],
        "rows": [{"date": "2024-01-01", "time": "2024-01-01T03:00:00", "café": None}],
        "path": "café\udc80",
    }


def test_of_processes_that_torchrun_started_one_prints(folder, shell, monkeypatch):
    monkeypatch.setenv("RANK", "1")
    assert shell("check", "plain.csv", "--json").out == ""
    assert shell("check", "away.csv", "--json").out == ""


@pytest.mark.long
def test_a_process_prints_a_document_alone_in_utf_8_whatever_the_terminal_reads(tmp_path):
    table = tiny.plain().rename({"sales": "Umsätze"})
    table.write_csv(tmp_path / "café.csv")
    words = [sys.executable, "-m", "forecaster", "check", "café.csv", "--json"]
    latin = os.environ | {"PYTHONIOENCODING": "latin-1", "PYTHONUTF8": "0"}
    done = subprocess.run(words, cwd=tmp_path, env=latin, capture_output=True, timeout=120)
    found = json.loads(done.stdout.decode())
    assert done.returncode == 0 and found["rows"] == 300
    assert "Umsätze" in [row["column"] for row in found["columns"]]
    assert "Umsätze" in done.stderr.decode("latin-1")


def test_help_stays_help(shell):
    for words in (("check", "--help", "--json"), ("check", "--json", "--help")):
        answer = shell(*words)
        assert answer.code == 0 and answer.out.startswith("Usage: ") and answer.err == ""


def test_a_full_disk_is_one_line(folder, shell, monkeypatch):
    def full(message=None, **options):
        if isinstance(message, bytes):
            raise OSError(28, "No space left on device")

    monkeypatch.setattr("typer.echo", full)
    assert shell("check", "plain.csv", "--json").code == 2


@pytest.mark.long
def test_a_classifier_answers_with_classes(folder, shell):
    steps = [
        (f"s{n}", step, (-1.0) ** (step // (2 + n % 2)) + n / 100, "ab"[n % 2])
        for n in range(24)
        for step in range(30)
    ]
    table = pl.DataFrame(steps, schema=["id", "step", "y", "kind"], orient="row")
    new = pl.col("id").is_in(["s20", "s21", "s22", "s23"])
    table.filter(~new).write_csv("seen.csv")
    table.filter(new).write_csv("new.csv")
    tiny.write_tiny(folder / "tiny.yaml")

    def answer(*words):
        found = json.loads(shell(*words, "--json").out)
        assert found.pop("findings") == [] and found["exit_code"] == 0, found
        return {name: shape for name, shape in _shapes(found).items() if name not in COMMON}

    roles = ("--label", "kind", "--time", "step", "--series", "id")
    fitted = answer("fit", "seen.csv", *roles, "--config", "tiny.yaml", "--out", "new")
    assert {*fitted} == {"out", *FIT} and (fitted["kind"], fitted["horizon"]) == ("str", "null")
    files = {"out": "null", "plot": "null", "report": "null"}
    scored = answer("backtest", "new", "new.csv", "--no-tracking")
    confusion = ["true class", "→ a", "→ b"]
    keys = {"run": "null", "scores": "dict", "verdict": "str", "scored": "int"}
    keys["confusion"] = confusion
    assert scored == keys | files
    explained = answer("explain", "new", "new.csv", "--only", "s20", "--out", "new.png")
    rows = ["effect", "id", "step"]
    keys = {"label": "str", "probability": "float", "rows": rows, "summary": "str", "out": "str"}
    assert explained == keys
    ahead = answer("predict", "new", "new.csv")
    rows = ["id", "label", "p_a", "p_b", "status"]
    assert ahead == {"rows": rows, "plot": "null", "summary": "str"}
