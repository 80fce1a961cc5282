"""Weights of one network into another: what is matched means the same, what is new changes nothing."""

from dataclasses import replace

import pytest
import torch
from small_networks import EVERYTHING, HORIZON, PLAIN, make_inputs, make_network

from forecaster.errors import ConfigError
from forecaster.model.attention import MultiHeadAttention
from forecaster.model.embedding import Shape, previous_values
from forecaster.model.layers import FeedForward
from forecaster.model.transfer import KINDS, Adapted, Meaning, adapt, carry, freeze_encoder, merge
from forecaster.windows.batch import Inputs

OLD = Meaning(
    numbers={"past": ("a",), "known": ("b", "c"), "static": ("d",)},
    categories={"past": ("p",), "known": ("k", "l"), "static": ("s",)},
    words={"p": ("x", "y", "z"), "k": ("u", "v"), "l": ("1", "2", "3", "4"), "s": ("m", "n")},
    channels=("one", "two"),
    cycles=("week", "year"),
)
# In another order, with further words, and with new columns before, between and after.
NEW = Meaning(
    numbers={"past": ("e", "a"), "known": ("c", "f", "b"), "static": ("d", "g")},
    categories={"past": ("p", "q"), "known": ("l", "k"), "static": ("r", "s")},
    words={
        "p": ("w", "z", "y", "x", "v"),
        "q": ("1", "2"),
        "k": ("v", "u"),
        "l": ("1", "2", "3", "4", "5", "6"),
        "r": ("1",),
        "s": ("n", "m"),
    },
    channels=("three", "two", "one"),
    cycles=("day", "week", "year"),
)
WIDER = Shape(
    horizon=HORIZON,
    channels=3,
    past=2,
    known=3,
    static=2,
    past_categories=(5, 2),
    known_categories=(6, 2),
    static_categories=(1, 2),
    cycles=3,
)
SETTINGS = [
    {},
    {"conv_kernel": 2, "positions": "learned"},
    {"attention": "low_rank", "head": "student_t"},
    {"decoder": "autoregressive"},
    {"decoder": "autoregressive", "head": "binned", "patch": 1, "decoder_patch": 1},
    {"decoder_patch": 5, "style": "vaswani2017"},
]


def as_the_old_network_reads(inputs: Inputs) -> Inputs:
    """The columns that the old network knows, in its order and its codes."""

    def code(is_: tuple[str, ...], was: tuple[str, ...]) -> torch.Tensor:
        return torch.tensor([0, *(was.index(w) + 1 if w in was else 0 for w in is_)])

    changed = {}
    for kind in KINDS:
        columns = [NEW.numbers[kind].index(name) for name in OLD.numbers[kind]]
        for name in [kind] if kind == "static" else [kind, f"{kind}_observed"]:
            changed[name] = getattr(inputs, name)[..., columns]
        codes = getattr(inputs, f"{kind}_category")
        changed[f"{kind}_category"] = torch.stack(
            [
                code(NEW.words[name], OLD.words[name])[codes[..., NEW.categories[kind].index(name)]]
                for name in OLD.categories[kind]
            ],
            dim=-1,
        )
    changed["phase"] = inputs.phase[..., [NEW.cycles.index(name) for name in OLD.cycles]]
    changed["channel"] = code(NEW.channels, OLD.channels)[inputs.channel]
    return replace(inputs, **changed)


def said(network, inputs):
    """What the head is given, under the truth where the decoder is told values."""
    memory = network.encode(inputs)
    previous = None
    if network.config.decoder == "autoregressive":
        truth = torch.linspace(15, 25, HORIZON)[None, :, None].expand(3, -1, inputs.context.shape[2])
        previous = previous_values(inputs, truth, network.config.decoder_patch)
    return network.decode(memory, inputs, previous)


@pytest.mark.parametrize("settings", SETTINGS, ids=str)
def test_before_training_the_new_network_says_what_the_old_one_says(settings):
    old, new = make_network(EVERYTHING, **settings), make_network(WIDER, **settings)
    inputs = make_inputs(WIDER)
    expected = said(old, as_the_old_network_reads(inputs))
    assert not torch.allclose(said(new, inputs), expected, atol=1e-2)
    carry(old, new, OLD, NEW)
    torch.testing.assert_close(said(new, inputs), expected, rtol=1e-5, atol=1e-5)


def test_with_channel_attention_and_the_same_covariates_too():
    settings = {"channel_attention": True, "decoder_patch": 7}
    old, new = make_network(EVERYTHING, **settings), make_network(EVERYTHING, **settings)
    torch.nn.init.normal_(new.encoder[0].attention.query.weight)
    carry(old, new, OLD, OLD)
    inputs = make_inputs(EVERYTHING)
    torch.testing.assert_close(said(new, inputs), said(old, inputs), rtol=0, atol=0)


def test_a_network_told_of_gaps_is_carried_into_one_that_is():
    shapes = replace(EVERYTHING, regular=False), replace(WIDER, regular=False)
    old, new = map(make_network, shapes)
    carry(old, new, OLD, NEW)
    inputs = make_inputs(shapes[1])
    expected = said(old, as_the_old_network_reads(inputs))
    torch.testing.assert_close(said(new, inputs), expected, rtol=1e-5, atol=1e-5)


def test_new_columns_learn():
    new = make_network(WIDER).requires_grad_(True)
    carry(make_network(EVERYTHING), new, OLD, NEW)
    said(new, make_inputs(WIDER)).square().sum().backward()
    for name, parameter in new.named_parameters():
        assert parameter.grad is not None, name
    # Columns of "e", which is the first number of a step of the past, after value and mark.
    assert (new.embedding.context_patch.weight[:, 2] == 0).all()
    assert (new.embedding.context_patch.weight.grad[:, 2] != 0).any()


def test_learned_positions_go_by_the_distance_from_the_cutoff():
    old = make_network(PLAIN, positions="learned")  # 5 + 3 tokens
    new = make_network(replace(PLAIN, horizon=4), positions="learned", context_length=8)  # 2 + 2
    plain = Meaning(dict.fromkeys(KINDS, ()), dict.fromkeys(KINDS, ()), {}, ("one", "two"), ("week",))
    carry(old, new, plain, plain)
    assert torch.equal(new.embedding.time.learned, old.embedding.time.learned[3:7])
    with pytest.raises(ConfigError, match=r"cover 2 \+ 2 tokens of context and horizon, 5 \+ 3 are"):
        carry(new, old, plain, plain)


def test_weights_of_another_shape_are_refused_with_the_numbers():
    old, new = make_network(PLAIN), make_network(PLAIN, width=16, quantile_levels=(0.5,))
    plain = Meaning(dict.fromkeys(KINDS, ()), dict.fromkeys(KINDS, ()), {}, ("one", "two"), ("week",))
    with pytest.raises(ConfigError) as caught:
        carry(old, new, plain, plain)
    assert "decoder_norm.weight: expected weights [16], found [8]" in str(caught.value)
    assert "output.weight: expected weights [3, 16], found [27, 8]" in str(caught.value)


def test_what_is_carried_new_and_left_is_told_by_name():
    channels = replace(NEW, channels=("one",), cycles=("year",))
    shape = replace(WIDER, channels=1, cycles=1)
    parts = {p.name: p for p in carry(make_network(EVERYTHING), make_network(shape), OLD, channels)}
    assert parts["past covariates"].carried == ["a", "p"]
    assert parts["past covariates"].new == ["e", "q"]
    assert parts["categories of p"].new == ["w", "v"]
    assert parts["channel embeddings"].left == ["one", "two"]
    assert parts["cycles"].left == ["week"]


def test_a_covariate_that_seems_another_thing_is_pointed_out():
    old, new = make_network(EVERYTHING), make_network(EVERYTHING)
    new.embedding.past_scaler.loc += 4 * old.embedding.past_scaler.scale
    new.embedding.known_scaler.scale[1] *= 10
    notes = {part.name: part.notes for part in carry(old, new, OLD, OLD)}
    assert len(notes["past covariates"]) == len(notes["known covariates"]) == 1
    assert notes["past covariates"][0].startswith("'a' lies +4.0 spreads from where")
    assert "its spread is 10 of theirs" in notes["known covariates"][0]
    assert torch.equal(new.embedding.past_scaler.loc, old.embedding.past_scaler.loc)


def test_merged_adapters_are_plain_matrices_that_say_the_same():
    network, inputs = make_network(EVERYTHING), make_inputs(EVERYTHING)
    names, before = list(network.state_dict()), said(network, inputs)
    network.requires_grad_(True)
    adapt(network, 3)
    changes = [part for part in network.modules() if isinstance(part, Adapted)]
    assert len(changes) == (4 + 2) + (4 + 4 + 2)
    torch.testing.assert_close(said(network, inputs), before, rtol=0, atol=0)
    for change in changes:
        torch.nn.init.normal_(change.up.weight)
    adapted = said(network, inputs)
    assert (adapted - before).abs().max() > 0.1
    merge(network)
    assert list(network.state_dict()) == names
    torch.testing.assert_close(said(network, inputs), adapted, rtol=1e-5, atol=1e-6)


def test_adapters_leave_attention_and_feed_forward_as_they_are():
    network = make_network(EVERYTHING).requires_grad_(True)
    freeze_encoder(network)
    adapt(network, 2)
    learns = {name for name, parameter in network.named_parameters() if parameter.requires_grad}
    assert not any(name.startswith("encoder") for name in learns)
    assert {"embedding.context_patch.weight", "output.weight", "decoder_norm.weight"} <= learns
    inside = [p for p in network.decoder.modules() if isinstance(p, MultiHeadAttention | FeedForward)]
    assert all(
        n.split(".")[1] in ("up", "down")
        for p in inside
        for n, w in p.named_parameters()
        if w.requires_grad
    )
