"""The Transformer of 2017, against torch.nn.Transformer with the same weights, and by hand."""

import math

import pytest
import torch
from small_networks import CONTEXT, greedy, make_inputs, make_network
from torch import nn

from forecaster.model.embedding import Shape, previous_values
from forecaster.model.kernels import scaled_dot_product_attention
from forecaster.model.positions import sinusoids
from forecaster.model.sampling import uniforms

HORIZON = 6
SHAPE = Shape(horizon=HORIZON, channels=1)
PUBLISHED = {
    "decoder": "autoregressive",
    "positions": "sinusoidal",
    "style": "vaswani2017",
    "patch": 1,
    "decoder_patch": 1,
    "encoder_layers": 2,
    "decoder_layers": 2,
}
WORDS = {"head": "binned"}
BINS = 256
PARTS = {
    "self_attn": "attention",
    "multihead_attn": "cross",
    "linear1": "feed_forward.expand",
    "linear2": "feed_forward.contract",
}
NORMS = {"encoder": ("attention", "feed_forward"), "decoder": ("attention", "cross", "feed_forward")}


def published(**settings):
    """A small network built as published, its weights all random."""
    network = make_network(SHAPE, **PUBLISHED | settings).requires_grad_(True)
    for name, parameter in network.named_parameters():
        if "norm" in name:  # ones and zeros would hide a swapped one
            nn.init.normal_(parameter, mean=float("weight" in name), std=0.3)
        elif name.endswith("bias"):
            nn.init.normal_(parameter, std=0.3)
    return network


def torch_twin(network):
    """torch.nn.Transformer with the network's weights."""
    config = network.config
    norm_first = config.style == "modern"
    activation = "gelu" if norm_first else "relu"
    sizes = (config.width, config.heads, config.feed_forward, 0.0, activation)
    layer = nn.TransformerEncoderLayer(*sizes, batch_first=True, norm_first=norm_first)
    encoder = nn.TransformerEncoder(
        layer, config.encoder_layers, nn.LayerNorm(config.width), enable_nested_tensor=False
    )
    twin = nn.Transformer(
        config.width,
        config.heads,
        num_decoder_layers=config.decoder_layers,
        dim_feedforward=config.feed_forward,
        dropout=0.0,
        activation=activation,
        custom_encoder=encoder,
        batch_first=True,
        norm_first=norm_first,
    )
    with torch.no_grad():
        for theirs, parameter in twin.named_parameters():
            parameter.copy_(torch.cat([network.get_parameter(ours) for ours in ours_of(theirs)]))
    return twin


def ours_of(theirs):
    """Names of our parameters that make one of torch's, one below the other."""
    side, kind, *rest = theirs.split(".")
    if kind == "norm":
        return [f"{side}_norm.{rest[0]}"]
    layer, part, *leaf = rest
    if part.startswith("norm"):
        return [f"{side}.{layer}.{NORMS[side][int(part[-1]) - 1]}_norm.{leaf[0]}"]
    ours = f"{side}.{layer}.{PARTS[part]}"
    if leaf[0].startswith("in_proj"):
        end = leaf[0].removeprefix("in_proj_")
        return [f"{ours}.{each}.{end}" for each in ("query", "key", "value")]
    return [f"{ours}.{leaf[0]}" if len(leaf) == 1 else f"{ours}.output.{leaf[1]}"]


def watched(network, run):
    """What enters and leaves encoder and decoder while something runs."""
    seen, hooks = {}, []
    for side in ("encoder", "decoder"):
        layers, norm = getattr(network, side), getattr(network, f"{side}_norm")
        keep_in = lambda _, given, side=side: seen.update({f"{side} in": given[0]})  # noqa: E731
        keep_out = lambda _, given, left, side=side: seen.update({f"{side} out": left})  # noqa: E731
        hooks += [layers[0].register_forward_pre_hook(keep_in), norm.register_forward_hook(keep_out)]
    seen["raw"] = run()
    for hook in hooks:
        hook.remove()
    return seen


def taught(network, inputs, target):
    """Raw numbers under teacher forcing."""
    memory = network.encode(inputs)
    return network.decode(memory, inputs, previous_values(inputs, target, 1))


def close(found, expected):
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("missing", [0.0, 0.4], ids=["all observed", "padded"])
@pytest.mark.parametrize("style", ["vaswani2017", "modern"])
@pytest.mark.parametrize("head", [{}, WORDS], ids=["quantiles", "words"])
def test_encoder_decoder_and_gradients_are_those_of_torch_nn_transformer(missing, style, head):
    """Causal mask over the horizon, padding masks wherever the context is not observed."""
    network = published(style=style, **head)
    twin = torch_twin(network)
    inputs, target = make_inputs(SHAPE, missing=missing), 20 + 3 * torch.randn(3, HORIZON, 1)
    seen = watched(network, lambda: taught(network, inputs, target))
    padding = ~inputs.observed[..., 0]
    causal = nn.Transformer.generate_square_subsequent_mask(HORIZON)
    source, goal = (seen[f"{side} in"].detach().requires_grad_() for side in ("encoder", "decoder"))
    # An unobserved query is nobody's key, and what becomes of it is nobody's affair.
    real = ~padding
    memory = twin.encoder(source, src_key_padding_mask=padding)
    close(seen["encoder out"][real], memory[real])
    left = twin(
        source,
        goal,
        tgt_mask=causal,
        src_key_padding_mask=padding,
        memory_key_padding_mask=padding,
        tgt_is_causal=True,
    )
    close(seen["decoder out"], left)
    weights = torch.randn_like(left)
    (seen["decoder out"] * weights).sum().backward()
    (left * weights).sum().backward()
    for theirs, parameter in twin.named_parameters():
        ours = torch.cat([network.get_parameter(name).grad for name in ours_of(theirs)])
        torch.testing.assert_close(ours, parameter.grad, rtol=1e-4, atol=1e-4)


class Sequence2Sequence(nn.Module):
    """A translator of tokens, as a textbook builds it from torch.nn parts."""

    def __init__(self, words, width, twin):
        super().__init__()
        self.embedding = nn.Embedding(words + 1, width)
        self.transformer = twin
        self.logits = nn.Linear(width, words)

    def embedded(self, tokens):
        position = torch.arange(tokens.shape[1]).float().expand(len(tokens), -1)
        width = self.embedding.embedding_dim
        return self.embedding(tokens) * math.sqrt(width) + sinusoids(position, width)

    def forward(self, source, goal):
        causal = nn.Transformer.generate_square_subsequent_mask(goal.shape[1])
        parts = self.embedded(source), self.embedded(goal)
        return self.logits(self.transformer(*parts, tgt_mask=causal, tgt_is_causal=True))

    def greedy(self, source, start, length):
        goal = start
        for _ in range(length):
            goal = torch.cat([goal, self(source, goal)[:, -1:].argmax(-1)], dim=1)
        return goal[:, 1:]

    def sampled(self, source, start, uniform):
        """The inverse of each word's cumulated probability at given uniform numbers."""
        goal = start
        for number in range(uniform.shape[1]):
            below = self(source, goal)[:, -1].softmax(-1).cumsum(-1)
            goal = torch.cat(
                [goal, torch.searchsorted(below, uniform[:, number : number + 1].clone())], dim=1
            )
        return goal[:, 1:]


def translators():
    """Ours and the textbook's, of equal weights, and tokens of a context to translate."""
    network = published(**WORDS).requires_grad_(False)
    textbook = Sequence2Sequence(BINS, network.config.width, torch_twin(network)).eval()
    textbook.embedding.load_state_dict(network.embedding.values.state_dict())
    textbook.logits.load_state_dict(network.output.state_dict())
    inputs = make_inputs(SHAPE, missing=0.0)
    scale = network.encode(inputs).scale
    source = network.head.vocabulary.tokens(scale.apply(inputs.context)[..., 0])
    return network, textbook, inputs, scale, source


def test_words_in_logits_out_are_those_of_a_translator_built_from_torch_nn_parts():
    network, textbook, inputs, scale, source = translators()
    target = 20 + 3 * torch.randn(3, HORIZON, 1)
    goal = network.head.vocabulary.tokens(scale.apply(target)[..., 0])
    before = torch.cat([source[:, -1:], goal[:, :-1]], dim=1)
    logits = textbook(source, before)
    close(taught(network, inputs, target)[:, :, 0], logits)
    loss = nn.functional.cross_entropy(logits.flatten(0, 1), goal.flatten(), label_smoothing=0.1)
    close(network.head.loss(taught(network, inputs, target), scale, target).mean(), loss)


def test_greedy_and_sampled_words_are_those_of_the_translator():
    network, textbook, inputs, scale, source = translators()
    tokens = lambda values: network.head.vocabulary.tokens(scale.apply(values)[..., 0])  # noqa: E731
    start = source[:, -1:]
    assert torch.equal(tokens(greedy(network, inputs)), textbook.greedy(source, start, HORIZON))
    key = torch.arange(3)
    paths = network.predict(inputs, key, 4).paths
    numbers = uniforms(key, 4, 1, HORIZON, 1)[..., 0, 0].float()
    for number in range(4):
        expected = textbook.sampled(source, start, numbers[:, number])
        assert torch.equal(tokens(paths[:, number]), expected)


def test_positions_are_added_to_embedded_inputs_times_the_root_of_the_width():
    """A context of ±1 has mean 0 and spread 1, so √8·(±weight of a value + that of a mark + bias)."""
    network, inputs = published(), make_inputs(SHAPE, missing=0.0)
    inputs.context[:] = torch.tensor([1.0, -1.0]).repeat(CONTEXT // 2)[:, None]
    seen = watched(network, lambda: network.encode(inputs))
    patch = network.embedding.context_patch
    sign = torch.tensor([1.0, -1.0]).repeat(CONTEXT // 2)[:, None]
    embedded = sign * patch.weight[:, 0] + patch.weight[:, 1] + patch.bias
    position = sinusoids(torch.arange(float(CONTEXT))[None], 8)[0]
    close(seen["encoder in"][0], math.sqrt(8) * embedded + position)


def test_attention_of_three_tokens_by_hand():
    """Queries, keys and values of width 2; scores are QKᵀ/√2.

    Q = (√2·ln 2, 0), (0, √2·ln 3), (0, 0);  K = (1, 0), (0, 1), (0, 0);  V = (6, 0), (0, 6), (6, 6).

    Token 1 scores (ln 2, 0, 0): weights (2, 1, 1)/4, so ½·(6, 0) + ¼·(0, 6) + ¼·(6, 6) = (4.5, 3).
    Token 2 scores (0, ln 3, 0): weights (1, 3, 1)/5, so (1.2, 0) + (0, 3.6) + (1.2, 1.2) = (2.4, 4.8).
    Token 3 scores (0, 0, 0): weights ⅓ each, so (4, 4).
    Under a causal mask token 1 sees itself alone: (6, 0). Token 2 sees the first two: weights (1, 3)/4,
    so (1.5, 4.5). Token 3 sees all: (4, 4).
    """
    root = math.sqrt(2)
    query = torch.tensor([[root * math.log(2), 0], [0, root * math.log(3)], [0, 0]])
    key = torch.tensor([[1.0, 0], [0, 1], [0, 0]])
    value = torch.tensor([[6.0, 0], [0, 6], [6, 6]])
    parts = [part[None, None] for part in (query, key, value)]
    close(
        scaled_dot_product_attention(*parts)[0, 0],
        torch.tensor([[4.5, 3.0], [2.4, 4.8], [4.0, 4.0]]),
    )
    causal = torch.ones(3, 3, dtype=torch.bool).tril()[None, None]
    close(
        scaled_dot_product_attention(*parts, causal)[0, 0],
        torch.tensor([[6.0, 0.0], [1.5, 4.5], [4.0, 4.0]]),
    )
