"""The networks of a fit, one training after the other.

What comes in: a panel, a config and the windows of a training. What goes out: networks with the weights
to keep, and what is told of how they came about. Promised: member k is the network that a fit of its
own with seed + k would train; each training has checkpoints of its own, and one that is finished is
passed over by a fit that goes on; a watcher that ends a training ends the fit.

    first pass    member 0, member-01, member-02, …      what validation watches
    second pass   refit-00, refit-01, …                  all rows, as many steps as were best
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from forecaster.config import Config
from forecaster.model.learner import Learner
from forecaster.model.network import Network
from forecaster.model.transfer import merge
from forecaster.panel.panel import Panel
from forecaster.runs.budget import Pace, measured_pace, within_budget
from forecaster.runs.linear import solve_linear
from forecaster.runs.scales import learn_scales
from forecaster.runs.training.devices import of_the_first
from forecaster.runs.training.launch import Training
from forecaster.runs.training.precision import Measured, settle_precision
from forecaster.runs.training.train import Surroundings, train
from forecaster.runs.transfer import Start, started_shape, take_weights
from forecaster.windows.split import Split, split_panel
from forecaster.windows.store import WindowStore, training_store

Hand = Callable[[Training], None]
"""Hands a training to the processes that train along."""


@dataclass(frozen=True)
class Trained:
    """One network, and how it came about."""

    name: str
    """Of the training; empty: the first one."""
    network: Network
    """With the weights to keep."""
    seed: int
    """Of its first weights, its dropout, and the order of its windows."""
    steps: int
    """Taken."""
    best_step: int
    """After which the kept weights were validated; `steps` where nothing was."""
    curves: dict[str, list[tuple[int, float]]]
    """Losses and rates by step."""
    ended: bool
    """Whether a watcher has ended it."""


class Trainings:
    """All trainings of one fit."""

    def __init__(
        self,
        panel: Panel,
        config: Config,
        surroundings: Surroundings,
        start: Start | None,
        hand: Hand,
    ):
        """Takes what the trainings have in common.

        Args:
            panel: the table.
            config: says how windows are cut out of it.
            surroundings: what they run on, and who watches.
            start: whose weights come first; None = random ones.
            hand: given each of them before it begins.
        """
        self._begun = time.monotonic()
        self.store: WindowStore = training_store(panel, config)
        self._panel, self._around, self._start, self._hand = panel, surroundings, start, hand
        self._solved: tuple[Split, dict[str, Tensor]] | None = None

    def settled(self, config: Config, split: Split) -> tuple[Config, Measured | None]:
        """Returns the config with what depends on the machine, and what was measured for that.

        Args:
            config: resolved.
            split: of the panel.
        """
        if config.fit.precision != "auto" and config.fit.budget_seconds is None:
            return config, None
        network = self.network(of_member(config, 0), split)
        config, measured = settle_precision(network, self.store, split, config, self._around.place)
        if config.fit.budget_seconds is not None:
            config = self._bounded(config, split)
        self._around.settled(config.fit)
        return config, measured

    def _bounded(self, config: Config, split: Split) -> Config:
        """Returns the config with as many steps as all trainings together have time for."""
        asked, budget = config.fit, config.fit.budget_seconds
        assert budget is not None

        def run(short: Config, pace: Pace) -> None:
            learner = Learner(self.network(short, split), short.fit, self._panel.labels)
            self._hand(Training(learner, split, short, None))
            train(learner, self.store, split, short, Surroundings(None, (pace,), self._around.place))

        pace = measured_pace(of_member(config, 0), run)
        spent = time.monotonic() - self._begun
        trainings = asked.members * (2 if asked.refit and len(split.held) else 1)
        fit = within_budget(asked, pace, max(0.0, budget - spent) / trainings)
        fit = of_the_first(fit, self._around.place)
        self._around.say(
            f"budget {budget:,.0f} s: a step takes {1e3 * pace.step:,.1f} ms, "
            + (f"{trainings} trainings take {fit.steps:,} " if trainings > 1 else f"{fit.steps:,} ")
            + (f"of {asked.steps:,} steps" if fit.steps < asked.steps else "steps, all of them")
        )
        return config.model_copy(update={"fit": fit})

    def members(self, config: Config, split: Split) -> list[Trained]:
        """Returns the networks that validation watches.

        Args:
            config: settled.
            split: which windows train and which are watched.
        """
        trained: list[Trained] = []
        for number in range(config.fit.members):
            name = f"member-{number:02d}" if number else ""
            trained.append(self._trained(name, of_member(config, number), split))
            if trained[-1].ended:  # nobody waits for the others
                break
        return trained

    def refitted(self, config: Config, before: list[Trained]) -> list[Trained]:
        """Returns the same networks trained on all rows, each for as many steps as were best for it.

        Nobody asks the attention of a network whose share is 0: its linear maps alone are solved.

        Args:
            config: settled.
            before: what validation has seen.
        """
        unwatched = config.fit.model_copy(update={"validation": None})
        split = split_panel(self._panel, config.model_copy(update={"fit": unwatched}))
        trained = []
        for number, member in enumerate(before):
            own = of_member(config, number)
            fit = own.fit.model_copy(update={"steps": member.best_step})
            own = own.model_copy(update={"fit": fit})
            trained.append(self._again(f"refit-{number:02d}", own, split, member.network))
        return trained

    def _again(self, name: str, config: Config, split: Split, before: Network) -> Trained:
        if before.linear is None:
            return self._trained(name, config, split)
        if float(before.network_weight) == 0:
            network = self.network(config, split).requires_grad_(False).eval()
            again = Trained(name, network, config.fit.seed, 0, 0, curves={}, ended=False)
        else:
            again = self._trained(name, config, split)
        again.network.network_weight.copy_(before.network_weight)
        return again

    def network(self, config: Config, split: Split) -> Network:
        """Returns a network about to be trained, its linear maps solved over the windows that train.

        Args:
            config: of one member.
            split: of its training.
        """
        panel, start = self._panel, self._start
        parent = start.artifact if start else None
        assert config.horizon is not None
        torch.manual_seed(config.fit.seed)
        network = Network(config.model, started_shape(panel, config.horizon, parent))
        learn_scales(network, panel, split.train_end)
        if start is not None:
            take_weights(network, panel, config, start)
            self._start = replace(start, say=lambda parts: None)  # said once
        self._solve(network, config, split)
        return network

    def _solve(self, network: Network, config: Config, split: Split) -> None:
        """Puts the solution of the linear maps in: members differ in attention, not in them."""
        if network.linear is None:
            return
        if self._solved is not None and self._solved[0] is split:
            network.linear.load_state_dict(self._solved[1])
            return
        solve_linear(network, self._panel, config, split.train)
        maps = {name: value.clone() for name, value in network.linear.state_dict().items()}
        self._solved = split, maps

    def _trained(self, name: str, config: Config, split: Split) -> Trained:
        learner = Learner(self.network(config, split), config.fit, self._panel.labels, name)
        files = self._around.checkpoints
        around = replace(self._around, checkpoints=files and files.within(name))
        self._hand(Training(learner, split, config, name))
        best = train(learner, self.store, split, config, around)
        merge(learner.average)
        return Trained(
            name=name,
            network=learner.average,
            seed=config.fit.seed,
            steps=learner.global_step,
            best_step=best.step if best.weights is not None else learner.global_step,
            curves=learner.curves,
            ended=learner.ended and not best.waited_enough,
        )


def of_member(config: Config, number: int) -> Config:
    """Returns the config of one member: a seed and an attention length of its own."""
    fit, model = config.fit, config.model
    lengths = fit.member_lengths
    length = lengths[number % len(lengths)] if lengths else model.attention_length
    return config.model_copy(
        update={
            "fit": fit.model_copy(update={"seed": (fit.seed + number) % (1 << 63)}),
            "model": model.model_copy(update={"attention_length": length}),
        }
    )


def found_by(members: Sequence[Trained], weights: Sequence[float]) -> dict[str, Any]:
    """Returns what metrics.json tells of the members; steps and best step are those of the first."""
    told = [
        {
            "seed": member.seed,
            "attention_length": member.network.config.attention_length,
            "steps": member.steps,
            "best_step": member.best_step,
            "share": 1.0 if member.network.linear is None else float(member.network.network_weight),
            "weight": weight,
        }
        for member, weight in zip(members, weights, strict=True)
    ]
    first = members[0]
    return {
        "steps": first.steps,
        "best_step": first.best_step,
        "curves": curves_of(members),
        "members": told,
    }


def curves_of(members: Sequence[Trained]) -> dict[str, list[list[float]]]:
    """Returns the curves of trainings by name; those of the first training have their bare names."""
    return {
        f"{member.name}/{name}" if member.name else name: [list(point) for point in curve]
        for member in members
        for name, curve in member.curves.items()
    }
