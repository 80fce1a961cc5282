"""Rows of the benchmarks before and after a change, and the coverage of their bands, on made rows."""

import json
import math
import sys
from pathlib import Path
from statistics import fmean, variance

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))
import compare_rows
import coverage_tables
from accuracy_report import guarded


def gift(config: str, seed: int | None, crps: float, cells: int = 100, **more: object) -> dict:
    return {"config": config, "seed": seed, "crps": crps, "mase": 2 * crps, "cells": cells} | more


def said(module, monkeypatch, capsys, tmp_path: Path, *files: list[dict]) -> str:
    names = []
    for number, rows in enumerate(files):
        names.append(str(tmp_path / f"{number}.json"))
        Path(names[-1]).write_text(json.dumps(rows))
    monkeypatch.setattr(sys, "argv", ["script", *names])
    guarded(module.main)
    return capsys.readouterr().out


def line_of(text: str, name: str) -> list[str]:
    """The cells of the line of a table."""
    (line,) = (line for line in text.splitlines() if line.startswith(f"| {name} "))
    return [cell.strip() for cell in line.strip("|").split("|")]


def test_a_ratio_is_of_means_over_seeds_with_two_standard_errors(tmp_path, monkeypatch, capsys):
    before = {"a": [1.0, 1.1, 1.2], "b": [2.0, 2.0, 2.0]}
    after = {"a": [0.9, 1.0, 0.8], "b": [2.2, 2.2, 2.2]}
    old, new = (
        [gift(name, seed, value) for name, values in side.items() for seed, value in enumerate(values)]
        for side in (before, after)
    )
    text = said(compare_rows, monkeypatch, capsys, tmp_path, old, new)
    error = 2 * math.sqrt(variance(before["a"]) / 3 + variance(after["a"]) / 3) / fmean(before["a"])
    ratios = [fmean(after[name]) / fmean(before[name]) for name in before]
    assert line_of(text, "a")[-1] == f"{ratios[0]:.3f} ± {error:.3f}"
    assert line_of(text, "b")[-1] == "*1.100 ± 0.000"
    assert line_of(text, "**geometric mean of 2**")[-1] == f"{math.sqrt(ratios[0] * ratios[1]):.4f}"
    assert "crps: worse by more than 3 % and two standard errors on 1 of 2 tables" in text


def test_a_single_seed_has_no_error_and_a_forecast_without_a_fit_none_to_add(
    tmp_path, monkeypatch, capsys
):
    old = [gift("one", 0, 1.0), *(gift("many", seed, 1.0 + seed / 10) for seed in range(3))]
    new = [gift("one", None, 1.02), gift("many", None, 1.2)]
    text = said(compare_rows, monkeypatch, capsys, tmp_path, old, new)
    assert line_of(text, "one")[-1] == "1.020 ± –"
    error = 2 * math.sqrt(variance([1.0, 1.1, 1.2]) / 3) / 1.1
    assert line_of(text, "many")[-1] == f"1.091 ± {error:.3f}"


def test_tables_of_other_cells_or_of_one_file_are_named_and_left_out(tmp_path, monkeypatch, capsys):
    old = [gift("a", 0, 1.0), gift("b", 0, 1.0), gift("c", 0, 1.0)]
    new = [gift("a", 0, 0.5), gift("b", 0, 0.1, cells=99), gift("d", 0, 0.1)]
    text = said(compare_rows, monkeypatch, capsys, tmp_path, old, new)
    assert line_of(text, "**geometric mean of 1**")[-1] == "0.5000"
    assert "in one file alone: c, d" in text and "scored on other cells, left out: b" in text


def test_rows_of_a_league_are_those_of_the_model(tmp_path, monkeypatch, capsys):
    def league(wql: float) -> list[dict]:
        own = {"table": "t", "seed": 0, "n": 9, "mase": wql}
        return [own | {"model": "ets", "wql": 7.0}, own | {"model": "forecaster", "wql": wql}]

    text = said(compare_rows, monkeypatch, capsys, tmp_path, league(2.0), league(1.0))
    assert line_of(text, "t")[2:4] == ["2 → 1", "0.500 ± –"]
    with pytest.raises(SystemExit):
        said(compare_rows, monkeypatch, capsys, tmp_path, [], league(1.0))


def test_coverage_of_tables_is_counted_over_cutoffs_and_seeds(tmp_path, monkeypatch, capsys):
    def rows(config: str, share: float, cutoffs: int, cells: int) -> list[dict]:
        rng = np.random.default_rng(0)
        made = []
        for seed in range(2):
            ties = np.clip(share + rng.normal(0, 0.02, cutoffs), 0, 1) * cells
            counts = {"cells_at": [cells] * cutoffs, "inside_ties_at": ties.tolist()}
            made.append(gift(config, seed, 1.0, **counts, inside_at=(ties + 1).tolist()))
        return made

    files = (
        [*rows("good", 0.8, 20, 30), *rows("wide", 0.95, 20, 30)],
        [*rows("narrow", 0.5, 5, 40), *rows("single", 0.6, 1, 50)],
    )
    text = said(coverage_tables, monkeypatch, capsys, tmp_path, *files)
    for name, own in (("good", files[0][:2]), ("single", files[1][2:])):
        cells, inside = (sum(sum(row[key]) for row in own) for key in ("cells_at", "inside_ties_at"))
        shown = line_of(text, name)
        assert shown[1:4] == [
            f"{cells // 2}",
            f"{len(own[0]['cells_at'])}",
            f"{100 * inside / cells:.1f} %",
        ]
        plain = sum(sum(row["inside_at"]) for row in own) / cells
        assert shown[-1] == f"{100 * plain:.1f} %"
    assert line_of(text, "single")[4] == "–"
    assert line_of(text, "narrow")[3].startswith("*")
    assert "in 75 – 85 %: 1 of 2 tables of at least 400 cells" in text
    assert "whole interval outside 70 – 90 %: 2 (wide, narrow) of 4" in text
    assert "under 65 % of at least 100 cells: 1 (narrow)" in text


def test_coverage_of_rows_without_counts_is_refused(tmp_path, monkeypatch, capsys):
    with pytest.raises(SystemExit) as refused:
        said(coverage_tables, monkeypatch, capsys, tmp_path, [gift("a", 0, 1.0)])
    assert refused.value.code == 2 and "expected cells_at, found none" in capsys.readouterr().err
