"""What cannot be built is refused before training, with the numbers."""

import pytest

from forecaster.config import Config, parse_config
from forecaster.errors import ConfigError
from forecaster.fitting.fit import resolve

FOLLOWS = {"decoder": "autoregressive"}
REFUSED = [
    ({"width": 30, "heads": 4}, "width 30 is not a multiple of heads 4"),
    ({"attention": "strided"}, "'full', 'local', 'sparse' or 'low_rank'"),
    ({"attention_size": 3}, "attention_size 3 has no effect with attention full"),
    ({"experts": ["naive", "linear"], "head": "student_t"}, "does not go with head student_t"),
    ({"experts": ["naive", "linear"], **FOLLOWS}, "and decoder autoregressive"),
    ({"decoder_mask": "full", **FOLLOWS}, "decoder_mask full shows a token the tokens after it"),
    ({"quantile_levels": [0.5], **FOLLOWS}, "quantile_levels [0.5] is one level, paths are drawn from"),
    ({"head": "binned", "patch": 7, **FOLLOWS}, "patch 7: an autoregressive binned head reads one"),
]


@pytest.mark.parametrize(("model", "expected"), REFUSED)
def test_a_network_that_cannot_be_is_refused_with_its_numbers(model, expected):
    with pytest.raises(ConfigError) as caught:
        parse_config({"model": model}, source="config")
    assert expected in str(caught.value)


def test_a_loss_that_means_nothing_to_the_head_is_refused():
    with pytest.raises(ConfigError, match=r"fit\.loss mae trains the median alone, and head student_t"):
        Config().replaced(fit={"loss": "mae"}, model={"head": "student_t"})


def test_a_patch_longer_than_the_context_is_refused_and_never_chosen(make_panel):
    panel = make_panel(2, 200)
    given = Config().replaced(horizon=4, model={"context_length": 10, "patch": 12})
    with pytest.raises(ConfigError, match=r"patch 12 is longer than model.context_length 10"):
        resolve(panel, given)
    chosen, _ = resolve(panel, Config().replaced(horizon=4, model={"context_length": 10}))
    assert chosen.model.patch == 10
