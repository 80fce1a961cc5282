"""What the documentation shows: commands parse, links exist, generated pages are up to date."""

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from forecaster.cli import VERBS, load_verb

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "docs"))

from make_reference import render, render_api, render_llms  # noqa: E402

PAGES = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md")),
    *(ROOT / "configs").glob("*.md"),
    *(ROOT / "data").glob("*.md"),
    *(ROOT / "docs").glob("*.md"),
    *(ROOT / "docs" / "gallery").glob("*.md"),
]
every_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())


def _commands(text: str) -> list[list[str]]:
    """Commands of `forecaster` in fenced blocks and headers of presets, as words."""
    blocks = "\n".join(re.findall(r"^```\w*\n(.*?)^```$", text, flags=re.MULTILINE | re.DOTALL))
    lines = re.sub(r"\\\n\s*", " ", blocks).splitlines()
    found = (re.search(r"(?:^\$ |^|-m )forecaster (.+)$", line) for line in lines)
    return [shlex.split(one[1], comments=True) for one in found if one]


@every_page
def test_every_command_shown_parses(page):
    verbs = SimpleNamespace(commands={name: load_verb(name) for name in VERBS})
    for words in _commands(page.read_text(encoding="utf-8")):
        group, words = verbs, [re.sub(r"\$\w+", "1", word) for word in words]
        while hasattr(group, "commands") and words and not words[0].startswith("-"):
            group = group.commands[words.pop(0)]
        if not hasattr(group, "commands"):
            group.make_context("forecaster", list(words))


@every_page
def test_every_link_and_picture_exists(page):
    text = re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    targets = re.findall(r"\]\(([^)\s]+)\)", text)
    local = [target.partition("#")[0] for target in targets if "://" not in target]
    missing = [target for target in local if target and not (page.parent / target).exists()]
    assert not missing


@every_page
def test_every_link_within_a_page_leads_to_a_heading(page):
    text = page.read_text(encoding="utf-8")
    assert set(re.findall(r"\]\(#([^)]+)\)", text)) <= _anchors(text)


def _anchors(text: str) -> set[str]:
    """The headings of a page as links name them."""
    headings = re.findall(r"^#+ (.+)$", text, flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize(
    ("page", "made"), [("reference.md", render), ("api.md", render_api), ("llms.txt", render_llms)]
)
def test_the_reference_is_up_to_date(page, made):
    shown = (ROOT / "docs" / page).read_text(encoding="utf-8")
    assert shown == made(), "run: python docs/make_reference.py"


def test_each_link_of_llms_txt_leads_to_a_heading():
    folder = ROOT / "docs"
    pages = {name: (folder / name).read_text(encoding="utf-8") for name in ("reference.md", "api.md")}
    anchors = {name: _anchors(text) for name, text in pages.items()}
    text = (folder / "llms.txt").read_text(encoding="utf-8")
    links = re.findall(r"\]\(([^)#]+)#?([^)]*)\)", text)
    assert len(links) > 40
    assert [link for link in links if not (folder / link[0]).exists()] == []
    assert [link for link in links if link[1] and link[1] not in anchors[link[0]]] == []


def test_the_pages_stay_short():
    generated = {"api.md", "reference.md"}
    pages = [page for page in (ROOT / "docs").glob("*.md") if page.name not in generated]
    lines = sum(len(page.read_text(encoding="utf-8").splitlines()) for page in pages)
    assert (
        lines <= 1395
    )  # 1,285 and stability, too few rows, a container, JSON, tools, Excel, scikit-learn


def _place(folder: Path) -> None:
    """Puts the last 200 days of the demo, and what is known of the days after them, into a folder."""
    (folder / "data").mkdir()
    lines = (ROOT / "data" / "demo.csv").read_text(encoding="utf-8").splitlines(keepends=True)
    first = sorted({line[:10] for line in lines[1:]})[-200]
    kept = [line for line in lines[1:] if line[:10] >= first]
    (folder / "data" / "demo.csv").write_text("".join([lines[0], *kept]), encoding="utf-8")
    (folder / "data" / "demo_future.csv").symlink_to(ROOT / "data" / "demo_future.csv")


@pytest.mark.long
@pytest.mark.usefixtures("undrawn")
def test_the_recipe_of_a_new_product_runs(tmp_path, monkeypatch, shell):
    import polars as pl

    import forecaster as fc

    page = (ROOT / "docs" / "how-to.md").read_text(encoding="utf-8")
    block = page.partition("## A new product without history")[2].split("```")[1].strip()
    made, forecast = block.splitlines()
    _place(tmp_path)
    monkeypatch.chdir(tmp_path)
    config = {"model": {"experts": ["naive"]}, "tracking": {"enabled": False}}
    known = ["price", "promo"]
    fc.fit("data/demo.csv", 28, known=known, config=config, out="models/sales", quiet=True)
    subprocess.run(["sh", "-c", made], check=True)
    done = shell(*shlex.split(forecast)[1:])
    assert done.code == 0 and "begin 1 series" in " ".join(done.err.split())
    rows = pl.read_csv("new.csv")
    assert len(rows) == 28 and set(rows["status"]) == {"cold"} and rows["forecast"].n_unique() > 7


@pytest.mark.long
@pytest.mark.usefixtures("undrawn")
def test_the_what_if_runs_in_the_shell_and_in_python(tmp_path, monkeypatch, shell):
    import forecaster as fc

    page = (ROOT / "docs" / "how-to.md").read_text(encoding="utf-8")
    section = page.partition("## What if")[2].partition("\n## ")[0]
    _place(tmp_path)
    monkeypatch.chdir(tmp_path)
    config = {"model": {"experts": ["linear"]}, "tracking": {"enabled": False}}
    known = ["price", "promo"]
    model = fc.fit("data/demo.csv", 28, known=known, config=config, out="models/sales", quiet=True)
    done = shell(*shlex.split(section.split("```")[1])[1:])
    assert done.code == 0 and "drew what_if.png" in done.out
    call = re.search(r"`model\.(what_if\(.*?\))`", section)[1]
    found = eval(f"model.{call}", {"model": model})
    assert found.difference.mean.sum() > 0 and found.total("W").base.steps.max() == 7
    frame = model.future("data/demo.csv")
    assert frame.columns == ["store", "date", "price", "promo"] and frame.height == 336


@pytest.mark.long
def test_the_effects_are_those_that_the_page_prints(tmp_path, monkeypatch, capsys, shell):
    pytest.importorskip("holidays")
    page = (ROOT / "docs" / "effects.md").read_text(encoding="utf-8")
    blocks = re.findall(r"^```(\w+)\n(.*?)^```$", page, flags=re.MULTILINE | re.DOTALL)
    monkeypatch.chdir(tmp_path)
    scope: dict[str, object] = {}
    for language, block in blocks:
        if language == "python":
            exec(compile(block, "effects.md", "exec"), scope)
        else:
            assert capsys.readouterr().out == block
    for drawn in (tmp_path / "effects.png", ROOT / "docs" / "images" / "effects.png"):
        assert 10_000 < drawn.stat().st_size < 100_000
    for call in re.findall(r"`(fc\..*?)`", page):
        assert len(eval(call, scope).frame) in (28, 84)
    command = re.search(r"`(forecaster explain .*?)`", page)[1]
    assert "promo: +" in shell(*shlex.split(command)[1:]).out


@pytest.mark.long
@pytest.mark.usefixtures("undrawn")
def test_the_forecasts_without_a_fit_run(tmp_path, monkeypatch, shell):
    page = (ROOT / "docs" / "how-to.md").read_text(encoding="utf-8")
    block = page.partition("## Forecast without a fit")[2].split("```")[1].strip()
    _place(tmp_path)
    monkeypatch.chdir(tmp_path)
    for words in map(shlex.split, block.splitlines()):
        assert shell(*words[1:]).code == 0
    names = ["anomalies.csv", "data", "now.csv", "why.html"]
    assert sorted(path.name for path in tmp_path.iterdir()) == names


def test_the_forecast_of_a_workbook_is_a_workbook(tmp_path, monkeypatch):
    pytest.importorskip("fastexcel", reason="the extra excel reads workbooks")
    pytest.importorskip("xlsxwriter", reason="the extra excel writes workbooks")
    import polars as pl

    import forecaster as fc

    page = (ROOT / "docs" / "how-to.md").read_text(encoding="utf-8")
    block = page.partition("## Excel")[2].split("```")[1].removeprefix("python")
    monkeypatch.chdir(tmp_path)
    pl.read_csv(ROOT / "data" / "demo.csv", try_parse_dates=True)[:400].write_excel("sales.xlsx")
    exec(block, {"fc": fc})
    found = pl.read_excel("forecasts.xlsx")
    assert found["date"].dtype == pl.Date and found["lead"].max() == 14


@pytest.mark.long
@pytest.mark.usefixtures("undrawn")
def test_the_estimator_runs(tmp_path, monkeypatch):
    import forecaster as fc

    page = (ROOT / "docs" / "how-to.md").read_text(encoding="utf-8")
    section = page.partition("## In tools of scikit-learn and sktime")[2]
    made, forecast = section.split("```")[1].removeprefix("python").strip().splitlines()
    config = '{"model": {"experts": ["naive"]}, "tracking": {"enabled": False}}'
    _place(tmp_path)
    monkeypatch.chdir(tmp_path)
    scope: dict[str, object] = {"fc": fc}
    exec(made.replace("known=", f"quiet=True, config={config}, known="), scope)
    assert eval(forecast, scope)["lead"].max() == 28


def _add_expert(folder: Path) -> None:
    """Copies the package to a folder and applies the lines that CONTRIBUTING.md shows."""
    page = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    (diff,) = re.findall(r"^```diff\n(.*?)^```$", page, flags=re.MULTILINE | re.DOTALL)
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(ROOT / "forecaster", folder / "forecaster", ignore=ignored)
    for part in diff.split("--- ")[1:]:
        name, *hunks = part.split("@@\n")
        path = folder / name.strip()
        text = path.read_text(encoding="utf-8")
        for hunk in hunks:
            lines = hunk.splitlines(keepends=True)
            before = "".join(line[1:] for line in lines if line[0] != "+")
            after = "".join(line[1:] for line in lines)
            assert text.count(before) == 1, f"{name.strip()} has no longer: {before}"
            text = text.replace(before, after)
        path.write_text(text, encoding="utf-8")


def test_the_lines_that_add_an_expert_fit_into_one_file_and_one_list(tmp_path):
    _add_expert(tmp_path)
    changed = [
        path.relative_to(tmp_path).as_posix()
        for path in (tmp_path / "forecaster").rglob("*.py")
        if path.read_bytes() != (ROOT / path.relative_to(tmp_path)).read_bytes()
    ]
    assert sorted(changed) == ["forecaster/config.py", "forecaster/model/closed_forms.py"]


ADDED_EXPERT = """
import numpy as np
import pandas as pd
import forecaster as fc

sales = np.random.default_rng(0).normal(100, 10, 90)
table = pd.DataFrame({"date": pd.date_range("2026-01-01", periods=90), "sales": sales})
model = fc.fit(table, horizon=3, experts="last_week", tracking=False, quiet=True)
rows = model.predict(table).frame
np.testing.assert_allclose(rows["forecast"], sales[-7:].mean(), rtol=1e-5)
assert (rows["q0.1"] < rows["forecast"]).all() and (rows["forecast"] < rows["q0.9"]).all()

every = fc.fit(table, horizon=3, config={"fit": {"steps": 1}}, tracking=False, quiet=True)
assert "last_week" in every.metrics["expert_weights"]  # of all that suit the table
"""


@pytest.mark.slow
def test_the_expert_that_contributing_adds_forecasts(tmp_path):
    _add_expert(tmp_path)
    done = subprocess.run(
        [sys.executable, "-c", ADDED_EXPERT],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
