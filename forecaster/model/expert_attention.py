"""Attention over experts: the experts of a row as a set, read by a transformer that was trained on other tables.

    tokens: one an expert (errors, forecast), one of the row (season, scatter, …), eight of its last 128 steps
        ─▶ 2 layers of self-attention, no positions but those of the steps
        ─▶ of each expert's token: a change of the logarithm of its weight, and slopes of what its lead shows
        ─▶ of the row's token: a correction, a wider or narrower band, its shape, and slopes

Changes are made at eight positions of leads and interpolated; slopes multiply what each lead shows by itself, so
that a lead depends on no covariate that is known for a later one. All changes start at zero: untrained, it is the
evidence alone (`Evidence.weights`) with normal bands. A set has no order, so any experts in any order will
do, and one that is missing is one that is masked. Every number is counted from the center in units of the row,
so the whole commutes with y → a·y + b, but for counts, of which the 0 of the data is seen: with a alone.

Source: Vaswani et al. 2017; Lee et al., "Set Transformer", 2019. How the weights were learned: docs/pretraining.md.

Axes: R row · E expert · P position of a lead · H lead · J earlier cutoff · N token · D width · Q quantile level ·
K step between neighbouring levels · G patch of recent steps · S slope.
"""

from __future__ import annotations

import copy
import itertools
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
METHODS: tuple[Expert, ...] = get_args(Expert)
"""All experts there are; each has a token of its own."""
SOLVED: frozenset[Expert] = frozenset({"linear", "arx"})
"""Experts that are solved on the rows of a table, and may read covariates."""
BRIEF = 8
"""Steps that are a short history where there is no season."""
WIDTH, HEADS, LAYERS = 48, 4, 2
_PATCH = 16  # recent steps in a token
_CUTOFFS = 4  # earlier cutoffs of the features
_WIDENING = 1.25  # of the bands before training: an error is of the past
_MOST_LOGIT, _MOST_CORRECTION, _MOST_WIDENING, _MOST_STEP, _MOST_SLOPE = 12.0, 2.0, 3.0, 3.0, 2.0
_SLOPES, _LEAD_SLOPES = 4, 5
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
    brief: Tensor
    """[R] whether the history is at most a season."""


class Attended(NamedTuple):
    """What attention makes of the tokens; `ExpertAttention.read` maps it to changes."""

    experts: Tensor
    """[R, E, D]"""
    row: Tensor
    """[R, D]"""
    brief: Tensor
    """[R] as of `Tokens`."""


class Answer(NamedTuple):
    """What attention changes."""

    logits: Tensor
    """[R, P, E] added to the logarithms of weights, at each position."""
    slopes: Tensor
    """[R, E, S] of what a lead shows of an expert (`Lead`), added to the same."""
    correction: Tensor
    """[R, P] of the center, in `Evidence.spread`."""
    widening: Tensor
    """[R, P] logarithm of a factor of the bands."""
    steps: Tensor
    """[R, P, K] logarithms of factors of the steps between neighbouring quantiles."""
    lead_slopes: Tensor
    """[R, 5] of `Lead.gap` and of its size in the correction; of its size, of the disagreement and of the width of
    the phase in the bands."""


class Lead(NamedTuple):
    """What a lead shows by itself: experts that read known covariates see those of no later lead."""

    center: Tensor
    """[R, H] mean of the forecasts by the weights of the evidence, scaled units."""
    distance: Tensor
    """[R, H, E] of each forecast from the center: asinh of units of the row."""
    gap: Tensor
    """[R, H] the same of the experts that are solved on the table; 0 where there are none."""
    disagreement: Tensor
    """[R, H] spread of the forecasts by these weights: log(1 + ·) of units of the row."""


class ExpertAttention(nn.Module):
    """The transformer over the set of experts of a row."""

    def __init__(self, names: Sequence[Expert], tunable: bool = False):
        """Takes the experts; `tunable`: a fit may tune the last two maps of histories of more than a season."""
        super().__init__()
        self.names = tuple(names)
        self.solved = nn.Buffer(torch.tensor([name in SOLVED for name in names]), persistent=False)
        """[E] whether an expert is solved on the table, and may read what is known in advance."""
        experts, row, steps = FEATURES
        self.expert_input = nn.Linear(experts, WIDTH)
        self.row_input = nn.Linear(row, WIDTH)
        self.step_input = nn.Linear(steps, WIDTH)
        self.method = nn.Embedding(len(self.names), WIDTH)
        self.place = nn.Parameter(torch.zeros(RECENT // _PATCH, WIDTH))
        self.layers = nn.ModuleList(SetLayer() for _ in range(LAYERS))
        self.norm = nn.LayerNorm(WIDTH)
        self.expert_output = _output(POSITIONS + _SLOPES)
        self.row_output = _output(POSITIONS * (2 + len(LEVELS) - 1) + _LEAD_SLOPES)
        self.tuned = nn.ModuleList()
        """Maps of experts and of the row in place of the last ones; a table says nothing of histories that are
        shorter than its own (tuned too, the 80 % band of two rows of history held 57 %, as it is 66 %)."""
        if tunable:
            self.tuned.extend(copy.deepcopy(one) for one in self._last_maps)

    def forward(self, evidence: Evidence) -> Answer:
        """Returns the changes of weights, center and bands."""
        return self.answer(tokens_of(evidence, self.solved))

    def answer(self, tokens: Tokens) -> Answer:
        """Returns the same of the features of all tokens."""
        return self.read(self.attended(tokens))

    def attended(self, tokens: Tokens) -> Attended:
        """Returns what attention makes of the features of all tokens: all but the last two maps."""
        experts = self.expert_input(tokens.experts) + self.method.weight  # [R, E, D] + [E, D]
        row = self.row_input(tokens.row)[:, None]
        steps = self.step_input(tokens.steps) + self.place
        attended = torch.cat([row, experts, steps], dim=1)  # [R, N, D]
        of_row = torch.ones_like(tokens.available[:, :1])
        seen = torch.cat([of_row, tokens.available, tokens.observed], dim=1)
        for layer in self.layers:
            attended = layer(attended, seen)
        attended = self.norm(attended)
        return Attended(
            experts=self.expert_output[:-1](attended[:, 1 : 1 + len(self.names)]),
            row=self.row_output[:-1](attended[:, 0]),
            brief=tokens.brief,
        )

    @property
    def _last_maps(self) -> tuple[nn.Module, nn.Module]:
        return self.expert_output[-1], self.row_output[-1]

    def reset_tuned(self) -> None:
        """Puts the last maps in the place of the tuned ones."""
        for tuned, own in zip(self.tuned, self._last_maps, strict=False):
            tuned.load_state_dict(own.state_dict())

    def read(self, attended: Attended) -> Answer:
        """Returns the changes: the last maps, bounded."""
        parts = (attended.experts, attended.row)
        of_experts, of_row = (own(part) for own, part in zip(self._last_maps, parts, strict=True))
        if self.tuned:
            brief = attended.brief[:, None]
            tuned, tuned_row = (own(part) for own, part in zip(self.tuned, parts, strict=True))
            of_experts = torch.where(brief[..., None], of_experts, tuned)  # [R, E, P + S]
            of_row = torch.where(brief, of_row, tuned_row)
        changes = of_row[:, :-_LEAD_SLOPES].unflatten(1, (POSITIONS, -1))
        return Answer(
            logits=_bounded(of_experts[..., :POSITIONS], _MOST_LOGIT).mT,
            slopes=_bounded(of_experts[..., POSITIONS:], _MOST_SLOPE),
            correction=_bounded(changes[..., 0], _MOST_CORRECTION),
            widening=_bounded(changes[..., 1], _MOST_WIDENING),
            steps=_bounded(changes[..., 2:], _MOST_STEP),
            lead_slopes=_bounded(of_row[:, -_LEAD_SLOPES:], _MOST_SLOPE),
        )

    def quantiles(
        self,
        evidence: Evidence,
        forecasts: Float[Tensor, "R H E"],
        width: Float[Tensor, "R H"],
        interpolated: Float[Tensor, "H P"],
        corrected: bool = True,
    ) -> Float[Tensor, "R H Q"]:
        """Returns the quantiles of each lead at `LEVELS`, scaled units.

        Args:
            evidence: what the row shows.
            forecasts: of the experts.
            width: of the bands at the phase of each lead.
            interpolated: weights of the positions at each lead.
            corrected: whether the center is corrected; else it is the weighted mean itself.
        """
        answer, lead = self(evidence), self.lead(evidence, forecasts)
        return self.answered(evidence, answer, lead, forecasts, width, interpolated, corrected)

    def answered(
        self,
        evidence: Evidence,
        answer: Answer,
        lead: Lead,
        forecasts: Float[Tensor, "R H E"],
        width: Float[Tensor, "R H"],
        interpolated: Float[Tensor, "H P"],
        corrected: bool = True,
    ) -> Float[Tensor, "R H Q"]:
        """Returns the same of an answer of attention, and of what each lead shows.

        center   = weighted mean of the forecasts + spread · correction
        quantile = center + unit · width · widening · quantile around a median of 0
        """
        logits = self.logits(evidence, answer, lead, interpolated)
        # From the center on: weights that sum to 1 but for rounding would move a constant.
        weights = logits.softmax(dim=-1)
        center = lead.center + (weights * (forecasts - lead.center[..., None])).sum(dim=-1)
        of_size, of_disagreement, of_width = answer.lead_slopes[:, 2:].mT[..., None]
        size = lead.gap.abs()
        if corrected:
            center = center + self.correction(evidence, answer, lead, interpolated)
        widening = answer.widening @ interpolated.T  # [R, P] @ [P, H]
        widening = widening + of_size * size + of_disagreement * lead.disagreement
        widening = widening + of_width * width.log()
        unit = evidence.unit[:, None] * width * widening.clamp(max=_MOST_WIDENING).exp()
        around = offsets(interpolated @ answer.steps)
        return center[..., None] + unit[..., None] * around

    def correction(
        self,
        evidence: Evidence,
        answer: Answer,
        lead: Lead,
        interpolated: Float[Tensor, "H P"],
    ) -> Float[Tensor, "R H"]:
        """Returns what is added to the weighted mean of the forecasts, scaled units."""
        by_gap, by_size = answer.lead_slopes[:, :2].mT[..., None]
        correction = answer.correction @ interpolated.T + by_gap * lead.gap + by_size * lead.gap.abs()
        # Before rows were turned upside down in training it learned the drift of the tables (hospital +14 % CRPS).
        return torch.where(is_brief(evidence), 0.0, evidence.spread)[:, None] * correction

    def logits(
        self,
        evidence: Evidence,
        answer: Answer,
        lead: Lead,
        interpolated: Float[Tensor, "H P"],
    ) -> Float[Tensor, "R H E"]:
        """Returns the logarithms of the weights of the experts at each lead, but for a constant."""
        changes = interpolated @ answer.logits  # [H, P] @ [R, P, E]
        of_distance, of_size, of_gap, of_disagreement = answer.slopes[:, None].unbind(
            dim=-1
        )  # [R, 1, E]
        changes = changes + of_distance * lead.distance + of_size * lead.distance.abs()
        changes = (
            changes + of_gap * lead.gap[..., None] + of_disagreement * lead.disagreement[..., None]
        )
        return evidence.logits[:, None] + changes.clamp(-_MOST_LOGIT, _MOST_LOGIT)

    def lead(self, evidence: Evidence, forecasts: Float[Tensor, "R H E"]) -> Lead:
        """Returns what each lead shows by itself."""
        weights = evidence.weights[:, None]  # [R, 1, E]
        center = mixed(forecasts, weights)
        away = forecasts - center[..., None]
        away = torch.where(evidence.available[:, None], away, 0.0) / evidence.unit[:, None, None]
        distance = torch.asinh(away)
        solved = (self.solved & evidence.available)[:, None]
        gap = (distance * solved).sum(dim=-1) / solved.sum(dim=-1).clamp(min=1)
        # Not 0, where a root has no slope.
        spread = ((weights * away.square()).sum(dim=-1) + _TINY**2).sqrt()
        return Lead(center, distance, gap, torch.log1p(spread))


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


def mixed(forecasts: Float[Tensor, "R H E"], weights: Float[Tensor, "R *H E"]) -> Float[Tensor, "R H"]:
    """Returns the weighted mean of forecasts."""
    # From one of them on: experts that agree have their mean exactly.
    first = forecasts[..., :1]
    return (weights * (forecasts - first)).sum(dim=-1) + first[..., 0]


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
    return [_WIDENING * (b - a) for a, b in itertools.pairwise(quantiles)]


# Features: each in units of the row, and nearly linear around 0


def tokens_of(evidence: Evidence, solved: Bool[Tensor, " E"]) -> Tokens:
    """Returns the features of all tokens, in which the forecasts of solved experts are left out.

    All leads share the tokens, and a solved expert may read what is known of a later lead.
    """
    of_history = evidence.available & ~solved
    logits = evidence.logits.masked_fill(~of_history, -torch.inf)
    some = of_history.any(dim=1, keepdim=True)
    weights = torch.where(some, logits, 0.0).softmax(dim=1)[:, None]  # [R, 1, E]
    last = evidence.recent[:, -1:]
    center = torch.where(some, mixed(evidence.forecasts, weights), last)  # [R, P]
    away = torch.where(of_history[:, None], evidence.forecasts - center[..., None], 0.0)
    observed = evidence.seen.unflatten(1, (-1, _PATCH)).any(dim=-1)
    return Tokens(
        experts=expert_features(evidence, away),
        row=row_features(evidence, away, center, weights),
        steps=step_features(evidence),
        available=evidence.available,
        observed=observed,
        brief=is_brief(evidence),
    )


def is_brief(evidence: Evidence) -> Bool[Tensor, " R"]:
    """Returns whether the history is at most a season, which shows no shape of its values."""
    length, season, *_ = evidence.steps.unbind(dim=1)
    return length <= season.clamp(min=BRIEF)


def expert_features(evidence: Evidence, away: Float[Tensor, "R P E"]) -> Float[Tensor, "R E _"]:
    """Returns what is said of each expert; amounts as asinh or log(1 + ·) of units of the row."""
    unit = evidence.unit
    known = evidence.known[..., None]  # [R, J, P, 1]
    missed = evidence.missed / unit[:, None, None, None]
    size = missed.abs()
    by_position, by_cutoff = known.sum(dim=1).clamp(min=1), known.sum(dim=2).clamp(min=1)
    cells = known.sum(dim=(1, 2)).clamp(min=1)  # [R, 1]
    worse = evidence.worse.clamp(max=1e6)
    features = [
        torch.asinh(away / unit[:, None, None]),  # [R, P, E] forecast less the center
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
    evidence: Evidence,
    away: Float[Tensor, "R P E"],
    center: Float[Tensor, "R P"],
    weights: Float[Tensor, "R 1 E"],
) -> Float[Tensor, "R _"]:
    """Returns what is said of the row and of its leads."""
    unit = evidence.unit
    history, season, second, horizon, spacing = evidence.steps.unbind(dim=1)
    counts = evidence.counts.float()
    disagreement = ((weights * away.square()).sum(dim=-1) + _TINY**2).sqrt()  # [R, P]
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
        share_of_zeros * counts,
    ]
    of_cutoffs = evidence.known.mean(dim=2)  # [R, J] which are known
    of_positions = [
        torch.log1p(disagreement / unit[:, None]),
        torch.asinh((center - last[:, None]) / unit[:, None]),
        torch.asinh((center - evidence.zero[:, None]) / unit[:, None]) * counts[:, None],
        evidence.width.log(),
        _log_ratio((evidence.variogram, unit[:, None])),  # how far values go in so many steps
    ]
    return torch.cat([torch.stack(each, dim=1), of_cutoffs, *of_positions], dim=1)


def step_features(evidence: Evidence) -> Float[Tensor, "R G _"]:
    """Returns what is said of each patch of recent steps: values, seasonal changes, which were observed."""
    unit = evidence.unit
    recent, seen = evidence.recent, evidence.seen
    distance = torch.where(seen, (recent - recent[:, -1:]) / unit[:, None], 0.0)
    parts = (torch.asinh(distance), torch.asinh(evidence.changes / unit[:, None]), seen.float())
    patched = [part.unflatten(1, (-1, _PATCH)) for part in parts]  # [R, G, 16] each
    return torch.cat(patched, dim=-1)


FEATURES = (3 * POSITIONS + 2 * _CUTOFFS + 4, 17 + _CUTOFFS + 5 * POSITIONS, 3 * _PATCH)
"""Numbers of an expert's token, of the row's, and of a patch's."""


def _last_and_earlier(steps: Float[Tensor, "R W"]) -> tuple[Tensor, Tensor]:
    """Mean size of the last eighth of the steps, and of those before."""
    late = steps.shape[1] // 8
    return steps[:, -late:].abs().mean(dim=1), steps[:, :-late].abs().mean(dim=1)


def _log_ratio(pair: tuple[Tensor, Tensor]) -> Tensor:
    one, other = pair
    return ((one + _TINY) / (other + _TINY)).log().clamp(-4, 4)


def _bounded(change: Tensor, most: float) -> Tensor:
    """The change itself near 0, and never more than `most`."""
    return most * torch.tanh(change / most)


def _output(size: int) -> nn.Sequential:
    """Two maps, the last of them 0: no change before training."""
    last = nn.Linear(WIDTH, size)
    nn.init.zeros_(last.weight)
    nn.init.zeros_(last.bias)
    return nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.GELU(), last)
