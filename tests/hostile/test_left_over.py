"""What a killed process leaves beside its output is gone once the same name is written again."""

import os
import signal
import subprocess
import sys

import pytest
from forecast import tiny

import forecaster as fc
from forecaster import files

KILLED = """
import os, signal, sys
from pathlib import Path
from forecaster import files
path, kind = Path(sys.argv[1]), sys.argv[2]
if kind == "file":
    writing = files.atomic_file(path)
else:
    writing = files.atomic_folder(path, replaces="card", kind="store")
with writing as partial:
    (partial if kind == "file" else partial / "card").write_text("half")
    if kind == "swap":
        rename = Path.rename
        def killed(self, target):
            rename(self, target)
            os.kill(os.getpid(), signal.SIGKILL)
        Path.rename = killed
    elif kind == "waits":
        print("writing", flush=True)
        sys.stdin.read()
    else:
        os.kill(os.getpid(), signal.SIGKILL)
"""


def _write(path, kind) -> None:
    if kind == "file":
        with files.atomic_file(path) as partial:
            partial.write_text("whole")
    else:
        with files.atomic_folder(path, replaces="card", kind="store") as partial:
            (partial / "card").write_text("whole")


def _started(*words) -> subprocess.Popen[str]:
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    return subprocess.Popen([sys.executable, "-c", KILLED, *map(str, words)], **pipes)


@pytest.mark.parametrize("kind", ["file", "folder"])
def test_what_a_killed_process_was_writing_is_removed_by_the_next_of_that_name(tmp_path, kind):
    for name in ("out[1]", "out[1].b"):
        process = _started(tmp_path / name, kind)
        process.communicate(timeout=60)
        assert process.returncode == -signal.SIGKILL
    assert len(list(tmp_path.iterdir())) == 2
    _write(tmp_path / "out[1]", kind)
    # What was written under another name is left to the next that writes that one.
    assert len(list(tmp_path.glob(".out[[]1].b.*.partial"))) == 1
    _write(tmp_path / "out[1].b", kind)
    assert {path.name for path in tmp_path.iterdir()} == {"out[1]", "out[1].b"}


def test_a_process_killed_between_the_two_names_costs_nothing(tmp_path):
    store = tmp_path / "store"
    _write(store, "folder")
    before = tiny.tree(tmp_path)
    process = _started(store, "swap")
    process.communicate(timeout=60)
    assert process.returncode == -signal.SIGKILL and not store.exists()
    with pytest.raises(ZeroDivisionError), files.atomic_folder(store, "card", "store"):
        raise ZeroDivisionError
    assert tiny.tree(tmp_path) == before


def test_what_a_living_process_is_writing_is_left_alone(tmp_path):
    process = _started(tmp_path / "store", "waits")
    try:
        assert process.stdout.readline() == "writing\n"
        _write(tmp_path / "store", "folder")
        (left,) = tmp_path.glob(".store.*.partial")
        # Even where its number says nothing: another host, or another container, has others.
        elsewhere = left.rename(tmp_path / ".store.4194399.partial")
        _write(tmp_path / "store", "folder")
        assert elsewhere.exists()
    finally:
        process.kill()
        process.communicate()
    _write(tmp_path / "store", "folder")
    assert [path.name for path in tmp_path.iterdir()] == ["store"]


def test_a_conversion_that_is_killed_leaves_one_thing_and_the_next_removes_it(tmp_path):
    program = """
import os, signal
from forecaster.panel import convert
convert.WHOLE, convert.PART = 100, 50
convert._Conversion.run = lambda *words: os.kill(os.getpid(), signal.SIGKILL)
convert.convert_table("plain.parquet", convert.Path("new"), convert.DataConfig())
"""
    tiny.plain().write_parquet(tmp_path / "plain.parquet")
    killed = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, timeout=120)
    assert killed.returncode == -signal.SIGKILL
    assert len(list(tmp_path.iterdir())) == 2
    fc.convert(tmp_path / "plain.parquet", tmp_path / "new", quiet=True)
    assert {path.name for path in tmp_path.iterdir()} == {"plain.parquet", "new"}


def test_a_number_that_comes_again_is_in_nobodys_way(tmp_path):
    """A container gives its first process the same number every time."""
    (tmp_path / f".store.{os.getpid()}.partial").mkdir()
    (tmp_path / f".rows.csv.{os.getpid()}.partial").write_text("half")
    _write(tmp_path / "store", "folder")
    _write(tmp_path / "rows.csv", "file")
    assert {path.name for path in tmp_path.iterdir()} == {"store", "rows.csv"}


@pytest.mark.slow
def test_the_package_reads_fits_and_predicts_where_fcntl_and_fork_are_absent(tmp_path):
    program = """
import os, sys
sys.modules["fcntl"] = None
del os.fork
from forecaster.cli import main
main()
"""
    tiny.plain().write_csv(tmp_path / "plain.csv")
    fit = (
        "fit",
        "plain.csv",
        "--horizon",
        "7",
        "--out",
        "model",
        "--no-tracking",
        "--experts",
        "naive",
    )
    for words in (("check", "plain.csv"), fit, ("predict", "model", "plain.csv", "--out", "rows.csv")):
        done = subprocess.run(
            [sys.executable, "-c", program, *words], cwd=tmp_path, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr
    assert {path.name for path in tmp_path.iterdir()} == {"plain.csv", "model", "rows.csv"}
