"""Classes of series and of steps: fit, predict, backtest, explain, embed, and what is refused."""

import hashlib
import itertools
import json
import math
import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
import pytest
import torch
from torch.nn.functional import one_hot

import forecaster as fc
from forecaster.config import config_from
from forecaster.evaluation.class_scores import class_scores
from forecaster.fitting.classes import resolve_classes
from forecaster.forecast.classification import ClassPredictor, series_hashes
from forecaster.model.random_kernels import KERNELS, PENALTIES, TAPS, RandomKernels
from forecaster.panel.build import open_panel
from forecaster.windows.store import WindowStore

ROLES = {"label": "kind", "series": "id", "time": "step"}
SMALL = {"model": {"width": 8, "heads": 2, "encoder_layers": 1}, "fit": {"steps": 3}}


def waves(seed: int = 0, count: int = 24) -> pd.DataFrame:
    """Series of unlike length and two channels, with gaps; kind 1 is smooth, kind 2 is square.

    Each seed has the same keys and times of its own.
    """
    random, frames = np.random.default_rng(seed), []
    for number in range(count):
        steps = 100 * seed + np.arange(int(random.integers(20, 31)))
        wave = np.sin(2 * np.pi * (steps / 10 + random.random()))
        x = (np.sign(wave) if number % 2 else wave) + 0.1 * random.standard_normal(len(steps))
        x[random.random(len(x)) < 0.05] = np.nan
        y = random.standard_normal(len(steps))
        frames.append(
            pd.DataFrame({"id": f"s{number}", "step": steps, "x": x, "y": y, "kind": 1 + number % 2})
        )
    return pd.concat(frames, ignore_index=True)


def machines(seed: int = 0, count: int = 6, steps: int = 300) -> pd.DataFrame:
    """A daily cycle in two columns that agree; where a fault is planted they do not, or the first is stuck."""
    random, frames = np.random.default_rng(seed), []
    for number in range(count):
        step = 1000 * seed + np.arange(steps)
        x = np.sin(2 * np.pi * step / 24 + random.random()) + 0.2 * random.standard_normal(steps)
        y = 0.8 * x + 0.2 * random.standard_normal(steps)
        state = np.full(steps, "ok", object)
        for begin, kind in zip(range(30, steps - 60, 90), itertools.cycle(["stuck", "apart"])):
            here = slice(begin + int(random.integers(20)), begin + 40)
            state[here] = kind
            if kind == "stuck":
                x[here] = x[here.start]
            else:
                y[here] = -y[here]
        frames.append(pd.DataFrame({"id": f"m{number}", "step": step, "x": x, "y": y, "kind": state}))
    return pd.concat(frames, ignore_index=True)


@pytest.fixture(scope="session")
def classifier():
    return fc.fit(waves(), **ROLES, config=SMALL, tracking=False, quiet=True)


@pytest.fixture(scope="session")
def step_classifier():
    config = SMALL | {"model": SMALL["model"] | {"context_length": 64}}
    return fc.fit(machines(), **ROLES, config=config, tracking=False, quiet=True)


# Predictions


@pytest.mark.long
def test_each_series_has_one_row_keyed_as_the_table_with_probabilities(classifier):
    found = classifier.predict(waves(1)).frame
    assert isinstance(found, pd.DataFrame)
    assert [*found.columns] == ["id", "label", "p_1", "p_2", "status"]
    assert sorted(found["id"]) == sorted(waves(1)["id"].unique())
    assert pd.api.types.is_integer_dtype(found["label"]) and set(found["status"]) == {"ok"}
    assert np.allclose(found["p_1"] + found["p_2"], 1)
    truth = waves(1).groupby("id")["kind"].first()
    assert (found.set_index("id")["label"] == truth).mean() >= 0.9


def test_classes_in_the_table_to_classify_change_nothing(classifier):
    table = waves(1)
    noise = table.assign(kind=np.random.default_rng(0).integers(0, 99, len(table)))
    plain = classifier.predict(table.drop(columns="kind")).frame
    pd.testing.assert_frame_equal(classifier.predict(noise).frame, plain)


def test_values_under_a_gap_and_the_other_series_change_nothing(classifier):
    table = waves(1)
    alone = pd.concat([classifier.predict(own).frame for _, own in table.groupby("id", sort=False)])
    together = classifier.predict(table.sample(frac=1, random_state=0)).frame
    pd.testing.assert_frame_equal(
        alone.sort_values("id", ignore_index=True),
        together.sort_values("id", ignore_index=True),
        rtol=1e-5,
    )


def test_polars_in_polars_out_and_a_saved_model_says_the_same(classifier, tmp_path):
    classifier.save(tmp_path / "model")
    again = fc.load(tmp_path / "model")
    assert isinstance(again, fc.Classifier) and again.classes == ("1", "2")
    table = pl.from_pandas(waves(1))
    found = again.predict(table)
    assert isinstance(found.frame, pl.DataFrame)
    assert found.frame.equals(classifier.predict(table).frame)
    assert again.config.data.label == "kind" and again.config.horizon is None
    found.write(tmp_path / "classes.csv")
    assert pl.read_csv(tmp_path / "classes.csv").height == 24


def test_a_series_without_a_value_and_one_of_a_single_step_have_rows_too(classifier):
    table = waves(1)
    table.loc[table["id"] == "s3", ["x", "y"]] = np.nan
    table = table[(table["id"] != "s4") | (table["step"] == 100)]
    found = classifier.predict(table).frame.set_index("id")
    assert found.loc["s3", "status"] == "no value observed" and np.isnan(found.loc["s3", "p_1"])
    assert found.loc["s4", "status"] == "ok" and len(found) == 24


def test_members_and_kernels_are_averaged_as_written(classifier):
    artifact = classifier.artifact
    panel = open_panel(waves(1), artifact.plan.data, schema=artifact.schema)
    store = WindowStore(panel, artifact.plan.model, 0)
    inputs = store.batch(np.arange(24), None, panel.indptr[1:] - 1).inputs
    ensemble = artifact.ensemble
    hot, cold = ensemble.temperatures.tolist()
    networks = [torch.softmax(one(inputs) / hot, -1) for one in ensemble.networks]
    kernels = torch.softmax(ensemble.kernels(*ensemble.series(inputs)) / cold, -1)
    weight = float(ensemble.network_weight)
    wanted = weight * sum(networks) / len(networks) + (1 - weight) * kernels
    assert len(networks) == 5 and torch.allclose(ensemble(inputs), wanted, atol=1e-6)


def test_a_store_is_classified_as_its_table(classifier, tmp_path):
    table = waves(1)
    fc.convert(table, tmp_path / "with", **ROLES, quiet=True)
    found = classifier.predict(str(tmp_path / "with")).rows
    assert found.equals(classifier.predict(pl.from_pandas(table)).frame)
    scores = classifier.backtest(str(tmp_path / "with"), tracking=False).scores
    assert scores == classifier.backtest(table, tracking=False).scores


# Steps


@pytest.mark.long
def test_each_step_has_a_row_with_its_time(step_classifier):
    table = machines(1, 3)
    found = step_classifier.predict(table).frame
    assert [*found.columns] == ["id", "step", "label", "p_apart", "p_ok", "p_stuck", "status"]
    assert found[["id", "step"]].equals(table[["id", "step"]])
    assert np.allclose(found[["p_apart", "p_ok", "p_stuck"]].sum(axis=1), 1)


@pytest.mark.long
def test_planted_faults_are_found(step_classifier):
    backtest = step_classifier.backtest(machines(1, 3), tracking=False)
    assert backtest.scores["forecaster"]["macro_F1"] >= 0.9
    assert backtest.scores["majority class"]["macro_F1"] < 0.4


def test_steps_of_a_long_series_are_the_weighted_mean_of_the_windows_that_hold_them(step_classifier):
    artifact = step_classifier.artifact
    panel = open_panel(machines(1, 1, 150), artifact.plan.data, schema=artifact.schema)
    found = ClassPredictor(artifact).predict(panel).probabilities
    store = WindowStore(panel, artifact.plan.model, 0)
    total, weight = np.zeros((150, 3)), np.zeros(150)
    for end in range(149, -1, -32):
        batch = store.batch(np.array([0]), None, np.array([end]))
        with torch.inference_mode():
            own = artifact.ensemble(batch.inputs)[0].numpy()
        for place, row in enumerate(range(end - 63, end + 1)):
            if row >= 0:
                share = min(place, 63 - place) + 1
                total[row] += share * own[place]
                weight[row] += share
        if end < 64:
            break
    assert np.allclose(found, total / weight[:, None], atol=1e-5)


# Scores


def test_scores_equal_counting_by_hand():
    random = np.random.default_rng(0)
    probabilities = random.dirichlet(np.ones(3), 200)
    code = random.integers(1, 6, 200)  # classes 4 and 5 are not the model's
    found = class_scores(probabilities, code)
    guess = probabilities.argmax(1) + 1
    assert found["accuracy"] == pytest.approx((guess == code).mean())
    recalls = [(guess[code == k] == k).mean() for k in (1, 2, 3)] + [0, 0]
    assert found["balanced_accuracy"] == pytest.approx(np.mean(recalls))
    f1 = [0, 0]
    for k, recall in zip((1, 2, 3), recalls[:3], strict=True):
        precision = (code[guess == k] == k).mean()
        f1.append(2 * precision * recall / (precision + recall))
    assert found["macro_F1"] == pytest.approx(np.mean(f1))
    losses = [
        -math.log(max(row[k - 1], 1e-6) if k < 4 else 1e-6)
        for row, k in zip(probabilities, code, strict=True)
    ]
    assert found["log_loss"] == pytest.approx(np.mean(losses))
    error, sure = 0.0, probabilities.max(1)
    for low in np.arange(10) / 10:
        own = (sure >= low) & (sure < low + 0.1)
        if own.any():
            error += own.mean() * abs((guess == code)[own].mean() - sure[own].mean())
    assert found["calibration_error"] == pytest.approx(error)


def test_a_backtest_has_the_truth_beside_each_class(classifier, tmp_path):
    backtest = classifier.backtest(waves(1), tracking=False)
    assert [*backtest.scores] == ["forecaster", "network", "random kernels", "majority class"]
    frame = backtest.frame
    mine = frame[frame["model"] == "forecaster"]
    assert (mine["label"] == mine["actual"]).mean() == backtest.scores["forecaster"]["accuracy"]
    assert backtest.confusion.sum() == 24 and backtest.confusion[0].sum() == 0
    assert backtest.scores["majority class"]["accuracy"] == 0.5
    backtest.report(tmp_path / "page.html")
    assert "true class" in (tmp_path / "page.html").read_text()


def test_a_class_that_only_the_scored_table_has_counts_as_an_error(classifier):
    table = waves(1)
    table.loc[table["id"] == "s0", "kind"] = 7
    backtest = classifier.backtest(table, tracking=False)
    assert backtest.confusion[0].sum() == 1 and "not learned count as errors: 7 (1)" in backtest.verdict
    plain = classifier.backtest(waves(1), tracking=False).scores["forecaster"]["accuracy"]
    assert backtest.scores["forecaster"]["accuracy"] == pytest.approx(plain - 1 / 24)


def test_one_wrong_of_eight_that_is_of_an_unknown_class_is_no_perfect_score():
    code = np.array([1, 1, 1, 1, 2, 2, 2, 3])
    found = class_scores(np.eye(2)[[0, 0, 0, 0, 1, 1, 1, 1]], code)
    assert found["accuracy"] == 7 / 8
    assert found["balanced_accuracy"] == pytest.approx((1 + 1 + 0) / 3)
    assert found["macro_F1"] == pytest.approx((1 + 2 * 3 / 7 + 0) / 3)


def test_each_unknown_class_is_one_and_has_its_own_word_and_count(classifier, tmp_path):
    table = waves(1)
    for series, kind in (("s0", 7), ("s2", 7), ("s1", 9)):
        table.loc[table["id"] == series, "kind"] = kind
    backtest = classifier.backtest(table, tracking=False)
    assert "not learned count as errors: 7 (2), 9 (1)" in backtest.verdict
    own = backtest.frame.query("model == 'forecaster'").set_index("id")["actual"]
    assert [own[series] for series in ("s0", "s1", "s2", "s3")] == [7, 9, 7, 2]
    right = sum(backtest.confusion[kind, kind - 1] / backtest.confusion[kind].sum() for kind in (1, 2))
    assert backtest.scores["forecaster"]["balanced_accuracy"] == pytest.approx(right / 4)
    # A table of any kind, with the class column under another name.
    fc.convert(table, tmp_path / "store", **ROLES, quiet=True)
    for same, options in (
        (str(tmp_path / "store"), {}),
        (table.rename(columns={"kind": "sort"}), {"label": "sort"}),
    ):
        again = classifier.backtest(same, tracking=False, **options)
        assert sorted(again.unmet) == ["7", "9"] and again.scores == backtest.scores
    # Among the series that are scored, not in the whole table.
    assert classifier.backtest(table, only=["s1", "s3"], tracking=False).verdict.endswith("9 (1)")


# Series of the fit


def _renamed(table):
    return table.assign(id="t" + table["id"])


def _without_a_cell(table):
    return table.assign(x=table["x"].where(table.index != table["x"].first_valid_index()))


def _without_rows(table):
    return table[table["step"] % 50 < 15]


def _with_later_rows(table):
    return pd.concat([table, table.assign(step=table["step"] + 40)])


def _of_other_classes(table):
    return _renamed(table).assign(kind=3 - table["kind"])


@pytest.mark.parametrize(
    "changed",
    [_renamed, _without_a_cell, _without_rows, _with_later_rows, _of_other_classes, pl.from_pandas],
)
def test_a_series_that_the_fit_has_seen_is_never_scored(classifier, changed):
    some = waves()[waves()["id"].isin(["s2", "s5", "s6"])].reset_index(drop=True)
    with pytest.raises(fc.ConfigError, match=r"not seen, found 3 with the key .* .the first: t?s2."):
        classifier.backtest(changed(some), tracking=False)
    if changed is pl.from_pandas:
        return
    others = waves(1).assign(id="u" + waves(1)["id"])
    backtest = classifier.backtest(pd.concat([changed(some), others]), tracking=False)
    assert backtest.scores == classifier.backtest(others, tracking=False).scores
    (finding,) = (one for one in backtest.findings if one.rule == "in-sample")
    assert (finding.severity, finding.count) == ("warning", 3) and finding.series in ("s2", "ts2")
    assert "3 of 27 series are left out: they have the key" in backtest.verdict


def test_the_hashes_are_saved_and_the_same_on_every_machine(classifier, tmp_path):
    classifier.save(tmp_path / "model")
    hashes = fc.load(tmp_path / "model").artifact.series_hashes
    assert np.array_equal(hashes, classifier.artifact.series_hashes) and len(hashes) == 24
    one = open_panel(
        pd.DataFrame({"id": "a", "step": [3, 4, 5, 6], "x": [np.nan, 1, np.nan, -0.0]}),
        config_from(None, None, {"series": "id", "time": "step"}).data,
    )
    key = hashlib.sha256(b"a").digest()
    content = hashlib.sha256(np.array([1, np.nan, 0], "<f8").tobytes()).digest()
    wanted = [int.from_bytes(digest[:8], "little", signed=True) for digest in (key, content)]
    assert series_hashes(one).tolist() == [[*wanted, 4, 6]]


def test_rows_without_keys_and_times_are_known_by_their_values():
    options = config_from(None, None, {"time": "row"}).data
    one, other = (
        series_hashes(open_panel(pd.DataFrame({"x": [1.0, 2.0, last]}), options)) for last in (3, 4)
    )
    assert one[0, 0] == one[0, 1] and not set(one[0, :2]) & set(other[0, :2])


def test_a_picture_that_cannot_be_drawn_costs_no_scores(
    classifier, tmp_path, monkeypatch, capsys, empty_store
):
    monkeypatch.chdir(tmp_path)
    shutil.copy(empty_store, tmp_path / "runs.db")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path / 'runs.db'}")
    tracked = fc.Classifier(classifier.artifact)

    def plot(self):
        raise fc.ConfigError("no matplotlib")

    monkeypatch.setattr("forecaster.evaluation.class_backtest.ClassBacktest.plot", plot)
    assert tracked.backtest(waves(1)).scores["forecaster"]["accuracy"] > 0
    assert "no backtest.png: no matplotlib; the scores are complete" in capsys.readouterr().err


def test_a_classifier_without_the_hashes_of_its_series_is_refused(classifier, tmp_path):
    classifier.save(tmp_path / "model")
    contract = json.loads((tmp_path / "model" / "contract.json").read_text())
    (tmp_path / "model" / "contract.json").write_text(json.dumps(contract | {"series": None}))
    with pytest.raises(fc.ArtifactError, match="'series' is missing"):
        fc.load(tmp_path / "model")


# Random kernels


def test_features_of_random_kernels_equal_a_loop():
    random = np.random.default_rng(0)
    values = torch.from_numpy(random.standard_normal((2, 21, 3))).float()
    inside = torch.ones(2, 21, dtype=torch.bool)
    inside[1, :6] = False
    for per_step in (False, True):
        kernels = RandomKernels(3, 21, 2, per_step)
        kernels.choose_thresholds(values, inside)
        found = kernels.features(values, inside).numpy()
        each = kernels.thresholds_each
        for which in random.choice(found.shape[-1], 20, replace=False):
            place, rest = divmod(int(which), KERNELS * each)
            kernel, number = divmod(rest, each)
            dilation, taps = kernels.dilations[place], kernels.kernels[place, kernel].numpy()
            threshold = float(kernels.thresholds[place, kernel, number])
            for window in range(2):
                above = np.zeros(21)
                for t in range(21):
                    at = [t + dilation * (k - TAPS // 2) for k in range(TAPS)]
                    cells = [
                        taps[:, k] @ values[window, s].numpy() for k, s in enumerate(at) if 0 <= s < 21
                    ]
                    above[t] = sum(cells) > threshold
                real = inside[window].numpy()
                if not per_step:
                    assert found[window, which] == pytest.approx(above[real].mean(), abs=1e-5)
                    continue
                for t in (6, 10, 20):
                    near = np.zeros(21, bool)
                    near[max(0, t - 7) : t + 8] = True
                    assert found[window, t, which] == pytest.approx(above[near & real].mean(), abs=1e-5)


def test_scores_without_a_series_equal_a_ridge_solved_without_it():
    random = np.random.default_rng(0)
    kernels = RandomKernels(1, 9, 2, per_step=False)
    features = torch.from_numpy(random.random((12, len(kernels.loc)))).float()
    code = torch.from_numpy(random.integers(0, 2, 12))
    held_out = kernels.solve_series(features, code)
    centred = (features.double() - features.double().mean(0)).numpy()
    unit = (centred**2).sum() / centred.shape[1]
    errors = []
    for penalty in PENALTIES:
        alone = np.zeros((12, 2))
        for out in range(12):
            keep = np.arange(12) != out
            # The constant has no penalty: the rest is centred without the series.
            x, y = features.double().numpy()[keep], one_hot(code, 2).double().numpy()[keep]
            mean, level = x.mean(0), y.mean(0)
            gram = (x - mean) @ (x - mean).T + penalty * unit * np.eye(11)
            weights = (x - mean).T @ np.linalg.solve(gram, y - level)
            alone[out] = (features.double().numpy()[out] - mean) @ weights + level
        errors.append((((alone - one_hot(code, 2).numpy()) ** 2).mean(), alone))
    assert np.allclose(held_out.numpy(), min(errors, key=lambda one: one[0])[1], atol=1e-4)


def test_scores_without_a_fold_equal_a_ridge_solved_without_it():
    random = np.random.default_rng(0)
    kernels = RandomKernels(1, 9, 2, per_step=True)
    features = torch.from_numpy(random.random((40, len(kernels.loc)))).float()
    code, fold = torch.from_numpy(random.integers(0, 2, 40)), torch.arange(40) % 3 - 1
    held_out = kernels.solve_folds(lambda: iter([(features, code, fold)]), 2)
    errors = []
    x, y = features.double().numpy(), one_hot(code, 2).double().numpy()
    for penalty in PENALTIES:
        alone = np.zeros((40, 2))
        for number in (0, 1):
            keep = fold.numpy() != number
            mean, level = x[keep].mean(0), y[keep].mean(0)
            apart = x[keep] - mean
            weight = 1e-2 * penalty * (apart**2).sum(0).mean()
            maps = apart.T @ np.linalg.solve(
                apart @ apart.T + weight * np.eye(keep.sum()), y[keep] - level
            )
            alone[~keep] = (x[~keep] - mean) @ maps + level
        seen = fold.numpy() >= 0
        errors.append((((alone - y)[seen] ** 2).sum(), alone))
    best = min(errors, key=lambda one: one[0])[1]
    assert np.allclose(held_out.numpy()[fold >= 0], best[fold >= 0], atol=1e-4)


# Folds


@pytest.mark.parametrize(
    "table", [waves(), machines(), machines(0, 1, 900)], ids=["series", "machines", "one"]
)
def test_folds_hold_whole_units_and_spread_each_class(table):
    config = config_from(SMALL, None, ROLES)
    panel = open_panel(table, config.data)
    _, folds = resolve_classes(panel, config)
    assert folds.panel.n_rows == panel.n_rows and folds.count == 5
    for kind in np.unique(folds.code):
        count = np.bincount(folds.fold[folds.code == kind], minlength=5)
        assert count.max() - count.min() <= 1
    for number in range(5):
        split = folds.split(number)
        series, _, _ = split.train.locate(np.arange(len(split.train)))
        assert not (folds.fold[series] == number).any()
        held, _, ends = split.validation.locate(np.arange(len(split.validation)))
        assert (folds.fold[held] == number).all() and (ends < folds.panel.indptr[held + 1]).all()


# Explain and embed


def test_explain_says_which_steps_the_class_rests_on(step_classifier, classifier, tmp_path):
    table = waves(1)
    found = classifier.explain(table, only="s1")
    rows = found.frame
    assert [*rows.columns] == ["id", "step", "effect"] and len(rows) == (table["id"] == "s1").sum()
    assert found.label == str(classifier.predict(table, only="s1").frame["label"][0])
    for name in ("steps.png", "steps.html"):
        found.write(tmp_path / name)
    with pytest.raises(fc.DataError, match="24 series; name one, as only='s0'"):
        classifier.explain(table)
    assert step_classifier.explain(machines(1, 1)).frame["effect"].notna().all()


def test_a_vector_per_series_is_near_those_of_its_kind(classifier):
    found = classifier.embed(waves(1))
    assert found["id"].is_unique and len(found) == 24
    assert found.drop(columns="id").shape[1] == 5 * 2 * 8
    assert np.isfinite(found.drop(columns="id").to_numpy()).all()


# What is refused


def _same(table):
    return table.assign(kind=1)


def _two(table):
    return table.assign(kind=table["kind"].where((table["id"] != "s2") | (table["step"] > 9), 2))


def _continuous(table):
    return table.assign(kind=np.random.default_rng(0).standard_normal(len(table)))


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        (_same, "label 'kind': expected at least two classes, found 1"),
        (_two, "changes within 1 of 24 series .the first, 's2', has 1 and 2"),
        (_continuous, "different numbers, which look continuous.*pass `target` kind"),
    ],
)
def test_classes_that_cannot_be_meant_are_refused(changed, message):
    with pytest.raises(fc.DataError, match=message):
        fc.fit(changed(waves()), **ROLES, config=SMALL, tracking=False, quiet=True)


def test_what_only_forecasts_have_is_refused(classifier):
    with pytest.raises(fc.ConfigError, match="horizon 5: expected none with `label` kind"):
        fc.fit(waves(), 5, **ROLES, tracking=False, quiet=True)
    with pytest.raises(
        fc.ConfigError, match=r"`budget`: a classifier .`label` kind. has no such option"
    ):
        fc.fit(waves(), **ROLES, budget="5s", tracking=False, quiet=True)
    with pytest.raises(fc.ConfigError, match="head binned, stride 2: expected none with `label` kind"):
        config = {"model": {"head": "binned"}, "fit": {"stride": 2}}
        fc.fit(waves(), **ROLES, config=config, tracking=False, quiet=True)
    assert classifier.config.replaced(fit={"steps": 4}).model.head == "quantile"
    with pytest.raises(fc.ConfigError, match="expected a saved classifier and a table with classes"):
        fc.backtest(waves(), **ROLES, tracking=False)
    with pytest.raises(fc.ConfigError, match="series that the fit has not seen, found 24"):
        classifier.backtest(waves(), tracking=False)
    with pytest.raises(fc.DataError, match="expected classes in column 'kind', found none"):
        classifier.backtest(waves(1).drop(columns="kind"), tracking=False)
    with pytest.raises(fc.DataError, match=r"no column 'y' \(a target"):
        classifier.predict(waves(1).drop(columns="y"))


# Many series, and searches


@pytest.mark.long
def test_a_table_of_many_series_is_classified_in_parts_and_resumed(classifier, tmp_path):
    one, many = waves(1, 3), []
    for number in range(1100):
        many.append(one[one["id"] == f"s{number % 3}"].head(8).assign(id=f"t{number:04}"))
    table, out = pd.concat(many), tmp_path / "classes.parquet"
    whole = classifier.predict(table)

    def stop(done: int, total: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        classifier.predict_to(out, table, progress=stop)
    assert not out.exists()
    done = classifier.predict_to(out, table)
    assert (done.there, done.made, done.report) == (1, 1, "1,100 series, 1,100 predictions")
    assert pl.read_parquet(out).equals(whole.rows)
    assert [file.name for file in tmp_path.iterdir()] == ["classes.parquet"]
    assert done.first().panel.n_series < 20
    for part in ("1/2", "2/2"):
        classifier.predict_to(tmp_path / "twin.csv", table, shard=part)
    classifier.predict_to(tmp_path / "twin.csv", table)
    whole.write(tmp_path / "whole.csv")
    assert (tmp_path / "twin.csv").read_bytes() == (tmp_path / "whole.csv").read_bytes()


def test_a_large_table_without_classes_is_converted(classifier, tmp_path, monkeypatch):
    table = waves(1).drop(columns="kind")
    table.to_parquet(tmp_path / "waves.parquet")
    monkeypatch.setattr("forecaster.runs.batch_predict.free_memory", lambda: 0.0)
    classifier.predict_to(tmp_path / "classes.parquet", tmp_path / "waves.parquet")
    assert pl.read_parquet(tmp_path / "classes.parquet").equals(classifier.predict(table).rows)


@pytest.mark.slow
def test_processes_classify_as_one_does(step_classifier, tmp_path):
    table = pd.concat(machines(5, 1, 70).assign(id=f"m{number:04}") for number in range(1030))
    for devices in (None, 2):
        step_classifier.predict_to(tmp_path / f"{devices}.parquet", table, devices=devices)
    one, two = (tmp_path / f"{devices}.parquet" for devices in (None, 2))
    assert one.read_bytes() == two.read_bytes()


@pytest.mark.long
def test_a_search_ranks_settings_by_held_out_series(tmp_path):
    space = {"model.width": {"choice": [8, 16]}}
    options = dict(config=SMALL, tracking=False, quiet=True, storage=tmp_path / "study.journal")
    study = fc.tune(waves(count=16), trials=2, space=space, **ROLES, **options)
    assert isinstance(study.model, fc.Classifier)
    trials = study.trials
    assert trials["log_loss"].notna().all() and set(trials["state"]) == {"finished"}
    scores = study.model.artifact.metrics["validation"]["scores"]["forecaster"]
    assert study.best_value == scores["log_loss"] == trials["log_loss"].min()
    with pytest.raises(fc.ConfigError, match=r"model.decoder_layers: a classifier has no such setting"):
        fc.tune(waves(), space={"model.decoder_layers": {"int": [1, 2]}}, **ROLES, **options)
    with pytest.raises(fc.ConfigError, match="metrics=WQL: expected one of log_loss"):
        fc.tune(waves(), metrics="WQL", **ROLES, **options)
    with pytest.raises(
        fc.ConfigError, match=r"`until`: a search for a classifier .`label` kind. has no such"
    ):
        fc.tune(waves(), until="20", **ROLES, **options)


@pytest.mark.slow
def test_the_shell_has_the_same_verbs(tmp_path, monkeypatch, shell):
    monkeypatch.chdir(tmp_path)
    waves().to_csv("train.csv", index=False)
    waves(1).to_csv("test.csv", index=False)

    roles = [f"--{role}={name}" for role, name in ROLES.items()]
    sets = ["--set", "model.width=8", "--set", "model.heads=2", "--set", "fit.steps=2"]
    code, out, _ = shell("fit", "train.csv", *roles, *sets, "--out", "m", "--no-tracking")
    assert code == 0 and "a class per series · 2 classes: 1, 2" in out and "held-out accuracy" in out
    code, out, _ = shell("predict", "m", "test.csv", "--out", "classes.csv")
    assert code == 0 and "24 series, 24 predictions" in out
    assert pl.read_csv("classes.csv").columns == ["id", "label", "p_1", "p_2", "status"]
    code, out, _ = shell("backtest", "m", "test.csv", "--no-tracking", "--plot", "scores.png")
    assert code == 0 and "balanced_accuracy" in out and "true class" in out
    code, out, _ = shell("explain", "m", "test.csv", "--only", "s1", "--out", "steps.png")
    assert code == 0 and "matter most" in out
    code, _, err = shell("predict", "m", "test.csv", "--horizon", "3")
    assert code == 2 and "--horizon: a classifier has no such option" in err
    code, _, err = shell("detect", "m", "test.csv", "--out", "d.csv")
    assert code == 2 and "expects a model that forecasts" in err


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # MLflow's own
def test_a_registered_model_classifies_by_mlflow_too(classifier, tmp_path, monkeypatch):
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path / 'runs.db'}")
    from mlflow.pyfunc import load_model

    address = classifier.export("waves").address
    assert isinstance(fc.load(address), fc.Classifier)
    found = load_model(address).predict(waves(1).drop(columns="kind"))
    assert [*found["label"]] == [*classifier.predict(waves(1)).frame["label"]]


@pytest.mark.slow
def test_the_page_shows_what_runs():
    page = (Path(__file__).parents[1] / "docs" / "classes.md").read_text(encoding="utf-8")
    names: dict[str, object] = {}
    exec(page.split("```python\n")[1].split("```")[0], names)
    assert (
        names["classes"]["label"].tolist()
        == names["test"].groupby("id", sort=False)["kind"].first().tolist()
    )
    near = names["distance"].drop("s30").nsmallest(3).index
    assert all(int(name[1:]) % 2 == 0 for name in near)  # smooth, as s30


@pytest.mark.slow
def test_the_onnx_file_gives_the_same_probabilities(classifier, step_classifier, tmp_path):
    for model in (classifier, step_classifier):
        assert "in probability from torch" in model.export_onnx(tmp_path / "model.onnx")
