"""What a fit prints: its plan, what a warm start carries over, its stages and its scores."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from forecaster.config import FitPlan, Plan
from forecaster.errors import number_of
from forecaster.evaluation.backtest import Backtest
from forecaster.evaluation.bootstrap import skill_of
from forecaster.evaluation.comparison import MODEL, NAIVE, compare
from forecaster.fitting.classes import Folds
from forecaster.fitting.held_out import uncalibrated
from forecaster.fitting.members import trains_network
from forecaster.fitting.reporter import Reporter
from forecaster.forecast.artifact import Artifact, is_forecaster
from forecaster.forecast.card import calibration_line, network_line
from forecaster.model.size import FEWEST_WINDOWS
from forecaster.model.transfer import Part
from forecaster.panel.findings import listing
from forecaster.panel.panel import Panel
from forecaster.panel.schema import comparable
from forecaster.runs.console import Screen
from forecaster.runs.resume import RunFolder
from forecaster.windows.split import Split


class StageReporter(Reporter):
    """Prints the stages of a fit: all that a refit within a backtest reports."""

    def __init__(self, console: Screen):
        self.console = console
        self.of_experts = 0.0
        """Seconds of the stages that solve and weigh experts."""

    @contextmanager
    def stage(self, doing: str) -> Iterator[None]:
        """Prints a stage and its seconds, where it takes some."""
        begun = time.perf_counter()
        with self.console.stage(doing):
            yield
        if "experts" in doing:
            self.of_experts += time.perf_counter() - begun


class FitReporter(StageReporter):
    """Prints all that a fit reports, and keeps what is needed after it."""

    def __init__(self, console: Screen, folder: RunFolder | None):
        super().__init__(console)
        self._folder = folder
        self.backtest: Backtest | None = None
        """Forecasts of the validation windows and their scores; None = there are no such windows."""

    def notice(self, text: str) -> None:
        """Prints a notice."""
        self.console.print_notice(text)

    def warm_start(self, panel: Panel, split: Split, old: Artifact, parts: list[Part]) -> None:
        """Prints what is carried over."""
        print_start(self.console, panel, split, old, parts)

    def budget(self, fit: FitPlan) -> None:
        """Keeps the steps that the time budget allows for a fit that resumes this one."""
        if self._folder is not None:
            self._folder.update(budgeted=fit)

    def validation(self, backtest: Backtest) -> None:
        """Keeps the backtest for the report."""
        self.backtest = backtest


def print_plan(console: Screen, panel: Panel, plan: Plan, split: Split) -> None:
    """Prints what will be trained on what."""
    text = panel.calendar.text
    model = plan.model
    read = min(panel.longest, max(model.context_length, model.pool.history_length))
    trained = trains_network(plan, split)
    parts = [f"horizon {plan.horizon}"]
    if trained:
        parts += [
            f"context {model.attention_length or model.context_length}",
            f"patches of {model.patch} and {model.decoder_patch}",
            f"width {model.width}",
            f"{model.encoder_layers} + {model.decoder_layers} layers",
        ]
    if model.pool.experts:
        one, *others = model.pool.experts
        experts = number_of(len(model.pool.experts), "expert") if others else one
        parts.append(f"{experts} on {read:,} steps{', without a network' * (not trained)}")
    console.print_line(" · ".join(parts))
    train, held, every = len(split.train), len(split.validation_windows), len(split.validation)
    if held:
        reason, later = uncalibrated(plan), len(split.calibration_windows)
        drawn = f" of {every:,}" if held + later < every else ""
        calibrates = f", calibrates on {later:,} later ones" if later and reason is None else ""
        console.print_line(
            f"trains on {train:,} windows until {text(split.split)}, validates on {held:,}{drawn} "
            f"windows{calibrates} until {text(split.end)}"
        )
        if reason is None and not later:
            reason = f"too few cutoffs after {text(split.split)}"
        if reason is not None and plan.fit.calibration is not None:
            console.print_line(f"quantiles are not calibrated: {reason}")
        if not plan.fit.steps:
            few = "validation is too short to tell what it adds"
            if train < FEWEST_WINDOWS:
                few = f"fewer than {FEWEST_WINDOWS} windows to train it on"
            console.print_line(f"network weight 0 %: {few}; fit.steps trains it all the same")
        return
    line = f"trains on {train:,} windows until {text(split.end)}; no rows to set aside for validation"
    console.print_line(line + ", so all steps are run and the last weights kept" * trained)
    if len(model.pool.experts) > 1:
        console.print_notice("network weight 0 %: nothing to validate it")
    elif trained:
        console.print_notice("nothing validates the network, and nothing else forecasts")


def print_class_plan(console: Screen, plan: Plan, folds: Folds) -> None:
    """Prints what will be trained on what, of a fit to classes."""
    model, schema = plan.model, folds.panel.schema
    classes = schema.categories[schema.label or ""]
    each = "step" if model.head == "step_classes" else "series"
    console.print_line(
        f"a class per {each} · {len(classes)} classes: {listing(classes)} · windows of "
        f"{model.context_length} steps · patches of {model.patch} · width {model.width} · "
        f"{model.encoder_layers} layers"
    )
    words = ("window",) if each == "step" else ("series", "series")
    unit = number_of(int((folds.code > 0).sum()), *words)
    by = f"{folds.count} folds, a network each" if folds.count > 1 else "one network"
    console.print_line(f"trains on {unit}: {by}; scores are of what a network has not seen")


def print_start(console: Screen, panel: Panel, split: Split, old: Artifact, parts: list[Part]) -> None:
    """Prints which weights of an artifact are transferred, and what its training rows mean for the scores."""
    source = old.ancestry
    console.print_line(
        f"starts from weights fitted to {source['data']} ({source['freq']}) until {source['until']}"
    )
    rows = [
        (part.name, *(listing(words) or "-" for words in (part.carried, part.new, part.left)))
        for part in parts
    ]
    console.print_words(("part", "transferred", "new (zero-initialised)", "dropped"), rows)
    console.print_line(
        "scales: the artifact's of transferred covariates, this table's of targets and new covariates"
    )
    for part in parts:
        for note in part.notes:
            console.print_notice(f"{part.name}: {note}")
    if not comparable(panel.schema, old.schema):
        note = "their time axis is not comparable, so a backtest cannot know which of these rows they have seen"
        console.print_notice(note)
    elif old.trained_until > split.split and len(split.validation_windows):
        text = panel.calendar.text
        console.print_notice(
            f"those weights have seen {old.data} until {text(old.trained_until)}, validation begins "
            f"after {text(split.split)}: these scores overlap the training data"
        )


def print_scores(console: Screen, artifact: Artifact[Any]) -> None:
    """Prints how the validation went, losses as plainly as wins."""
    if not is_forecaster(artifact):
        _print_label_scores(console, artifact)
        return
    found = artifact.metrics
    line = f"{found['steps']} steps" if found["steps"] else "no network to train"
    if "validation" in found:
        line += f", best at {found['best_step']}" if found["steps"] else ""
        line += f": {found['ended']}" if found.get("ended") else ""
        mine, naive = (found["validation"]["scores"][name] for name in (MODEL, NAIVE))
        verdict = compare(mine, naive)
        gain = skill_of(mine)
        skill = f" (skill {100 * gain.skill:+.1f} %, {gain.interval()})" if naive["WQL"] > 0 else ""
        skill = ", which makes no error" if naive["WQL"] == 0 else skill
        line += (
            f" · validation WQL {mine['WQL']:.4f} {verdict} seasonal naive {naive['WQL']:.4f}{skill}"
        )
    console.print_line(line)
    _print_weights(console, artifact)


def print_update(console: Screen, artifact: Artifact) -> None:
    """Prints what an update changed, and how it compares with the model of before where neither has looked."""
    found = artifact.metrics["update"]
    if "loss" in found:
        ours, theirs = found["loss"], found["loss_before"]
        change = f" ({100 * (ours / theirs - 1):+.1f} %)" if theirs else ""
        windows = number_of(found["windows"], "window")
        console.print_line(
            f"loss {ours:.4g} on {windows} that neither has seen, {theirs:.4g} of the model before{change}"
        )
    _print_weights(console, artifact)


def _print_weights(console: Screen, artifact: Artifact) -> None:
    """Prints the weights of experts and network, and what calibration did."""
    for line in filter(None, (network_line(artifact), calibration_line(artifact))):
        console.print_line(line)


def _print_label_scores(console: Screen, artifact: Artifact[Any]) -> None:
    """Prints how the classes of held-out series were predicted."""
    found = artifact.metrics
    scores = found["validation"]["scores"]
    mine = scores[MODEL]
    others = ", ".join(f"{name} {own['accuracy']:.4f}" for name, own in scores.items() if name != MODEL)
    console.print_line(
        f"{found['steps']} steps · held-out accuracy {mine['accuracy']:.4f} ({others}) · log loss "
        f"{mine['log_loss']:.4f} · macro F1 {mine['macro_F1']:.4f} · network weight "
        f"{100 * found['network_weight']:.0f} %"
    )
