"""Learns classes: one per series, or one per step (`resolve_classes`, `fit_classes`).

    resolve_classes   label column → classes → context, patch → folds
    fit_classes       a network per fold → random kernels → temperatures and network weight
                      by what each part predicts for series that it has not seen

Folds hold whole series, or stretches of consecutive steps, each class spread evenly over them.

Axes: U unit (series, or chunk of one) · L step · G class · F fold.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy.typing import NDArray
from torch import Tensor

from forecaster.config import FORECAST_SETTINGS, Config, Plan, setting
from forecaster.errors import ConfigError, DataError
from forecaster.evaluation.class_scores import KERNELS, MAJORITY, NETWORK, class_scores
from forecaster.evaluation.comparison import MODEL
from forecaster.fitting.context import NO_CONTEXT, TrainingContext, training_ranks
from forecaster.fitting.members import curves_of, of_member
from forecaster.fitting.moments import learn_channel_scales, learn_scales
from forecaster.fitting.plan import settled_plan
from forecaster.fitting.versions import versions
from forecaster.forecast.artifact import Artifact, shape_of
from forecaster.forecast.classification import series_hashes
from forecaster.model.class_network import ClassEnsemble, ClassNetwork
from forecaster.model.size import check_memory, check_work
from forecaster.panel.panel import Panel
from forecaster.windows.index import Int64, WindowIndex, even_draw
from forecaster.windows.split import Split
from forecaster.windows.store import WindowStore
from forecaster.windows.streams import WindowSequence

FOLDS = 5
MANY = 2_000
"""Units from which one fold validates a single network."""
WINDOW = 128
"""Steps of a window whose steps have a class each, where nothing else is declared."""
_OVERLAPPING = 8
"""Windows of training steps that hold each of them."""
_TOKENS, _FEWEST, _TOGETHER = 32, 8, 96
"""Tokens of a channel at most, at least, and of all channels: attention compares them all."""
_KERNEL = 3
_STRETCHES = 20
"""Of all series together, at least, where each step has a class: folds hold whole ones."""
_STEPS, _BATCH, _WIDTH = 200, 32, 64
_MOST_CLASSES, _FEW_CLASSES = 200, 10
_NETWORK_WEIGHTS = tuple(weight / 10 for weight in range(11))
_CLEAR = 1.0  # standard errors of the log loss: closer weights count as equal
_MEASURED_BATCH, _SAMPLE = 256, 64


@dataclass(frozen=True)
class Folds:
    """Units of training and the fold that each is held out in."""

    panel: Panel
    """A series per unit: the table's series, or stretches of them."""
    fold: Int64
    """[U] 0 … F − 1; −1 = trains in every fold."""
    code: NDArray[np.int32]
    """[U] rarest class of each unit, from 1; 0 = none."""
    length: int | None
    """Steps of a window of units that have a class per step; None = each has one class."""

    @property
    def count(self) -> int:
        """F."""
        return int(self.fold.max()) + 1

    def index(self, chosen: NDArray[np.bool_], stride: int | None = None) -> WindowIndex:
        """Returns windows of chosen units: of a whole series each or, `stride` apart, of steps.

        They are counted from the last row; `stride` None covers each step once.
        """
        begin, last = self.panel.indptr[:-1], self.panel.indptr[1:] - 1
        if self.length is None:
            return WindowIndex(last, chosen.astype(np.int64), 1, 1)
        every = stride or self.length
        # The oldest window may reach before the unit's first row only where each step is to be covered.
        reach = begin if stride is None else np.minimum(last, begin + self.length - 1)
        count = (last - reach) // every + 1
        return WindowIndex(last - (count - 1) * every, np.where(chosen, count, 0), every, 1)

    def split(self, number: int) -> Split:
        """Returns the windows of a fold; where it is the only one, held-out windows decide when to stop."""
        held, usable = self.fold == number, self.code > 0
        begin, end = self.panel.indptr[:-1], self.panel.indptr[1:]
        stride = None if self.length is None else max(1, self.length // _OVERLAPPING)
        validation = self.index(held & usable)
        numbers = np.arange(len(validation) if self.count == 1 else 0)
        latest = int(self.panel.time.max())
        return Split(
            train=self.index(~held & usable, stride),
            validation=validation,
            validation_windows=numbers,
            calibration_windows=numbers[:0],
            split=latest,
            end=latest,
            train_end=np.where(held, begin, end),
        )


def resolve_classes(panel: Panel, config: Config) -> tuple[Plan, Folds]:
    """Returns the plan of a classifier, all numbers settled, and its folds.

    Raises:
        ConfigError: settings do not go with a class column.
        DataError: classes are missing, of one class, or look continuous; or some series has two.
    """
    _check_settings(config)
    per_step = _check_classes(panel)
    schema, model, fit = panel.schema, config.model, config.fit
    longest = int(np.diff(panel.indptr).max())
    length = model.context_length or max(2, min(longest, WINDOW) if per_step else longest)
    tokens = max(_FEWEST, min(_TOKENS, _TOGETHER // panel.n_channels))
    patch = model.patch or max(1, -(-length // tokens))
    folds = _folds(panel, length, per_step)
    columns = panel.n_channels + len(schema.past) + len(schema.known_and_holidays)
    channel_attention = model.channel_attention or columns > 1
    model_plan = model.settled(
        head="step_classes" if per_step else "classes",
        patch=patch,
        decoder_patch=1,
        width=model.width or _WIDTH,
        context_length=length,
        attention_length=length,
        conv_kernel=model.conv_kernel or _KERNEL,
        channel_attention=channel_attention,
    )
    channels_together = panel.n_channels if channel_attention else 1
    fit_plan = fit.settled(
        steps=fit.steps or _STEPS,
        batch_size=fit.batch_size or _BATCH * channels_together,
        ensemble_size=folds.count,
    )
    plan = settled_plan(panel, config, model_plan, fit_plan)
    check_memory(plan.model, shape_of(panel, 0))
    check_work(plan.model, 1, plan.fit.ensemble_size)
    return plan, folds


def fit_classes(
    panel: Panel, plan: Plan, folds: Folds, context: TrainingContext = NO_CONTEXT
) -> Artifact[ClassEnsemble]:
    """Returns the artifact that learned the classes of a panel.

    Raises:
        FitError: the loss is not finite; names the series.
    """
    from forecaster.fitting.train import train  # loads Lightning, as a learner does
    from forecaster.model.learner import Learner

    shape = shape_of(panel, 0)
    store = WindowStore(folds.panel, plan.model, 0)
    with training_ranks(folds.panel, plan, context) as (plan, context):
        networks, curves, steps = [], [], []
        held_out: list[tuple[Int64, Tensor, Tensor]] = []
        for number in range(folds.count):
            split = folds.split(number)
            own = of_member(plan, number)
            name = f"fold-{number:02d}" if number else ""
            torch.manual_seed(own.fit.seed)
            network = ClassNetwork(plan.model, shape)
            learn_scales(network, folds.panel, split.train_end)
            network.class_weights.copy_(_class_weights(store, split.train, shape.classes))
            learner = Learner(
                network, own.fit, folds.panel.series_names, name, context.bf16, context.compiled
            )
            best = train(learner, store, split, own, context)
            done = learner.average.eval()
            networks.append(done)
            steps.append(best.step)
            curves.append((name, learner.curves))
            held_out += _logits(done, store, split.validation)
        ensemble = ClassEnsemble(networks).eval().requires_grad_(False)
        with context.reporter.stage("random kernels, temperatures and network weight"):
            found = _settle(ensemble, store, folds, held_out)
    # Folds follow from the table alone: models of the same one are compared on the same series.
    found["validation"]["cutoffs"] = panel.fingerprint()[:16]
    found |= {
        "steps": plan.fit.steps,
        "best_step": steps[0],
        "curves": curves_of(curves),
        "network_weight": float(ensemble.network_weight),
    }
    return Artifact(
        schema=panel.schema,
        plan=plan,
        shape=shape,
        ensemble=ensemble,
        trained_until=int(panel.time.max()),
        data=panel.name,
        fingerprint=panel.fingerprint(),
        series_hashes=series_hashes(panel),
        metrics=found,
        versions=versions(),
    )


def _check_settings(config: Config) -> None:
    """Refuses what only forecasts have."""
    odd = [] if config.horizon is None else [f"horizon {config.horizon}"]
    usual = Config()
    for path in FORECAST_SETTINGS:
        if (value := setting(config, path)) != setting(usual, path):
            odd.append(f"{path.partition('.')[2]} {value}")
    if odd:
        raise ConfigError(
            f"{', '.join(odd)}: expected none with --label {config.data.label}, which trains a "
            "classifier instead of a forecaster; leave it out, or leave out --label"
        )


def _check_classes(panel: Panel) -> bool:
    """Returns whether classes change within series, once it is certain what they are."""
    name, label = panel.name, panel.schema.label
    assert label is not None
    words, code = panel.schema.categories[label], panel.codes[:, -1]
    where = f"{name}: label '{label}'"
    if len(words) < 2:
        raise DataError(
            f"{where}: expected at least two classes, found {', '.join(words) or 'no class'}; add series "
            "of other classes"
        )
    real = code > 0
    pairs = np.unique(np.stack([panel.owner[real], code[real]]), axis=1)
    kinds = np.bincount(pairs[0], minlength=panel.n_series)
    several, alone = np.flatnonzero(kinds > 1), kinds == 1
    units = int(real.sum()) if len(several) else int(alone.sum())
    if len(words) > _MOST_CLASSES or 2 * len(words) > units:
        numbers = len(words) > _FEW_CLASSES and all(_is_number(word) for word in words)
        advice = f"; to forecast numbers pass --target {label}" if numbers else ""
        raise DataError(
            f"{where}: expected classes that repeat, at most {_MOST_CLASSES}, found {len(words):,} "
            f"different {'numbers, which look continuous' if numbers else 'words'}, in {units:,} "
            f"{'rows' if len(several) else 'series'}{advice}"
        )
    settled = np.unique(pairs[1][alone[pairs[0]]])
    if 0 < 2 * len(several) < panel.n_series and len(settled) > 1:
        first = int(several[0])
        found = [words[own - 1] for own in pairs[1][pairs[0] == first]]
        raise DataError(
            f"{where}: changes within {len(several):,} of {panel.n_series:,} series (the first, "
            f"'{panel.series_names[first]}', has {' and '.join(found[:3])}), the others have one each; expected "
            "one class per series, or a class per step: correct those, or leave those series out"
        )
    return bool(len(several))


def _is_number(word: str) -> bool:
    try:
        float(word)
    except ValueError:
        return False
    return True


def _folds(panel: Panel, length: int, per_step: bool) -> Folds:
    """Returns series, or stretches of them, each dealt to a fold so that classes are spread evenly."""
    if per_step and panel.n_series < _STRETCHES:
        panel = _stretches(panel, length)
    classes, units = len(panel.schema.categories[panel.schema.label or ""]), panel.n_series
    cells = panel.owner * (classes + 1) + np.maximum(panel.codes[:, -1], 0)
    count = np.bincount(cells, minlength=units * (classes + 1)).reshape(units, -1)[:, 1:]
    # The rarest class of a unit stands for it: there the folds have to be even.
    rank = np.where(count > 0, count.sum(axis=0), np.inf)
    code = np.where(count.any(axis=1), rank.argmin(axis=1) + 1, 0)
    number = max(2, min(FOLDS, int((code > 0).sum())))
    fold, place = np.full(units, -1), 0
    order = np.random.default_rng(0).permutation(units)
    for kind in range(1, classes + 1):
        own = order[code[order] == kind]
        fold[own] = (place + np.arange(len(own))) % number
        place += len(own)
    if units >= MANY:  # one network, validated by a fifth of the units
        fold = np.where(fold > 0, -1, fold)
    return Folds(panel, fold, code.astype(np.int32), length if per_step else None)


def _stretches(panel: Panel, length: int) -> Panel:
    """Returns the panel with a series per stretch of consecutive rows, none shorter than a window."""
    rows = np.diff(panel.indptr)
    each = np.clip(-(-_STRETCHES * rows // max(1, panel.n_rows)), 1, np.maximum(1, rows // length))
    owner = np.repeat(np.arange(panel.n_series), each)
    place = np.arange(len(owner)) - np.repeat(np.cumsum(each) - each, each)
    begin = panel.indptr[owner] + place * rows[owner] // each[owner]
    return replace(
        panel,
        keys=panel.keys[owner] if panel.keys.width else panel.keys,
        indptr=np.append(begin, panel.n_rows).astype(np.int64),
        static=panel.static[owner],
        static_codes=panel.static_codes[owner],
    )


def _class_weights(store: WindowStore, index: WindowIndex, classes: int) -> Float[Tensor, " G"]:
    """Returns weights of the loss, 1/√frequency, whose mean over the samples is 1."""
    count = torch.zeros(classes)
    for batch in WindowSequence(store, index, np.arange(len(index)), _MEASURED_BATCH):
        count += torch.bincount(batch.target.clamp(min=0).flatten(), minlength=classes + 1)[1:]
    share = count.clamp(min=1) / count.sum()
    return share.rsqrt() / (share.sqrt().sum())


@torch.no_grad()
def _logits(
    network: ClassNetwork, store: WindowStore, index: WindowIndex
) -> Iterator[tuple[Int64, Tensor, Tensor]]:
    """Yields the units [B], the logits [B, *L, G] and the codes [B, *L] of all windows of an index."""
    for batch in WindowSequence(store, index, np.arange(len(index)), _MEASURED_BATCH):
        code = batch.target if network.per_step else batch.target.amax(dim=1)
        yield batch.series.numpy(), network(batch.inputs), code


@torch.no_grad()
def _settle(
    ensemble: ClassEnsemble,
    store: WindowStore,
    folds: Folds,
    held_out: list[tuple[Int64, Tensor, Tensor]],
) -> dict[str, Any]:
    """Solves the random kernels, and sets temperatures and network weight, in place; returns scores.

    All numbers here are of series that a part has not learned from.
    """
    learn_channel_scales(ensemble.scale.scaler, folds.panel)
    unit = np.concatenate([part[0] for part in held_out])
    logits = torch.cat([part[1] for part in held_out]).flatten(0, -2)
    code = torch.cat([part[2] for part in held_out]).flatten()
    logits, known = logits[code > 0], code[code > 0] - 1
    ensemble.temperatures[0] = _temperature(logits, known)
    found = {NETWORK: (logits / ensemble.temperatures[0]).softmax(dim=-1)}
    scores = _solve_kernels(ensemble, store, folds, unit)[: len(known)]
    ensemble.temperatures[1] = _temperature(scores, known)
    found[KERNELS] = (scores / ensemble.temperatures[1]).softmax(dim=-1)
    ensemble.network_weight.fill_(_network_weight(found[NETWORK], found[KERNELS], known))
    found = {MODEL: torch.lerp(found[KERNELS], found[NETWORK], ensemble.network_weight)} | found
    share = torch.bincount(known, minlength=logits.shape[-1]) / len(known)
    ensemble.class_share.copy_(share)
    found[MAJORITY] = share.expand_as(logits)
    truth = known.numpy() + 1
    scores_of = {name: class_scores(one.double().numpy(), truth) for name, one in found.items()}
    return {"validation": {"windows": len(np.unique(unit)), "cells": len(known), "scores": scores_of}}


def _solve_kernels(
    ensemble: ClassEnsemble, store: WindowStore, folds: Folds, unit: Int64
) -> Float[Tensor, "N G"]:
    """Solves the random kernels; returns held-out scores of samples, those of some units first, in order."""
    kernels, index = ensemble.kernels, folds.index(folds.code > 0)
    numbers = np.arange(len(index))
    sample = even_draw(len(index), _SAMPLE)
    for batch in WindowSequence(store, index, sample, _SAMPLE):
        kernels.choose_thresholds(*ensemble.series(batch.inputs))
    # Held-out windows come fold by fold; those of a unit stay in their order.
    series = index.locate(numbers)[0]
    place = np.full(folds.panel.n_series, len(unit))
    place[unit[::-1]] = np.arange(len(unit))[::-1]
    order = numbers[np.argsort(place[series], kind="stable")]

    def samples() -> Iterator[tuple[Tensor, Tensor, Tensor]]:
        for batch in WindowSequence(store, index, order, _MEASURED_BATCH):
            features = kernels.features(*ensemble.series(batch.inputs))
            fold = torch.from_numpy(folds.fold[batch.series.numpy()])
            if folds.length is None:
                yield features, batch.target.amax(dim=1) - 1, fold
            else:
                real = batch.target > 0
                yield features[real], batch.target[real] - 1, fold[:, None].expand_as(real)[real]

    if folds.length is None and len(index) < MANY:
        features, code, _ = (torch.cat(part) for part in zip(*samples(), strict=True))
        return kernels.solve_series(features, code)
    return kernels.solve_folds(samples, folds.count)


def _temperature(logits: Float[Tensor, "N G"], code: Int[Tensor, " N"]) -> float:
    """Returns the number that logits are divided by for the smallest log loss.

    Source: Guo, Pleiss, Sun and Weinberger, "On calibration of modern neural networks" (2017).
    """
    from scipy.optimize import minimize_scalar

    def loss(power: float) -> float:
        return float(torch.nn.functional.cross_entropy(logits / 2**power, code))

    return float(2 ** minimize_scalar(loss, bounds=(-5, 5), method="bounded").x)


def _network_weight(network: Tensor, kernels: Tensor, code: Tensor) -> float:
    """Returns the weight of the smallest log loss; the mean of both where no other is clearly better."""
    rows = torch.arange(len(code))
    losses = {
        weight: -torch.lerp(kernels, network, weight)[rows, code].clamp(min=1e-6).log()
        for weight in _NETWORK_WEIGHTS
    }
    best = min(losses, key=lambda weight: float(losses[weight].mean()))
    difference = losses[0.5] - losses[best]
    error = float(difference.std()) / len(code) ** 0.5 if len(code) > 1 else 0.0
    return best if float(difference.mean()) > _CLEAR * error else 0.5
