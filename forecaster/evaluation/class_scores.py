"""Scores of a classifier: how often it is right, and how well its probabilities are calibrated.

Axes: N classified series or step · G class · K bin.
"""

from __future__ import annotations

import numpy as np

from forecaster.evaluation.metrics import Scores
from forecaster.panel.arrays import Floats, Ints

KERNELS, NETWORK, MAJORITY = "random kernels", "network", "majority class"
BINS = 10
_LEAST = 1e-6  # probability: a class that was held impossible has a finite loss
CLASS_METRICS = ("accuracy", "balanced_accuracy", "log_loss", "macro_F1", "calibration_error")


def class_scores(probabilities: Floats, code: Ints) -> Scores:
    """Returns the metrics of `CLASS_METRICS`.

    Balanced accuracy is the mean over classes of the share of their samples that are right, macro F1 that of
    the harmonic mean of precision and recall, the calibration error the mean distance between the
    probability of a class and how often it is right.
    Means over classes are over those that occur; one that the model does not know has recall and F1 0.
    Source of the calibration error, over ten bins of equal width: Guo, Pleiss, Sun and Weinberger,
    "On calibration of modern neural networks" (2017).

    Args:
        probabilities: [N, G].
        code: [N] true class from 1; each above G is a class that the model does not know.
    """
    if not len(code):
        return dict.fromkeys(CLASS_METRICS, float("nan"))
    right = confusion(probabilities, code).astype(np.float64)
    hits, truths, guesses = np.diag(right[1:]), right.sum(axis=1), right.sum(axis=0)
    occurs = truths[1:] > 0
    # With a last column for all that the model does not know.
    every = np.pad(probabilities, ((0, 0), (0, 1)))
    chance = every[np.arange(len(code)), np.minimum(code, every.shape[1]) - 1]
    classes = occurs.sum() + len(np.unique(code[code > len(hits)]))
    share, confidence, count = reliability(probabilities, code)
    both = truths[1:] + guesses
    recall = hits[occurs] / truths[1:][occurs]
    return {
        "accuracy": float(hits.sum() / len(code)),
        "balanced_accuracy": float(recall.sum() / classes),
        "log_loss": float(-np.log(np.maximum(chance, _LEAST)).mean()) + 0.0,
        "macro_F1": float((2 * hits[occurs] / both[occurs]).sum() / classes),
        "calibration_error": float((np.abs(share - confidence) * count).sum() / len(code)),
    }


def confusion(probabilities: Floats, code: Ints) -> Ints:
    """Returns counts [G + 1, G] of true class, 0 = unknown first, and predicted class."""
    classes = probabilities.shape[1]
    cells = np.where(code > classes, 0, code) * classes + probabilities.argmax(axis=1)
    return np.bincount(cells, minlength=(classes + 1) * classes).reshape(classes + 1, classes)


def reliability(probabilities: Floats, code: Ints) -> tuple[Floats, Floats, Ints]:
    """Returns, per bin of the probability of the predicted class, how often it is right, its mean, the count.

    [K] each; 0 where a bin is empty.
    """
    confidence = probabilities.max(axis=1)
    right = probabilities.argmax(axis=1) + 1 == code
    place = np.minimum((confidence * BINS).astype(np.int64), BINS - 1)
    count = np.bincount(place, minlength=BINS)
    sums = (np.bincount(place, weights=one, minlength=BINS) for one in (right, confidence))
    share, mean = (one / np.maximum(count, 1) for one in sums)
    return share, mean, count
