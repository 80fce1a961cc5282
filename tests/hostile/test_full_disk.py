"""A disk that is full, a folder that takes nothing, a file that vanishes: one line, nothing left."""

import importlib
import os
import subprocess
import sys
from pathlib import Path

import pytest
from cli.conftest import files_of_at_most, folder, shop_folder  # noqa: F401
from forecast import tiny

from forecaster.errors import OutputError
from forecaster.files import atomic_file
from forecaster.forecast.writer import write_rows
from forecaster.panel import convert
from forecaster.panel import frames as files
from forecaster.panel.frames import merge_parts

PAST = ("--future", "prices.csv")
VERBS = {
    "predict": (("predict", "model", "shop.csv", *PAST, "--out", "OUT.csv"), 1024),
    "backtest": (
        ("backtest", "model", "shop.csv", "--refit", "each", "--windows", 1, "--out", "OUT.csv"),
        1024,
    ),
    "explain as a page": (
        ("explain", "model", "shop.csv", *PAST, "--only", "a", "--out", "OUT.html"),
        1024,
    ),
    "explain as a picture": (
        ("explain", "model", "shop.csv", *PAST, "--only", "a", "--out", "OUT.png"),
        1024,
    ),
    "convert": (("convert", "shop.csv", "OUT"), 1024),
    "parts": (("predict", "model", "shop.csv", *PAST, "--parts", "--out", "OUT.csv"), 1024),
}


@pytest.mark.parametrize(("words", "most"), VERBS.values(), ids=VERBS)
def test_a_full_disk_is_one_line_and_leaves_nothing(folder, shell, words, most):  # noqa: F811
    before = tiny.tree(folder)
    with files_of_at_most(most):
        answer = shell(*(str(word).replace("OUT", "new") for word in words))
    (line,) = [line for line in answer.err.splitlines() if line.startswith("error: ")]
    assert answer.code == 2 and "Traceback" not in answer.out + answer.err
    assert "new" in line and line.endswith(": cannot be written: File too large")
    assert tiny.tree(folder) == before


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
@pytest.mark.parametrize("parts", [False, True], ids=["one block", "merged parts"])
def test_a_file_that_lacks_room_for_its_last_bytes_alone_is_an_error(tmp_path, suffix, parts):
    rows = tiny.pl.DataFrame({"store": [str(number * 7919 % 10007) for number in range(500)]})
    rows.write_parquet(tmp_path / "part.parquet")
    out = tmp_path / f"rows{suffix}"

    def write() -> None:
        if not parts:
            write_rows(rows, out, tiny.pl.DataFrame.clone)
            return
        with atomic_file(out) as partial:
            merge_parts([tmp_path / "part.parquet"], partial, suffix, tiny.pl.DataFrame.clone)

    write()
    size = out.stat().st_size
    out.unlink()
    with files_of_at_most(size - 1), pytest.raises(OutputError) as error:
        write()
    assert str(error.value) == f"{out}: cannot be written: File too large"
    assert os.listdir(tmp_path) == ["part.parquet"]


@pytest.mark.parametrize(("words", "most"), VERBS.values(), ids=VERBS)
def test_an_output_below_a_file_is_refused_before_any_work(folder, shell, words, most):  # noqa: F811
    """The superuser may write to a folder without permissions, but nobody to one that is a file."""
    Path("closed").write_text("a file")
    before = tiny.tree(folder)
    answer = shell(*(str(word).replace("OUT", "closed/new") for word in words))
    (line,) = answer.err.splitlines()
    assert answer.code == 2 and "cannot be written: closed is not a folder" in line
    assert tiny.tree(folder) == before


@pytest.mark.long
def test_a_full_standard_output_is_one_line(folder):  # noqa: F811
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "forecaster", "check", "plain.csv"],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            timeout=120,
        )
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1] == "error: No space left on device"
    assert "Traceback" not in done.stderr


VANISHING = {
    "check": ("check", "gone.csv"),
    "convert": ("convert", "gone.csv", "new"),
    "predict": ("predict", "plain_model", "gone.csv", "--out", "new.csv"),
}


@pytest.mark.parametrize("words", VANISHING.values(), ids=VANISHING)
def test_a_file_that_vanishes_once_it_was_found_is_one_line(folder, shell, monkeypatch, words):  # noqa: F811
    """Between the look at a folder and the reading of what is in it others may tidy up."""
    found = files.find_files

    def vanishing(source):
        answer = found(source)
        Path("gone.csv").unlink(missing_ok=True)
        return answer

    before = tiny.tree(folder)
    tiny.plain().write_csv("gone.csv")
    importlib.import_module(
        "forecaster.runs.batch_predict"
    )  # imported later, it would take the patched one
    for place in (files, convert):
        monkeypatch.setattr(place, "find_files", vanishing)
    answer = shell(*words)
    (line,) = answer.err.splitlines()
    assert answer.code == 2 and line.startswith("error: gone.csv: cannot be read (")
    assert tiny.tree(folder) == before


def test_a_file_that_vanishes_after_the_audit_is_one_line(folder, shell, monkeypatch):  # noqa: F811
    """A table too large for the memory is sampled first, and read in parts afterwards."""
    tiny.plain().write_parquet("gone.parquet")
    before = {name: text for name, text in tiny.tree(folder).items() if name != "gone.parquet"}
    sample_of = convert.sample_of

    def vanishing(*words):
        answer = sample_of(*words)
        Path("gone.parquet").unlink()
        return answer

    monkeypatch.setattr(convert, "WHOLE", 100)
    monkeypatch.setattr(convert, "sample_of", vanishing)
    answer = shell("convert", "gone.parquet", "new")
    (line,) = answer.err.splitlines()
    assert answer.code == 2 and "gone.parquet" in line
    assert tiny.tree(folder) == before


MADE = """
import sys
sys.path.insert(0, sys.argv[1])
from forecast import tiny
table = tiny.shop().with_columns(city=tiny.pl.col("store") + "-town")
fc = tiny.fc
model = fc.fit(table, horizon=7, known="price", categorical="city", config=tiny.ONE, quiet=True)
model.save("model")
fc.convert("shop.csv", "store", quiet=True)
model.predict(table, future=tiny.prices()).write("rows.csv")
"""


@pytest.mark.slow
def test_the_order_of_sets_decides_no_byte_of_what_is_written(tmp_path):
    """Python shuffles sets of words anew in every process, unless it is told a seed."""
    made = []
    for seed in ("1", "2", "31337"):
        place = tmp_path / seed
        place.mkdir()
        tiny.shop().write_csv(place / "shop.csv")
        subprocess.run(
            [sys.executable, "-c", MADE, str(Path(__file__).parents[1])],
            cwd=place,
            env=os.environ | {"PYTHONHASHSEED": seed, "OMP_NUM_THREADS": "1"},
            check=True,
            timeout=200,
        )
        made.append(tiny.tree(place))
    assert "model/contract.json" in made[0] and "store/panel.json" in made[0]
    for other in made[1:]:
        assert set(other) == set(made[0])
        assert [name for name in other if other[name] != made[0][name]] == []
