"""A training without a number of steps ends by its validation losses, the same on all ranks and after a kill."""

from types import SimpleNamespace

import pytest
import torch

from forecaster.fitting.stopping import StopByEvidence
from forecaster.model.schedule import Schedule

EVERY = 25


class _Learner:
    """Its one weight is the step; losses and weights of the network are given."""

    def __init__(self, steps):
        self.curves = {"validation_loss": [], "network_weight": [], "network_loss": []}
        self.network, self.average = torch.nn.Linear(1, 1), torch.nn.Linear(1, 1)
        self.schedule, self.global_step = Schedule(steps), 0
        self.config = SimpleNamespace(validate_every=EVERY)

    def meets(self, loss, alone, weight):
        self.global_step += EVERY
        self.curves["validation_loss"].append((self.global_step, loss))
        self.curves["network_weight"].append((self.global_step, weight))
        self.curves["network_loss"].append((self.global_step, alone))
        torch.nn.init.constant_(self.average.weight, self.global_step)
        torch.nn.init.constant_(self.network.weight, -self.global_step)


def decided(losses, alone, weights, steps):
    """What the callback does: its reason, the step, and the step of the weights that it goes on from."""
    learner, stop = _Learner(steps), StopByEvidence()
    optimizer = torch.optim.AdamW(learner.network.parameters())
    trainer = SimpleNamespace(should_stop=False, optimizers=[optimizer])
    for point in zip(losses, alone, weights, strict=True):
        learner.meets(*point)
        stop.on_validation_end(trainer, learner)
        if stop.why:
            break
    assert trainer.should_stop == (learner.schedule.begin is None and bool(stop.why))
    kept = int(learner.average.weight)
    assert int(learner.network.weight) == -kept
    return stop.why, learner.global_step, kept


def slow(losses, alone, weights, steps):
    """The same by looking back over all losses at each step."""
    for number in range(len(losses)):
        step, seen = EVERY * (number + 1), losses[: number + 1]
        kept = EVERY * (seen.index(min(seen)) + 1)
        last, gains = {0: float("inf"), 1: float("inf")}, []
        for loss, own, weight in zip(seen, alone, weights, strict=False):
            watched, kind = (loss, 1) if weight else (own, 0)
            less = watched < 0.996 * last[kind]
            gains.append(less and last[kind] < float("inf"))
            last[kind] = watched if less else last[kind]
        since = max((EVERY * (n + 1) for n, gain in enumerate(gains) if gain), default=0)
        if number >= 2 and not any(weights[number - 2 : number + 1]) and not any(gains[-3:]):
            return "the network had weight 0 at 3 validations, and gained nothing itself", step, step
        if step - since >= max(100, step / 5):
            return f"the validation loss gained no more after step {since:,}", step, kept
        if step >= steps - steps // 6:
            why = "the validation loss still gained when the budget ended it"
            return why, step, kept
    return "", step, step


FALLS, FLAT = [0.99**n for n in range(60)], [1.0] * 60
CASES = {
    "flat": (FLAT, FLAT, [1.0] * 60),
    "gains on": (FALLS, FLAT, [0.5] * 60),
    "too little": ([1 - 1e-4 * n for n in range(60)], FALLS, [0.5] * 60),
    "worse": ([1.0, 0.9, 0.8, *(0.8 + 0.01 * n for n in range(40))], FLAT[:43], [0.25] * 43),
    "0 from the start": (FLAT, FLAT, [0.0] * 60),
    "0, but it learns": (FLAT, FALLS, [0.0] * 60),
    "0 at first": (FLAT[:9] + FALLS[:51], FALLS, [0.0] * 9 + [0.5] * 51),
    "0 later": (FALLS, FLAT, [0.0, 0.0, 0.5, 0.0, 0.0, 0.0] + [1.0] * 54),
}


@pytest.mark.parametrize("case", CASES)
def test_it_ends_as_looking_back_over_all_losses_says(case):
    assert decided(*CASES[case], 1200) == slow(*CASES[case], 1200)


@pytest.mark.parametrize("seed", range(20))
def test_it_ends_so_on_random_losses(seed):
    draw = torch.Generator().manual_seed(seed)
    falls = 0.02 * torch.rand(2, 60, generator=draw).cumsum(1)
    losses = (1 / (1 + falls) + 0.005 * torch.randn(2, 60, generator=draw)).tolist()
    weights = torch.randint(0, 3, (60,), generator=draw).double().tolist()
    assert decided(*losses, weights, 1600) == slow(*losses, weights, 1600)
