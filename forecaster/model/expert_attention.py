"""Attention over experts: the experts of a row as a set, read by a transformer that was trained on other tables.

    tokens: one an expert (forecast, errors), one of the row (season, scatter, …), eight of its last 128 steps
        ─▶ 2 layers of self-attention, no positions but those of the steps
        ─▶ of each expert's token: a change of the logarithm of its weight       at eight positions of leads
        ─▶ of the row's token: a correction, a wider or narrower band, its shape  at the same

All changes start at zero: untrained, it is the evidence alone (`Evidence.weights`) with normal bands. A set has
no order, so any experts in any order will do, and one that is missing is one that is masked. Every
number is counted from the center in units of the row, so the whole commutes with y → a·y + b, but for
what `Evidence.has_zero` lets see the 0 of the data, which commutes with a alone.

Source: Vaswani et al. 2017; Lee et al., "Set Transformer", 2019. How the weights were learned: docs/pretraining.md.

Axes: R row · E expert · P position of a lead · J earlier cutoff · N token · D width · Q quantile level ·
K step between neighbouring levels · G patch of recent steps.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import NormalDist
from typing import NamedTuple, get_args

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor, nn

from forecaster.config import Expert
from forecaster.model.attention import MultiHeadAttention
from forecaster.model.evidence import POSITIONS, RECENT, Evidence

LEVELS = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
"""Quantile levels that it was trained for."""
MEDIAN = LEVELS.index(0.5)
METHODS = get_args(Expert)
"""Experts that have a token of their own."""
WIDTH, HEADS, LAYERS = 48, 4, 2
_PATCH = 16  # recent steps in a token
_CUTOFFS = 4  # earlier cutoffs of the features
_WIDENING = 1.25  # of the bands before training: an error is of the past
_MOST_LOGIT, _MOST_CORRECTION, _MOST_WIDENING, _MOST_STEP = 12.0, 2.0, 3.0, 3.0
_TINY = 1e-6


class Tokens(NamedTuple):
    """Features of the tokens of each row; see `expert_features`, `row_features` and `step_features`."""

    experts: Tensor
    """[R, E, _]"""
    row: Tensor
    """[R, _]"""
    steps: Tensor
    """[R, G, _]"""
    available: Tensor
    """[R, E] whether a token may be attended to."""
    observed: Tensor
    """[R, G] whether a patch holds an observed step."""


class Answer(NamedTuple):
    """What attention changes, at each position."""

    logits: Tensor
    """[R, P, E] added to the logarithms of weights."""
    correction: Tensor
    """[R, P] of the center, in `Evidence.spread`."""
    widening: Tensor
    """[R, P] logarithm of a factor of the bands."""
    steps: Tensor
    """[R, P, K] logarithms of factors of the steps between neighbouring quantiles."""


class ExpertAttention(nn.Module):
    """The transformer over the set of experts of a row."""

    def __init__(self, names: Sequence[Expert]):
        super().__init__()
        self.methods = [METHODS.index(name) for name in names]
        experts, row, steps = FEATURES
        self.expert_input = nn.Linear(experts, WIDTH)
        self.row_input = nn.Linear(row, WIDTH)
        self.step_input = nn.Linear(steps, WIDTH)
        self.method = nn.Embedding(len(METHODS), WIDTH)
        self.place = nn.Parameter(torch.zeros(RECENT // _PATCH, WIDTH))
        self.layers = nn.ModuleList(SetLayer() for _ in range(LAYERS))
        self.norm = nn.LayerNorm(WIDTH)
        self.expert_output = _output(POSITIONS)
        self.row_output = _output(POSITIONS * (2 + len(LEVELS) - 1))

    def forward(self, evidence: Evidence) -> Answer:
        """Returns the changes of weights, center and bands."""
        return self.answer(tokens_of(evidence))

    def answer(self, tokens: Tokens) -> Answer:
        """Returns the changes for the features of the tokens."""
        methods = self.method.weight[self.methods]  # [E, D]
        experts = self.expert_input(tokens.experts) + methods
        row = self.row_input(tokens.row)[:, None]
        steps = self.step_input(tokens.steps) + self.place
        attended = torch.cat([row, experts, steps], dim=1)  # [R, N, D]
        of_row = torch.ones_like(tokens.available[:, :1])
        seen = torch.cat([of_row, tokens.available, tokens.observed], dim=1)
        for layer in self.layers:
            attended = layer(attended, seen)
        attended = self.norm(attended)
        count = tokens.experts.shape[1]
        logits = self.expert_output(attended[:, 1 : 1 + count]).mT  # [R, P, E]
        changes = self.row_output(attended[:, 0]).unflatten(1, (POSITIONS, -1))
        return Answer(
            logits=_bounded(logits, _MOST_LOGIT),
            correction=_bounded(changes[..., 0], _MOST_CORRECTION),
            widening=_bounded(changes[..., 1], _MOST_WIDENING),
            steps=_bounded(changes[..., 2:], _MOST_STEP),
        )


class SetLayer(nn.Module):
    """Self-attention and a feed-forward network, each after a norm and added to what it reads."""

    def __init__(self) -> None:
        super().__init__()
        self.attention_norm, self.wide_norm = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.attention = MultiHeadAttention(WIDTH, HEADS)
        self.wide, self.narrow = nn.Linear(WIDTH, 2 * WIDTH), nn.Linear(2 * WIDTH, WIDTH)

    def forward(self, tokens: Float[Tensor, "R N D"], seen: Bool[Tensor, "R N"]) -> Tensor:
        """[R, N, D] → [R, N, D]"""
        normed = self.attention_norm(tokens)
        tokens = tokens + self.attention(normed, normed, seen)
        return tokens + self.narrow(F.gelu(self.wide(self.wide_norm(tokens))))


# From the answer to a forecast


def mixed(
    forecasts: Float[Tensor, "R H E"],
    logits: Float[Tensor, "R #H E"],
) -> Float[Tensor, "R H"]:
    """Returns the mean of forecasts by the softmax of logits."""
    weights = logits.softmax(dim=-1)
    # What is not available has a weight of 0, and may be anything.
    return (weights * forecasts).sum(dim=-1)


def offsets(steps: Float[Tensor, "*B K"]) -> Float[Tensor, "*B Q"]:
    """Returns the quantiles around a median of 0: rising, for each step is positive.

    step between neighbouring levels = that of a normal distribution · e^steps
    """
    lengths = torch.tensor(_normal_steps(), device=steps.device) * steps.exp()
    below, above = lengths[..., :MEDIAN], lengths[..., MEDIAN:]
    # Sums from the median outwards.
    lower = -below.flip(-1).cumsum(dim=-1).flip(-1)
    upper = above.cumsum(dim=-1)
    return torch.cat([lower, torch.zeros_like(lower[..., :1]), upper], dim=-1)


def _normal_steps() -> list[float]:
    quantiles = [NormalDist().inv_cdf(level) for level in LEVELS]
    return [_WIDENING * (b - a) for a, b in zip(quantiles, quantiles[1:], strict=False)]


# Features: each in units of the row, and nearly linear around 0


def tokens_of(evidence: Evidence) -> Tokens:
    """Returns the features of all tokens."""
    center = mixed(evidence.forecasts, evidence.logits[:, None])  # [R, P]
    unit = evidence.unit
    observed = evidence.seen.unflatten(1, (-1, _PATCH)).any(dim=-1)
    return Tokens(
        experts=expert_features(evidence, center, unit),
        row=row_features(evidence, center, unit),
        steps=step_features(evidence, unit),
        available=evidence.available,
        observed=observed,
    )


def expert_features(
    evidence: Evidence, center: Float[Tensor, "R P"], unit: Float[Tensor, " R"]
) -> Float[Tensor, "R E _"]:
    """Returns what is said of each expert; amounts as asinh or log(1 + ·) of units of the row."""
    known = evidence.known[..., None]  # [R, J, P, 1]
    missed = evidence.missed / unit[:, None, None, None]
    size = missed.abs()
    by_position, by_cutoff = known.sum(dim=1).clamp(min=1), known.sum(dim=2).clamp(min=1)
    cells = known.sum(dim=(1, 2)).clamp(min=1)  # [R, 1]
    distance = (evidence.forecasts - center[..., None]) / unit[:, None, None]
    worse = evidence.worse.clamp(max=1e6)
    features = [
        torch.asinh(distance),  # [R, P, E] forecast less the center
        torch.log1p(size.sum(dim=1) / by_position),  # [R, P, E] error at each position
        torch.asinh(missed.sum(dim=1) / by_position),  # [R, P, E] bias at each position
        torch.log1p(size.sum(dim=2) / by_cutoff),  # [R, J, E] error at each cutoff
        torch.asinh(missed.sum(dim=2) / by_cutoff),  # [R, J, E] bias at each cutoff
        torch.stack(
            [
                torch.log1p(size.sum(dim=(1, 2)) / cells),  # error over all
                torch.asinh(missed.sum(dim=(1, 2)) / cells),  # bias over all
                torch.log1p(worse),  # error over the least
                torch.log1p(worse) * evidence.trust[:, None],  # the same where it is known well
            ],
            dim=1,
        ),
    ]
    joined = torch.cat(features, dim=1).mT  # [R, E, _]
    # What is not available says nothing, whatever it holds.
    return torch.where(evidence.available[..., None], joined, 0.0)


def row_features(
    evidence: Evidence, center: Float[Tensor, "R P"], unit: Float[Tensor, " R"]
) -> Float[Tensor, "R _"]:
    """Returns what is said of the row and of its leads."""
    history, season, second, horizon, spacing = evidence.steps.unbind(dim=1)
    has_zero, counts = evidence.has_zero.float(), evidence.counts.float()
    weights = evidence.weights[:, None]  # [R, 1, E]
    apart = torch.where(evidence.available[:, None], evidence.forecasts - center[..., None], 0.0)
    disagreement = (weights * apart.square()).sum(dim=-1).sqrt()  # [R, P]
    recent, changes, seen = evidence.recent, evidence.changes, evidence.seen
    last = recent[:, -1]
    differences = recent[:, 1:] - recent[:, :-1]
    both = (seen[:, 1:] & seen[:, :-1]).float()
    differences = differences * both
    pairs = both.sum(dim=1).clamp(min=1)
    product = (differences[:, 1:] * differences[:, :-1]).sum(dim=1)
    square = differences.square().sum(dim=1)
    unchanged = ((differences == 0) * both).sum(dim=1) / pairs
    zeros = ((recent - evidence.zero[:, None]).abs() <= _TINY) & seen
    share_of_zeros = zeros.sum(dim=1) / seen.sum(dim=1).clamp(min=1)
    each = [
        torch.log1p(history) / 4,
        torch.log1p(season) / 4,
        torch.log1p(second) / 4,
        torch.log1p(horizon) / 4,
        torch.log1p(history / season) / 4,  # seasons of history
        torch.log1p(horizon / season) / 4,  # seasons ahead
        torch.log1p(spacing / horizon),  # how far apart earlier cutoffs are
        evidence.cutoffs / _CUTOFFS,
        torch.log1p(evidence.scatter / unit),
        torch.log1p(evidence.least[:, 0] / unit),
        torch.log1p(differences.abs().sum(dim=1) / pairs / unit),  # mean step
        product / (square + _TINY),  # autocorrelation of steps
        unchanged,
        _log_ratio(_last_and_earlier(differences)),  # steps of late, over those before
        _log_ratio(_last_and_earlier(changes)),  # seasonal changes of late, over those before
        counts,
        has_zero,
        share_of_zeros * has_zero,
    ]
    of_cutoffs = evidence.known.mean(dim=2)  # [R, J] which are known
    of_positions = [
        torch.log1p(disagreement / unit[:, None]),
        torch.asinh((center - last[:, None]) / unit[:, None]),
        torch.asinh((center - evidence.zero[:, None]) / unit[:, None]) * has_zero[:, None],
        evidence.width.log(),
    ]
    return torch.cat([torch.stack(each, dim=1), of_cutoffs, *of_positions], dim=1)


def step_features(evidence: Evidence, unit: Float[Tensor, " R"]) -> Float[Tensor, "R G _"]:
    """Returns what is said of each patch of recent steps: values, seasonal changes, which were observed."""
    recent, seen = evidence.recent, evidence.seen
    distance = torch.where(seen, (recent - recent[:, -1:]) / unit[:, None], 0.0)
    parts = (torch.asinh(distance), torch.asinh(evidence.changes / unit[:, None]), seen.float())
    patched = [part.unflatten(1, (-1, _PATCH)) for part in parts]  # [R, G, 16] each
    return torch.cat(patched, dim=-1)


FEATURES = (3 * POSITIONS + 2 * _CUTOFFS + 4, 18 + _CUTOFFS + 4 * POSITIONS, 3 * _PATCH)
"""Numbers of an expert's token, of the row's, and of a patch's."""


def _last_and_earlier(steps: Float[Tensor, "R W"]) -> tuple[Tensor, Tensor]:
    """Mean size of the last eighth of the steps, and of those before."""
    late = steps.shape[1] // 8
    return steps[:, -late:].abs().mean(dim=1), steps[:, :-late].abs().mean(dim=1)


def _log_ratio(pair: tuple[Tensor, Tensor]) -> Tensor:
    late, early = pair
    return ((late + _TINY) / (early + _TINY)).log().clamp(-4, 4)


def _bounded(change: Tensor, most: float) -> Tensor:
    """The change itself near 0, and never more than `most`."""
    return most * torch.tanh(change / most)


def _output(size: int) -> nn.Sequential:
    """Two maps, the last of them 0: no change before training."""
    last = nn.Linear(WIDTH, size)
    nn.init.zeros_(last.weight)
    nn.init.zeros_(last.bias)
    return nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.GELU(), last)
