"""`--report` and `--plot`: pages and pictures, whose paths are checked before the work."""

from pathlib import Path

import pytest
from evaluation.report_page import Read

from forecaster.api import shell_command


@pytest.mark.long
@pytest.mark.usefixtures("undrawn")
def test_backtest_writes_a_page(folder, shell):
    words = ["--windows", 2, "--report", "pages/report.html"]
    answer = shell("backtest", "plain_model", "plain.csv", *words)
    assert answer.code == 0, answer.err
    assert "wrote pages/report.html" in answer.out
    read = Read(Path("pages/report.html").read_text(encoding="utf-8"))
    assert "Backtest: plain.csv" in read.text
    command = "forecaster backtest plain_model plain.csv --windows 2 --report pages/report.html"
    assert command in read.sections["environment"]
    assert shell_command.get() is None  # what Python calls next is no part of the command
    assert "ridge" in read.sections["scores"] or "no ridge" in answer.out


@pytest.mark.usefixtures("undrawn")
def test_fit_says_why_there_is_no_page(folder, shell):
    words = ["--config", "tiny.yaml", "--set", "fit.validation=null", "--report", "fit.html"]
    answer = shell("fit", "plain.csv", "--horizon", 7, "--out", "new", *words)
    assert answer.code == 0, answer.err
    said = " ".join(answer.out.split())
    assert "no fit.html: no rows were set aside for validation" in said
    assert not Path("fit.html").exists() and not Path("new/report.html").exists()


@pytest.mark.parametrize("verb", ["backtest", "fit"])
def test_a_page_that_cannot_be_written_is_refused_before_the_work(folder, shell, verb):
    before = {one.name for one in folder.iterdir()}
    words = ["fit", "plain.csv", "--horizon", 7, "--config", "tiny.yaml", "--out", "new"]
    words = words if verb == "fit" else ["backtest", "plain_model", "plain.csv"]
    answer = shell(*words, "--report", "report.txt")
    assert answer.code == 2 and "report.txt: expected a name ending in .html" in answer.err
    assert len(answer.err.splitlines()) == 1
    assert {one.name for one in folder.iterdir()} == before


@pytest.mark.long
def test_predict_and_backtest_draw_a_picture(folder, shell):
    answer = shell("predict", "plain_model", "plain.csv", "--out", "new.csv", "--plot", "new.png")
    assert answer.code == 0 and "drew new.png" in answer.out
    answer = shell("backtest", "plain_model", "plain.csv", "--windows", 1, "--plot", "old.svg")
    assert answer.code == 0 and "drew old.svg" in answer.out
    assert (folder / "new.png").read_bytes().startswith(b"\x89PNG")
    assert b"<svg" in (folder / "old.svg").read_bytes()
