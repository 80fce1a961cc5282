"""A model as an ONNX file equals torch for any batch; what ONNX cannot express is refused by name."""

import importlib.util
import json
import logging
from dataclasses import replace
from typing import get_args

import numpy as np
import pytest
import torch
from forecast import tiny

import forecaster as fc
from forecaster.config import Expert, ExpertPlan, LinearPlan, TargetConfig
from forecaster.fitting.moments import learn_scales
from forecaster.forecast import onnx_export
from forecaster.forecast.artifact import Artifact, shape_of
from forecaster.forecast.onnx_export import write_onnx
from forecaster.model.ensemble import Ensemble
from forecaster.model.network import Network
from forecaster.windows.store import training_store

onnxruntime = pytest.importorskip("onnxruntime", reason="needs the extra onnx")
pytest.importorskip("onnxscript", reason="needs the extra onnx")

pytestmark = pytest.mark.usefixtures("unchecked_shapes")

LINEAR = LinearPlan(lookbacks=(9,))
EXPERTS = ExpertPlan(
    experts=tuple(name for name in get_args(Expert) if name != "tsb"),
    history_length=48,
    memory=24,
    seasons=(4, 6),
    driver_length=11,
    linear=LINEAR,
)
RICH = {"targets": 2, "past": 1, "known": 1, "categories": True, "static": True, "missing": 0.2}


def with_experts(*names, **settings):
    """The settings of a network with some experts."""
    pool = EXPERTS.model_copy(update={"experts": names, **settings})
    return {"context_length": 18, "pool": pool}


@pytest.fixture
def make_artifact(make_panel, make_plan):
    """The factory of artifacts with random weights: (panel, artifact)."""

    def make(members=1, model=None, **table):
        panel = make_panel(**table)
        plan = make_plan(5).with_model(**(model or {}))
        networks = []
        for seed in range(members):
            torch.manual_seed(seed)
            network = Network(plan.model, shape_of(panel, 5))
            learn_scales(network, panel, panel.indptr[1:])
            with torch.no_grad():
                for weight in network.parameters():
                    weight.add_(0.2 * torch.randn_like(weight))
            networks.append(network)
        weights = [1.0] if members == 1 else [0.75, 0.25]
        ensemble = Ensemble(networks, weights).eval().requires_grad_(False)
        return panel, Artifact(panel.schema, plan, shape_of(panel, 5), ensemble, 0, "table", "print")

    return make


def _answers(panel, artifact, file, size):
    """Quantiles and mean of windows of a panel: by torch, by onnxruntime, and the windows' scales."""
    store = training_store(panel, artifact.plan)
    last = panel.indptr[1:] - 1 - artifact.horizon
    series = np.arange(size) % panel.n_series
    # From a series' first rows, where most of the context lies before it, to its last.
    cutoff = np.linspace(panel.indptr[:-1][series] + 1, last[series], size).diagonal().astype(np.int64)
    inputs = store.batch(series, None, cutoff).inputs
    session = onnxruntime.InferenceSession(file, providers=["CPUExecutionProvider"])
    given = {part.name: getattr(inputs, part.name).numpy() for part in session.get_inputs()}
    with torch.inference_mode():
        predicted = artifact.ensemble.predict(inputs)
    scale = artifact.ensemble.scale(inputs).scale
    wanted = [part.numpy() for part in (predicted.quantiles, predicted.mean)]
    return wanted, session.run(None, given), scale.numpy()


def _assert_equal(panel, artifact, file):
    for size in (1, 7):
        wanted, found, scale = _answers(panel, artifact, file, size)
        assert len(wanted) == len(found)
        for mine, theirs in zip(wanted, found, strict=True):
            assert mine.shape == theirs.shape and mine.shape[0] == size and np.isfinite(mine).all()
            per_window = scale.reshape(size, 1, -1, *[1] * (mine.ndim - 3))
            axes = (1, *range(3, mine.ndim))
            reach = mine.max(axis=axes, keepdims=True) - mine.min(axis=axes, keepdims=True)
            assert (np.abs(mine - theirs) / np.maximum(per_window, reach)).max() < 1e-4


@pytest.mark.slow
def test_onnxruntime_equals_torch_with_covariates_categories_and_gaps(make_artifact, tmp_path):
    panel, artifact = make_artifact(**RICH)
    summary = write_onnx(artifact, tmp_path / "model.onnx")
    assert summary.startswith(
        "context, past, known, static, static_category, past_category, known_category, phase, elapsed, "
        "channel, history → quantiles, mean; at most "
    )
    _assert_equal(panel, artifact, tmp_path / "model.onnx")
    assert [path.name for path in tmp_path.iterdir()] == ["model.onnx"]


@pytest.mark.slow
def test_experts_and_their_linear_maps_are_inside_the_file(make_artifact, tmp_path):
    linear = LINEAR.model_copy(update={"units": 4, "phases": 3})
    pool = EXPERTS.model_copy(update={"drivers": ("y1", "p0"), "linear": linear})
    panel, artifact = make_artifact(model={"context_length": 18, "pool": pool}, **RICH)
    (member,) = artifact.ensemble.members
    member.network_weight.fill_(0.5)
    arx = member.experts.arx
    arx.maps.normal_(std=0.1)
    arx.used[1] = True
    for indices, count in ((arx.column, 4), (arx.lag, 3)):
        indices.copy_(torch.randint(count, indices.shape))
    write_onnx(artifact, tmp_path / "model.onnx")
    _assert_equal(panel, artifact, tmp_path / "model.onnx")


@pytest.mark.slow
def test_calibration_and_bounds_of_the_target_are_inside_the_file(make_artifact, tmp_path):
    panel, artifact = make_artifact(targets=2)
    factors = torch.linspace(0.3, 3, 5 * 2 * 9).reshape(5, 2, 9)
    middle = float(np.median(panel.values[:, 0]))
    ensemble = Ensemble(
        list(artifact.ensemble.members), [1.0], factors, TargetConfig(lower=middle, upper=middle + 9)
    )
    artifact = replace(artifact, ensemble=ensemble.eval().requires_grad_(False))
    write_onnx(artifact, tmp_path / "model.onnx")
    _assert_equal(panel, artifact, tmp_path / "model.onnx")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("members", "table", "model"),
    [
        (2, {}, {"head": "student_t"}),
        (2, {}, {"head": "binned"}),
        (1, {"irregular": True}, {"attention": "local", "attention_size": 1}),
        (1, {"ragged": True, "gaps": 0.3}, {"attention": "low_rank", "attention_size": 2}),
        (1, RICH, {"decoder_mask": "full", "conv_kernel": 2}),
        (1, {"ragged": True, "gaps": 0.3}, with_experts("ets")),
        (1, {}, with_experts("naive", "linear", driver_length=1)),
        (1, {}, {"style": "vaswani2017", "positions": "sinusoidal", "patch": 1}),
    ],
    ids=[
        "student_t",
        "binned",
        "irregular",
        "ragged",
        "full mask",
        "one expert",
        "experts",
        "published layers",
    ],
)
def test_onnxruntime_equals_torch_for_every_kind_of_network(
    make_artifact, tmp_path, members, table, model
):
    panel, artifact = make_artifact(members=members, model=model, **table)
    write_onnx(artifact, tmp_path / "model.onnx")
    _assert_equal(panel, artifact, tmp_path / "model.onnx")


@pytest.mark.slow
@pytest.mark.usefixtures("short_fits")
def test_the_summary_names_the_inputs_and_the_metadata_describe_them(tmp_path, capfd):
    options = {"horizon": tiny.HORIZON, "known": "price", "config": tiny.ONE, "quiet": True}
    model = fc.fit(tiny.shop(), **options)
    model.save(tmp_path / "model")
    summary = fc.load(tmp_path / "model").export_onnx(tmp_path / "shop.onnx")
    assert summary.split("; ")[0] == (
        "context, past, known, static_category, phase, elapsed, channel, history, effect, multiplies, "
        "error_ratios → quantiles, mean"
    )
    assert capfd.readouterr() == ("", "")
    session = onnxruntime.InferenceSession(tmp_path / "shop.onnx")
    names, inputs = model.onnx_inputs(tiny.shop(), tiny.prices())
    (quantiles,) = session.run(["quantiles"], inputs)
    ahead = model.predict(tiny.shop(), future=tiny.prices())
    assert names == list(ahead.panel.series_names)
    assert np.allclose(quantiles, ahead.quantiles, rtol=1e-5)
    stored = session.get_modelmeta().custom_metadata_map
    found = {key: json.loads(value) for key, value in stored.items() if key.startswith("forecaster.")}
    assert found["forecaster.format"] == 1
    assert found["forecaster.channels"] == ["sales"] and found["forecaster.known"] == ["price"]
    assert found["forecaster.freq"] == "1d" and found["forecaster.horizon"] == 7
    assert found["forecaster.cycles"] == ["week", "year"]
    assert found["forecaster.context_length"] == model.artifact.context_length
    assert found["forecaster.quantile_levels"][0] == 0.1
    assert found["forecaster.categories"] == {"city": ["north", "south"]}
    assert logging.root.manager.disable == 0


@pytest.mark.parametrize(
    ("model", "reason"),
    [
        ({"decoder": "autoregressive"}, "model.decoder autoregressive draws sample paths"),
        ({"attention": "sparse"}, "model.attention sparse selects queries by their values"),
    ],
)
def test_what_a_graph_cannot_express_is_refused_by_its_name(make_artifact, tmp_path, model, reason):
    _, artifact = make_artifact(model=model)
    with pytest.raises(
        fc.ConfigError, match=f"^--onnx: {reason}.*; serve this model with --mlflow NAME"
    ):
        write_onnx(artifact, tmp_path / "model.onnx")
    assert not list(tmp_path.iterdir())


def test_a_missing_package_is_named_with_what_installs_it(make_artifact, tmp_path, monkeypatch):
    there = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name == "onnxscript" else there(name)
    )
    with pytest.raises(
        fc.ConfigError, match=r"needs onnxscript: pip install onnx onnxruntime onnxscript"
    ):
        write_onnx(make_artifact()[1], tmp_path / "model.onnx")


def test_another_suffix_and_a_place_that_cannot_be_written_are_refused_first(make_artifact, tmp_path):
    _, artifact = make_artifact()
    with pytest.raises(fc.OutputError, match=r"expected a name ending in \.onnx"):
        write_onnx(artifact, tmp_path / "model.pt")
    (tmp_path / "file").write_text("")
    with pytest.raises(fc.OutputError, match="is not a folder"):
        write_onnx(artifact, tmp_path / "file" / "model.onnx")


@pytest.mark.slow
def test_a_file_that_disagrees_with_torch_is_not_written(make_artifact, tmp_path, monkeypatch):
    _, artifact = make_artifact()
    monkeypatch.setattr(onnx_export, "_TOLERANCE", 0.0)
    with pytest.raises(fc.ConfigError, match=r"onnxruntime is .* of the scale away from torch"):
        write_onnx(artifact, tmp_path / "model.onnx")
    assert not list(tmp_path.iterdir())


def test_the_comparison_is_of_histories_at_the_level_of_their_channels(make_artifact):
    _, artifact = make_artifact(model=with_experts("naive", "ets"), targets=2)
    scaler = artifact.ensemble.networks[0].scaler
    scaler.loc.fill_(5e6)
    scaler.scale.fill_(1e5)
    graph = onnx_export.OnnxGraph(artifact)
    given = dict(zip(graph.names, graph.random_inputs(3), strict=True))
    for name in ("context", "history"):
        assert (given[name].nan_to_num(5e6) - 5e6).abs().max() < 1e6
    quantiles, _ = graph(*given.values())
    assert (quantiles - 5e6).abs().max() < 2e6


class _Operations(torch.nn.Module):
    """Those that torch translates only after it has decomposed them."""

    names = ("values",)

    def forward(self, *given):
        (values,) = given
        real = ~values.isnan()
        inside = (values < 1) & real | (values > 2)
        numbers = values.nan_to_num()
        mean = values.nanmean(dim=1, keepdim=True)
        count = torch.zeros(values.shape[0]).numel()
        return (
            1.5 - numbers.square() + mean,
            inside.to(torch.int64),
            numbers[0].double()[None].T + count,
        )


@pytest.mark.long
def test_operations_are_translated_whole_as_torch_computes_them(monkeypatch):
    def decomposed(*given):
        raise AssertionError("operations were decomposed")

    monkeypatch.setattr(torch.export.ExportedProgram, "run_decompositions", decomposed)
    given = torch.tensor([[1.0, torch.nan, torch.inf], [-torch.inf, 0.5, 3.0], [2.0, torch.nan, 1e30]])
    model = onnx_export._translated(_Operations(), (given,), ["number", "inside", "double"])
    session = onnxruntime.InferenceSession(model.SerializeToString())
    assert session.get_inputs()[0].shape == ["batch", 3]
    for cells in (given, given[:1], given[[0, 2, 1, 2, 0]]):
        for wanted, found in zip(
            _Operations()(cells), session.run(None, {"values": cells.numpy()}), strict=True
        ):
            assert wanted.numpy().dtype == found.dtype
            np.testing.assert_array_equal(wanted, found)
