"""Attention over experts: the laws it keeps, against slow, obvious loops; its weights and levels."""

import math
from dataclasses import replace
from statistics import NormalDist

import numpy as np
import pytest
import torch
from small_networks import EXPERTS, PLAIN, make_inputs, make_network, with_targets
from test_experts import ALL, HORIZON, SEASON, histories, make_experts, pool_of

from forecaster.errors import ArtifactError
from forecaster.model.evidence import (
    POSITIONS,
    RECENT,
    Evidence,
    interpolation,
    phase_widths,
    positions,
    recent_steps,
    variogram,
)
from forecaster.model.expert_attention import (
    FEATURES,
    LEVELS,
    METHODS,
    WIDTH,
    ExpertAttention,
    offsets,
    tokens_of,
)
from forecaster.model.shipped_weights import FILE, load_shipped, save

NAMES = tuple(name for name in METHODS if name != "arx")


def shipped(names=NAMES):
    attention = ExpertAttention(names).requires_grad_(False)
    load_shipped(attention)
    return attention


def evidence_of(rows=6, names=NAMES, seed=0):
    """Evidence of random rows, in which some experts, cutoffs and steps are missing."""
    random = torch.Generator().manual_seed(seed)

    def numbers(*shape):
        return torch.randn(shape, generator=random)

    def chosen(*shape, share=0.7):
        return torch.rand(shape, generator=random) < share

    count = len(names)
    known = chosen(rows, 4, POSITIONS).float()
    known[0] = 0
    available = chosen(rows, count)
    available[:, 0] = True
    whole = torch.tensor([60.0, 7.0, 0.0, 14.0, 14.0]).expand(rows, 5)
    return Evidence(
        forecasts=numbers(rows, POSITIONS, count),
        missed=numbers(rows, 4, POSITIONS, count) * known[..., None],
        known=known,
        available=available,
        scatter=numbers(rows).abs(),
        variogram=numbers(rows, POSITIONS).abs(),
        width=numbers(rows, POSITIONS).abs() + 0.5,
        recent=numbers(rows, RECENT),
        changes=numbers(rows, RECENT),
        seen=chosen(rows, RECENT, share=0.9),
        zero=numbers(rows) - 5,
        counts=chosen(rows, share=0.3),
        steps=whole,
    )


def quantiles_of(attention, evidence):
    every = torch.eye(POSITIONS)
    return attention.quantiles(evidence, evidence.forecasts, evidence.width, every)


def part(evidence, columns):
    """The evidence of some experts alone, in this order."""
    pick = {
        name: getattr(evidence, name)[..., columns] for name in ("forecasts", "missed", "available")
    }
    return replace(evidence, **pick)


def test_permuted_experts_give_the_same_forecast_and_their_own_weights():
    evidence, order = evidence_of(), np.random.default_rng(0).permutation(len(NAMES))
    one, other = shipped(), shipped([NAMES[number] for number in order])
    moved = part(evidence, torch.from_numpy(order))
    torch.testing.assert_close(quantiles_of(other, moved), quantiles_of(one, evidence))
    torch.testing.assert_close(other(moved).logits, one(evidence).logits[..., order])


def test_any_subset_forecasts_and_a_missing_expert_equals_a_masked_one():
    evidence = evidence_of()
    for columns in ([0], [0, 3, 9], [*range(1, len(NAMES), 2), 0]):
        some = shipped([NAMES[number] for number in columns])
        masked = torch.zeros(len(NAMES), dtype=torch.bool)
        masked[columns] = True
        whole = replace(evidence, available=evidence.available & masked)
        found = quantiles_of(some, part(evidence, columns))
        torch.testing.assert_close(found, quantiles_of(shipped(), whole))
        assert (found.diff(dim=-1) > 0).all()


def test_what_a_masked_expert_and_an_unknown_error_hold_changes_nothing():
    evidence = evidence_of()
    absent = ~evidence.available[:, None]
    wild = replace(evidence, forecasts=torch.where(absent, 1e6, evidence.forecasts))
    torch.testing.assert_close(quantiles_of(shipped(), wild), quantiles_of(shipped(), evidence))


@pytest.mark.parametrize(("a", "b"), [(0.05, 0.0), (40.0, 0.0), (0.5, 3.0), (7.0, -200.0)])
def test_scaled_and_shifted_evidence_scales_and_shifts_the_forecast(a, b):
    """In scaled units, which themselves move with the data: here `b` is another zero, and `a` another spread."""
    evidence = replace(evidence_of(), counts=torch.full((6,), b == 0))
    # A unit is at least a hundredth of the spread of the context, which no other spread may change.
    evidence = replace(evidence, scatter=evidence.scatter + 50)
    moved = replace(
        evidence,
        forecasts=a * evidence.forecasts + b,
        missed=a * evidence.missed,
        scatter=a * evidence.scatter,
        variogram=a * evidence.variogram,
        recent=a * evidence.recent + b,
        changes=a * evidence.changes,
        zero=a * evidence.zero + b,
    )
    found, wanted = quantiles_of(shipped(), moved), a * quantiles_of(shipped(), evidence) + b
    torch.testing.assert_close(found, wanted, rtol=1e-3, atol=1e-3 * a)


def test_where_zero_means_nothing_it_is_not_read():
    evidence = replace(evidence_of(), counts=torch.zeros(6, dtype=torch.bool))
    moved = replace(evidence, zero=evidence.zero + 3)
    assert torch.equal(quantiles_of(shipped(), moved), quantiles_of(shipped(), evidence))


def test_rows_of_a_batch_are_forecast_each_by_itself():
    evidence = evidence_of()
    whole = quantiles_of(shipped(), evidence)
    alone = [quantiles_of(shipped(), evidence.at(slice(n, n + 1))) for n in range(6)]
    torch.testing.assert_close(torch.cat(alone), whole)


def test_before_training_it_is_the_evidence_with_normal_bands():
    evidence = evidence_of()
    found = quantiles_of(ExpertAttention(NAMES), evidence)
    weights = evidence.weights
    center = (weights[:, None] * evidence.forecasts).sum(dim=-1)
    normal = torch.tensor([1.25 * NormalDist().inv_cdf(level) for level in LEVELS])
    unit = evidence.unit[:, None] * evidence.width
    wanted = center[..., None] + unit[..., None] * normal
    # The disagreement of a lead widens nothing before training either.
    torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-4)


def slow_attention(tokens, seen, module):
    """Scaled dot products of one row, one head and one query after the other."""
    width = WIDTH // module.heads

    def linear(layer, vector):
        return layer.weight.numpy() @ vector + layer.bias.numpy()

    query, key, value = (
        [linear(layer, token) for token in tokens] for layer in (module.query, module.key, module.value)
    )
    found = []
    for asked in query:
        mixed = np.zeros(WIDTH)
        for head in range(module.heads):
            own = slice(head * width, (head + 1) * width)
            scores = [asked[own] @ k[own] / math.sqrt(width) for k in key]
            chances = [math.exp(s) if here else 0.0 for s, here in zip(scores, seen, strict=True)]
            for chance, v in zip(chances, value, strict=True):
                mixed[own] += chance / sum(chances) * v[own]
        found.append(linear(module.output, mixed))
    return found


def slow_answer(attention, tokens, row):
    """The changes of one row: numpy, one token after the other."""

    def linear(layer, vector):
        return layer.weight.numpy() @ vector + layer.bias.numpy()

    def norm(layer, vector):
        standard = (vector - vector.mean()) / math.sqrt(vector.var() + layer.eps)
        return standard * layer.weight.numpy() + layer.bias.numpy()

    def gelu(vector):
        return np.array([x * NormalDist().cdf(x) for x in vector])

    attended = [linear(attention.row_input, tokens.row[row].numpy())]
    for number, method in enumerate(attention.method.weight.numpy()):
        attended.append(linear(attention.expert_input, tokens.experts[row, number].numpy()) + method)
    for number, place in enumerate(attention.place.numpy()):
        attended.append(linear(attention.step_input, tokens.steps[row, number].numpy()) + place)
    seen = [True, *tokens.available[row].tolist(), *tokens.observed[row].tolist()]
    for layer in attention.layers:
        normed = [norm(layer.attention_norm, token) for token in attended]
        added = slow_attention(normed, seen, layer.attention)
        attended = [token + more for token, more in zip(attended, added, strict=True)]
        for number, token in enumerate(attended):
            wide = gelu(linear(layer.wide, norm(layer.wide_norm, token)))
            attended[number] = token + linear(layer.narrow, wide)
    attended = [norm(attention.norm, token) for token in attended]

    def output(sequence, token):
        return linear(sequence[2], gelu(linear(sequence[0], token)))

    of_experts = [output(attention.expert_output, token) for token in attended[1 : 1 + len(NAMES)]]
    return np.array(of_experts), output(attention.row_output, attended[0])


def test_attention_equals_a_slow_loop_over_rows_heads_and_tokens():
    attention, evidence = shipped(), evidence_of(3)
    answer = attention(evidence)
    tokens = tokens_of(evidence, attention.solved)
    for row in range(3):
        of_experts, of_row = slow_answer(attention, tokens, row)
        wanted = 12 * np.tanh(of_experts[:, :POSITIONS].T / 12)
        here = evidence.available[row]
        np.testing.assert_allclose(answer.logits[row][:, here], wanted[:, here], rtol=1e-3, atol=1e-4)
        correction = 2 * np.tanh(of_row[:-5].reshape(POSITIONS, -1)[:, 0] / 2)
        np.testing.assert_allclose(answer.correction[row], correction, rtol=1e-3, atol=1e-4)


def test_features_equal_a_loop_over_experts_cutoffs_and_positions():
    evidence, solved = evidence_of(4), shipped().solved
    tokens = tokens_of(evidence, solved)
    assert (tokens.experts.shape[-1], tokens.row.shape[-1], tokens.steps.shape[-1]) == FEATURES
    for row, expert in np.ndindex(4, len(NAMES)):
        found = tokens.experts[row, expert].numpy()
        if not evidence.available[row, expert]:
            assert (found == 0).all()
            continue
        known, missed = evidence.known[row].numpy(), evidence.missed[row, ..., expert].numpy()
        unit = float(evidence.unit[row])
        history = [n for n in range(len(NAMES)) if evidence.available[row, n] and not solved[n]]
        weights = np.exp([float(evidence.logits[row, n]) for n in history])
        features = []
        for place in range(POSITIONS):
            forecasts = evidence.forecasts[row, place].numpy()
            center = np.dot(weights, forecasts[history]) / weights.sum()
            away = 0.0 if solved[expert] else (forecasts[expert] - center) / unit
            features.append(np.arcsinh(away))
        for axis in (0, 1):
            cells = np.maximum(known.sum(axis=axis), 1)
            features += list(np.log1p(np.abs(missed / unit).sum(axis=axis) / cells))
            features += list(np.arcsinh((missed / unit).sum(axis=axis) / cells))
        cells = max(known.sum(), 1)
        error, bias = np.abs(missed).sum() / unit / cells, missed.sum() / unit / cells
        errors = [np.abs(evidence.missed[row, ..., n].numpy()).sum() / cells for n in range(len(NAMES))]
        least = min(e for n, e in enumerate(errors) if evidence.available[row, n])
        worse = np.log1p((errors[expert] + 1e-6) / (least + 1e-6) - 1)
        count = known.sum() / POSITIONS
        features += [np.log1p(error), np.arcsinh(bias), worse, worse * count / (count + 1)]
        np.testing.assert_allclose(found, features, rtol=1e-3, atol=1e-4)


def test_quantiles_rise_from_the_median_outwards():
    steps = torch.randn(5, 8, generator=torch.Generator().manual_seed(0))
    found = offsets(steps)
    normal = [NormalDist().inv_cdf(level) for level in LEVELS]
    for row in range(5):
        wanted = [0.0]
        for number in (3, 2, 1, 0):
            length = 1.25 * (normal[number + 1] - normal[number]) * math.exp(steps[row, number])
            wanted.insert(0, wanted[0] - length)
        for number in (4, 5, 6, 7):
            length = 1.25 * (normal[number + 1] - normal[number]) * math.exp(steps[row, number])
            wanted.append(wanted[-1] + length)
        torch.testing.assert_close(found[row], torch.tensor(wanted))


@pytest.mark.parametrize("horizon", [1, 2, 5, 8, 48, 720])
def test_positions_reach_from_the_first_lead_to_the_last_and_all_between_are_interpolated(horizon):
    places, between = positions(horizon), interpolation(horizon)
    assert len(places) == POSITIONS and places[0] == 0 and places[-1] == horizon - 1
    assert places == sorted(places)
    torch.testing.assert_close(between.sum(dim=1), torch.ones(horizon))
    line = torch.linspace(0, horizon - 1, POSITIONS)  # what is linear in the lead is kept
    torch.testing.assert_close(between @ line, torch.arange(float(horizon)))


def test_widths_of_phases_equal_a_loop():
    rows = torch.randn(5, 41, generator=torch.Generator().manual_seed(1)).cumsum(dim=1)
    lengths = torch.tensor([41, 30, 9, 4, 0])
    found = phase_widths(rows, lengths, SEASON, 24)
    for row, length in enumerate(lengths.tolist()):
        apart = {phase: [] for phase in range(SEASON)}
        for step in range(41 - 20, 41):  # five seasons of pairs in a memory of six
            if step - SEASON >= 41 - length:
                apart[(step - 41) % SEASON].append(
                    float((rows[row, step] - rows[row, step - SEASON]).abs())
                )
        every = [one for ones in apart.values() for one in ones]
        known = {phase: ones for phase, ones in apart.items() if ones}
        ratios = {p: (np.mean(ones) + 1e-6) / (np.mean(every) + 1e-6) for p, ones in known.items()}
        noise = (math.pi / 2 - 1) * SEASON / max(1, len(every))
        differ = np.mean([(one - 1) ** 2 for one in ratios.values()] or [0.0])
        shown = max(0.0, differ - noise)
        for phase in range(SEASON):
            wanted = math.sqrt(1 + shown / (shown + noise) * (ratios.get(phase, 1.0) - 1))
            assert float(found[row, phase]) == pytest.approx(wanted, rel=1e-4)


def test_the_variogram_equals_a_loop():
    rows = torch.randn(4, 22, generator=torch.Generator().manual_seed(1)).cumsum(dim=1)
    lengths, leads = torch.tensor([41, 19, 6, 1]), [0, 2, 3, 10, 30]
    found = variogram(rows, lengths, SEASON, leads)
    for row, length in enumerate(lengths.tolist()):
        values = rows[row].double().numpy()[-min(length, 20) :]  # of five whole seasons
        if len(values) >= 2 * SEASON:
            phases = [values[(len(values) + p) % SEASON :: SEASON].mean() for p in range(SEASON)]
            values = values - [phases[(n - len(values)) % SEASON] for n in range(len(values))]
        time = np.arange(len(values))
        if len(values) > 1:
            values = values - np.polyval(np.polyfit(time, values, 1), time)
        last = 0.0
        for place, lead in enumerate(leads):
            apart = np.abs(values[lead + 1 :] - values[: -lead - 1])
            last = apart.mean() if len(apart) else last
            assert float(found[row, place]) == pytest.approx(last, rel=1e-4)


def test_recent_steps_equal_a_loop():
    rows = torch.randn(3, 40, generator=torch.Generator().manual_seed(1))
    observed = torch.rand(3, 40, generator=torch.Generator().manual_seed(2)) < 0.8
    recent, changes, seen = recent_steps(rows, observed, SEASON)
    for row, place in np.ndindex(3, RECENT):
        step = 40 - RECENT + place
        assert bool(seen[row, place]) == (step >= 0 and bool(observed[row, step]))
        assert recent[row, place] == (rows[row, step] if step >= 0 else 0)
        both = step >= SEASON and observed[row, step] and observed[row, step - SEASON]
        wanted = float(rows[row, step] - rows[row, step - SEASON]) if both else 0.0
        assert float(changes[row, place]) == pytest.approx(wanted)


def test_evidence_of_a_pool_is_of_its_rows():
    experts, rows = make_experts(), histories()
    pool = pool_of(experts, rows)
    evidence, places = pool.evidence, positions(HORIZON)
    assert torch.equal(evidence.forecasts, pool.forecasts[:, places])
    assert torch.equal(evidence.recent[:, -len(rows[0]) :][0], torch.from_numpy(rows[0]).float())
    assert evidence.counts.all()
    assert evidence.steps[0].tolist() == [len(rows[0]), SEASON, 12, HORIZON, 2]


def test_shipped_weights_are_small_and_those_of_another_version_or_damaged_are_refused(tmp_path):
    assert FILE.stat().st_size < 1 << 20
    attention = shipped(["naive"])
    for name, content, reason in (
        ("missing", None, "no such file"),
        ("cut", FILE.read_bytes()[:-100], ""),
        ("other", FILE.read_bytes().replace(b'"version":"2"', b'"version":"9"'), "version 9"),
        ("bits", FILE.read_bytes()[:-4] + b"\0\0\0?", "other numbers than were written"),
    ):
        file = tmp_path / f"{name}.safetensors"
        if content is not None:
            file.write_bytes(content)
        with pytest.raises(ArtifactError, match=rf"{name}.*version 2, found .*{reason}.*install"):
            load_shipped(attention, file)
    unnamed = ExpertAttention(["naive", "drift"])
    unnamed.names = ("naive",)
    save(unnamed, tmp_path / "names.safetensors")
    with pytest.raises(ArtifactError, match="tokens of other experts than 1"):
        load_shipped(attention, tmp_path / "names.safetensors")
    narrower = ExpertAttention(["naive"])
    narrower.place = torch.nn.Parameter(torch.zeros(2, WIDTH))
    save(narrower, tmp_path / "shape.safetensors")
    with pytest.raises(ArtifactError, match="tensor place of another name or shape"):
        load_shipped(attention, tmp_path / "shape.safetensors")


def test_an_expert_that_they_do_not_know_has_the_mean_token_of_all():
    every = shipped(METHODS).method.weight
    unknown = ExpertAttention(("naive", "drift")).requires_grad_(False)
    unknown.names = ("naive", "next_year")
    load_shipped(unknown)
    found = unknown.method.weight
    torch.testing.assert_close(found, torch.stack([every[0], every.mean(dim=0)]))


def test_a_fit_changes_none_of_them():
    network = make_network(PLAIN, pool=EXPERTS)
    weights = network.experts.attention.state_dict()
    for name, value in shipped(EXPERTS.experts).state_dict().items():
        assert torch.equal(weights[name], value), name
    assert not any(one.requires_grad for one in network.experts.attention.parameters())


@pytest.mark.parametrize("b", [0.0, 5.0])
def test_a_constant_series_stays_where_it_is(b):
    network = make_network(
        PLAIN, pool=EXPERTS.model_copy(update={"experts": ALL, "seasons": (SEASON, 8)})
    )
    network.network_weight.zero_()
    inputs = make_inputs(PLAIN)
    history = torch.full_like(inputs.history, b)
    found = network(with_targets(inputs, history))
    assert (found[..., 4] - b).abs().max() < 1e-9 and (found.diff(dim=-1) > 0).all()
