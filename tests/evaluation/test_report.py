"""The page about a backtest: whole, alone, escaped, equal to the numbers, small."""

import re
from dataclasses import replace
from functools import cache
from statistics import NormalDist

import numpy as np
import pytest
from evaluation import report_page
from evaluation.report_page import Read, backtest_of, panel_of
from forecast import tiny

import forecaster as fc
from forecaster.evaluation import report_data
from forecaster.evaluation.backtest import score_forecasts
from forecaster.evaluation.comparison import MODEL, NAIVE
from forecaster.evaluation.report import render_report, verdict_section
from forecaster.evaluation.report_data import ReportContext, ReportData
from forecaster.forecast.forecast import known_forecast
from forecaster.forecast.plain_figure import PlainNumbers
from forecaster.panel.findings import Finding

ALWAYS = ["verdict", "scores", "series", "leads", "calibration", "residuals"]
WITH_CONTEXT = [*ALWAYS, "model", "audit", "config", "environment"]
NASTY = '<script>alert("1")</script>&"\''


@cache
def _plain():
    return backtest_of(panel_of())


@cache
def _with_context():
    finding = Finding("warning", "gaps", "3 <i>steps</i> are missing", "fill & see", "s<1>", "row 7", 3)
    artifact = tiny.network_model().artifact
    origin = ReportContext(artifact, "forecaster backtest MODEL DATA", "f00d", (finding,))
    return replace(_plain(), report_context=origin)


@cache
def _page():
    return render_report(_with_context())


def _said(found):
    return verdict_section(ReportData(found))


@pytest.mark.long
def test_all_sections_are_there_and_every_link_leads_to_one():
    assert list(Read(render_report(_plain())).sections) == ALWAYS
    read = Read(_page())
    assert list(read.sections) == WITH_CONTEXT
    ids = {found.get("id") for _, found in read.tags}
    links = [found["href"] for tag, found in read.tags if tag == "a"]
    assert {link[1:] for link in links} == set(WITH_CONTEXT) - {"verdict"}
    assert all(link.startswith("#") and link[1:] in ids for link in links)
    assert all(text.strip() for text in read.sections.values())


def test_the_page_needs_no_other_file_and_no_script():
    page = _page()
    read = Read(page)
    assert not {tag for tag, _ in read.tags} & {"script", "link", "img", "iframe", "object", "base"}
    for _, found in read.tags:
        assert not any(name.startswith("on") for name in found)
        for name in ("src", "href", "xlink:href", "action", "srcset"):
            assert found.get(name, "#").startswith("#")
    assert all(target.startswith("#") for target in re.findall(r"url\(([^)]*)\)", page))
    assert "http" not in page and "@import" not in page


def test_every_picture_says_what_it_shows():
    read = Read(_page())
    pictures = [found for tag, found in read.tags if tag == "svg" and "viewbox" in found]
    labels = {found["aria-label"] for found in pictures}
    assert len(pictures) == len(labels) == 5 and all(len(label) > 20 for label in labels)
    assert all(found["role"] == "img" for found in pictures)
    for words in ("best 1: s", "worst 1: s", "MASE, by lead", "80 % band, by lead", "PIT", "step"):
        assert words in read.text.replace("\N{NO-BREAK SPACE}", " "), words


def test_all_text_of_a_user_is_escaped():
    names = [f"{NASTY}{n}" for n in range(5)]
    panel = panel_of(names=names, channels=("<b>y</b>",), key="<u>id</u>")
    found = backtest_of(replace(panel, name='"><img src=x onerror=y>', kind="polars"))
    origin = replace(_with_context().report_context, command=f"forecaster {NASTY}", fingerprint="<hr>")
    read = Read(render_report(replace(found, report_context=origin)))
    assert not {tag for tag, _ in read.tags} & {"script", "img", "u", "i", "hr"}
    assert sum(tag == "b" and not found for tag, found in read.tags) == 1  # of the finding
    assert names[0] in read.text and "<b>y</b>" in read.text
    assert '"><img src=x onerror=y>' in read.text and "3 <i>steps</i> are missing" in read.text


def test_the_numbers_are_those_of_the_backtest():
    found = replace(_with_context(), **vars(backtest_of(panel_of(), windows=6)))
    read = Read(render_report(found))
    head, *rows = zip(*read.tables[0], strict=True)  # a column per model
    assert [row[0] for row in rows] == list(found.scores)
    for row in rows:
        mine = found.scores[row[0]]
        shown = {name: cell.removeprefix("★ ") for name, cell in zip(head, row, strict=True)}
        for name, value in mine.items():
            if name.endswith(("_low", "_high")):
                continue
            title = name.replace("_", " ")
            if name.startswith(("coverage", "width")):
                title = title.replace(" 80", " 80 %")
            in_percent = name == "skill" or name.startswith("coverage")
            said = report_data.percent(value) if in_percent else report_data.number(value)
            assert shown[title].split(" (")[0] == said, name
    skill = f"({report_data.percent(found.scores[MODEL]['skill_low'])} to "
    assert skill in rows[0][1]
    assert f"{found.scored:,} cells" in read.text and f"{found.unscored:,} cells" in read.text
    assert f"The model {found.verdict}." in read.text


def test_the_best_of_each_metric_is_marked_by_more_than_colour():
    found = _plain()
    head, *rows = zip(*Read(_page()).tables[0], strict=True)
    models = list(found.scores)
    for column, name in enumerate(head):
        marked = {row[0] for row in rows if row[column].startswith("★")}
        if name in ("MAE", "WQL", "MASE"):
            assert marked == {min(models, key=lambda model: found.scores[model][name])}
        if name == "coverage 80 %":
            aims = {model: abs(found.scores[model]["coverage_80"] - 0.8) for model in models}
            assert marked == {model for model in models if aims[model] == min(aims.values())}
        if name in ("metric", "width 80 %"):
            assert not marked


def test_calibration_is_that_of_a_slow_loop():
    found = ReportData(_plain())
    between, inside, cells = np.zeros(10), np.zeros(4), 0
    for forecast in _plain().forecasts:
        for n, h, c in np.ndindex(forecast.actual.shape):
            truth, quantiles = forecast.actual[n, h, c], forecast.quantiles[n, h, c]
            between[sum(q < truth for q in quantiles)] += 1
            inside += [quantiles[i] <= truth <= quantiles[-1 - i] for i in range(4)]
            cells += 1
    np.testing.assert_allclose(found.between, between / cells)
    np.testing.assert_allclose(found.inside, inside / cells)
    assert found.inside[0] == pytest.approx(_plain().scores[MODEL]["coverage_80"])


def test_errors_and_autocorrelation_are_those_of_a_slow_loop():
    backtest = backtest_of(panel_of(4, 120), windows=12, shift=0.5)
    found = ReportData(backtest)
    scale, errors, first = backtest.scales.mase, [], {}
    for window, forecast in enumerate(backtest.forecasts):
        for n, h in np.ndindex(4, 4):
            error = float(forecast.median[n, h, 0]) - float(forecast.actual[n, h, 0])
            error /= scale[window * 4 + n, 0]
            errors.append(error)
            if h == 0:
                first[n, window] = error
    np.testing.assert_allclose(sorted(found.errors), sorted(errors), rtol=1e-6)
    mean = np.mean(list(first.values()))
    slow = []
    for lag in range(1, 7):
        pairs = [
            (first[n, w] - mean, first[n, w + lag] - mean) for n in range(4) for w in range(12 - lag)
        ]
        then, now = np.array(pairs).T
        slow.append((then * now).sum() / np.sqrt((then**2).sum() * (now**2).sum()))
    echo, noise = found.autocorrelation
    np.testing.assert_allclose(echo, slow, rtol=1e-6)
    assert noise == pytest.approx(1.96 / np.sqrt(4 * 11))


def test_the_error_over_time_is_the_mase_of_each_cutoff():
    backtest = _plain()
    table = backtest.by("cutoff")
    mine = table.filter(table["model"] == MODEL)["MASE"].to_numpy()
    np.testing.assert_allclose(ReportData(backtest).over_time[1][MODEL], mine)


def test_best_and_worst_are_those_of_the_scores_by_series():
    backtest = backtest_of(panel_of(8))
    table = backtest.by("series")
    mine = table.filter(table["model"] == MODEL).sort("MASE")
    found = ReportData(backtest).ranking
    assert [one.name for one in found.best] == mine["id"][:3].to_list()
    assert [one.name for one in found.worst] == mine["id"][::-1][:3].to_list()
    np.testing.assert_allclose([one.mase for one in found.listed], mine["MASE"][::-1][:8])
    assert (found.count, found.kinds) == (8, "series")
    read = Read(render_report(backtest))
    assert "Worst" in read.sections["series"] and "8 series by MASE" in read.sections["series"]


@pytest.mark.usefixtures("undrawn")
def test_few_series_are_ranked_by_window_and_channels_by_name():
    lone = backtest_of(panel_of(1), windows=6)
    found = ReportData(lone).ranking
    assert (found.count, found.kinds) == (6, "windows")
    text = lone.forecasts[0].panel.calendar.text
    cutoffs = {f"y after {text(int(one.cutoff[0]))}" for one in lone.forecasts}
    assert {one.name for one in (*found.best, *found.worst)} == cutoffs
    several = backtest_of(panel_of(3, channels=("y", "z")))
    names = {one.name for one in ReportData(several).ranking.listed}
    assert names == {f"s{s} · {channel}" for s in range(3) for channel in "yz"}
    for page in (render_report(lone), render_report(several)):
        assert list(Read(page).sections) == ALWAYS


def test_a_page_without_any_actual_states_so():
    panel = panel_of()
    blind = replace(panel, values=np.where(panel.time[:, None] > panel.time[47], np.nan, panel.values))
    found = backtest_of(blind)
    assert found.scored == 0
    read = Read(render_report(found))
    assert list(read.sections) == ALWAYS
    assert "No cell was scored" in read.sections["verdict"] and "nan" not in read.text.lower()
    assert "Score a table with actuals" in read.sections["verdict"]


@pytest.mark.usefixtures("undrawn")
def test_missing_truths_and_series_that_never_vary_are_no_fault():
    panel = panel_of(6)
    values = panel.values.copy()
    values[::5] = np.nan
    values[: panel.indptr[1]] = 3.0
    found = backtest_of(replace(panel, values=values))
    assert found.unscored > 0
    read = Read(render_report(found))
    assert f"{found.unscored:,} cells" in read.text and "nan" not in read.text.lower()


@pytest.mark.parametrize(
    ("made", "kind", "said"),
    [
        ({"noise": 0.1}, "good", "The model beats seasonal naive"),
        ({"noise": 9.0}, "bad", "The model loses to seasonal naive"),
    ],
)
def test_losses_are_stated_as_plainly_as_wins(made, kind, said):
    found = backtest_of(panel_of(8), windows=6, **made)
    mine = _said(found)
    assert f'class="{kind}"' in mine and said in mine
    assert ("<ul><li>Use seasonal naive instead" in mine) == (kind == "bad")
    assert mine in render_report(found)


@pytest.mark.parametrize(
    ("coverage", "said"),
    [(0.82, "can be trusted"), (0.6, "too narrow, by 20 points; 2.0 times as many"), (0.95, "too wide"),
     (0.87, "too wide, by 7 points; 0.7 times as many"), (np.nan, "nothing is known")],
)  # fmt: skip
def test_bands_are_judged_by_direction_and_size(coverage, said):
    found = _plain()
    ends = {f"coverage_80_ties{end}": coverage for end in ("", "_low", "_high")}
    judged = _said(replace(found, scores=found.scores | {MODEL: found.scores[MODEL] | ends}))
    assert said in judged
    assert ("planning with it is safe" in judged) == ("too wide" in said)
    # What is somewhat too wide needs no cure.
    assert ("Make the bands wider" in judged) == (coverage == 0.6)
    assert ("Make the bands narrower" in judged) == (coverage == 0.95)
    few = found.scores[MODEL] | {"coverage_80_ties": coverage}
    few = _said(replace(found, scores=found.scores | {MODEL: few}))
    assert "Make the bands" not in few and ("too few cutoffs to judge" in few) == (coverage == coverage)


@pytest.mark.parametrize(
    ("ticks", "texts"),
    [
        ([4.0e6, 4.8e6, 5.6e6], ["4M", "4.8M", "5.6M"]),
        ([-1.2e6, -6e5, 1e-10, 6e5], ["−1.2M", "−0.6M", "0", "0.6M"]),
        ([23_000_000, 23_000_005], ["23,000,000", "23,000,005"]),
        ([0.0, 0.25, 0.5], ["0", "0.25", "0.5"]),
        ([0, 20_000], ["0", "20,000"]),
        ([2e-9, 4e-9], ["2e−09", "4e−09"]),
    ],
)
def test_ticks_are_written_whole_and_no_factor_stands_above_an_axis(ticks, texts):
    assert PlainNumbers().format_ticks(ticks) == texts


def test_pictures_of_large_numbers_have_no_factor_over_their_titles():
    page = render_report(backtest_of(panel_of(8, size=1e6)))
    assert not re.search(r">\s*1e\d", page) and re.search(r">\d+(\.\d+)?M<", page)


def test_a_median_that_is_off_and_a_bias_speak_against_a_model():
    shifted = backtest_of(panel_of(8), windows=8, noise=1.0, shift=-0.4)
    low = _said(shifted)
    means = sum(float(one.mean.sum()) for one in shifted.forecasts)
    said = f"their means add up to {report_data.number(means, 6)}, the actuals to"
    assert "too low on the whole" in low and said in low and "The median is too low:" in low
    assert "The median is" not in _said(_plain())
    # Too few cutoffs to know.
    assert "on the whole" not in _said(backtest_of(panel_of(8), windows=3, shift=-0.4))


def test_a_median_below_the_mean_of_a_skewed_quantity_is_no_fault():
    rng = np.random.default_rng(3)
    panel = panel_of(8, 120)
    values = rng.lognormal(2, 1.2, panel.values.shape)
    panel, made = replace(panel, values=values), []
    levels = [float(one) for one in report_page.LEVELS]
    quantiles = np.exp(2 + 1.2 * np.array([NormalDist().inv_cdf(level) for level in levels]))
    for window in range(12, 0, -1):
        cutoff = panel.indptr[1:] - 1 - 4 * window
        cells = np.tile(quantiles, (8, 4, 1, 1))
        forecast = known_forecast(panel, np.arange(8), cutoff, cells, report_page.LEVELS)
        mean = np.full(forecast.median.shape, np.exp(2 + 1.2**2 / 2))
        made.append({MODEL: replace(forecast, mean=mean)})
    backtest = score_forecasts(made)
    scores = backtest.scores[MODEL]
    assert scores["bias"] < -0.25 * scores["MAE"]
    assert "too low" not in _said(backtest)


def test_all_zeros_have_no_median_that_is_off():
    # A median of 0 where most actuals are: none is below it, most are not above.
    assert "The median is" not in _said(backtest_of(panel_of(8, size=0.0), noise=0.0))


def test_calibration_is_not_advised_where_it_is_on():
    found = _with_context()
    ends = dict.fromkeys(("coverage_80_ties", "coverage_80_ties_low", "coverage_80_ties_high"), 0.5)
    mine = found.scores[MODEL] | ends
    found = replace(found, scores=found.scores | {MODEL: mine})
    assert "leave rows for conformal calibration" in _said(found)
    artifact, part = found.report_context.artifact, {"coverage": 0.8, "width": 1.0, "pinball": 1.0}
    effect = {"cutoffs": 20, "applied": True, "before": part, "after": part}
    artifact = replace(artifact, metrics=artifact.metrics | {"calibration": effect})
    said = _said(replace(found, report_context=replace(found.report_context, artifact=artifact)))
    assert "leave rows" not in said and "conformal calibration held on earlier windows" in said


def test_what_to_do_next_names_what_was_found():
    unsure = _plain().scores[MODEL] | {"skill_low": -0.1, "skill_high": 0.3}
    mine = _said(replace(_plain(), scores=_plain().scores | {MODEL: unsure}))
    assert 'class="even"' in mine and "may be chance: score more windows" in mine
    assert "too high on the whole" in _said(backtest_of(panel_of(8), windows=6, noise=0.3, shift=2.0))
    assert "Score more than 2 cutoffs, 6 without overlap" in _said(backtest_of(panel_of(8), windows=2))
    assert "1 warning" in _said(_with_context())
    fitted = replace(_with_context().report_context, validation=True)
    assert "selected the weights" in _said(replace(_plain(), report_context=fitted))
    worse, best = (backtest_of(panel_of(8), windows=6, noise=noise) for noise in (2.0, 0.1))
    tallies = worse.tallies | {"ETS": best.tallies[MODEL]}
    better = worse.scores | {"ETS": best.scores[MODEL]}
    assert "The mark to beat is ETS" in _said(replace(worse, scores=better, tallies=tallies))


@pytest.mark.long
def test_ten_thousand_series_give_a_small_page():
    found = backtest_of(panel_of(10_000, 20), windows=2, horizon=2)
    page = render_report(found)
    assert len(page) < 300_000
    read = Read(page)
    assert "10,000 series by MASE" in read.sections["series"]
    assert "of 10,000 beat seasonal naive" in read.sections["series"]


def test_the_config_and_the_environment_show_how_to_repeat_it():
    read = Read(_page())
    artifact = tiny.network_model().artifact
    assert f"horizon: {artifact.horizon}" in read.sections["config"]
    assert "context_length: 28" in read.sections["config"]
    for said in ("forecaster backtest MODEL DATA", "f00d", artifact.fingerprint, "Python", "torch"):
        assert said in read.sections["environment"]
    assert "s<1>" in read.sections["audit"] and "fill & see" in read.sections["audit"]


@pytest.mark.long
def test_a_report_is_written_whole_and_under_the_name_of_a_page(tmp_path):
    with pytest.raises(fc.OutputError, match=r"report\.pdf: expected a name ending in \.html"):
        _plain().report(tmp_path / "report.pdf")
    assert not list(tmp_path.iterdir())
    _with_context().report(tmp_path / "report.html")
    assert (tmp_path / "report.html").read_text(encoding="utf-8") == _page()


@pytest.mark.long
def test_a_backtest_of_a_model_has_its_context():
    found = tiny.network_model().backtest(tiny.plain(), windows=2, stride=3, series="store", quiet=True)
    read = Read(render_report(found))
    assert list(read.sections) == WITH_CONTEXT
    call = "model.backtest(data, windows=2, refit='once', stride=3, series='store')"
    assert call in read.sections["environment"]
    # The model on the page is the one that forecast, not the one that was given.
    cutoff = found.forecasts[0].panel.calendar.text(int(found.forecasts[0].cutoff[0]))
    assert cutoff in read.sections["model"]


@pytest.mark.long
def test_a_fit_leaves_a_page_about_its_validation_windows(tmp_path):
    model = fc.fit(
        tiny.plain(),
        horizon=7,
        config=tiny.NETWORK,
        out=tmp_path / "model",
        report=tmp_path / "fit.html",
        quiet=True,
    )
    page = (tmp_path / "fit.html").read_text(encoding="utf-8")
    assert (tmp_path / "model" / "report.html").read_text(encoding="utf-8") == page
    read = Read(page)
    assert list(read.sections) == WITH_CONTEXT and "Validation" in read.text
    assert "<dt>date</dt>" not in page  # a model's folder is the same whenever it was made
    scores = model.metrics["validation"]["scores"]
    head, *rows = zip(*read.tables[0], strict=True)  # a column per model
    for row in rows:
        shown = row[head.index("WQL")].removeprefix("★ ")
        assert shown == report_data.number(scores[row[0]]["WQL"])
    assert {MODEL, NAIVE} <= {row[0] for row in rows} == set(scores)
