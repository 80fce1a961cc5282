"""Attention one query and one key at a time, in Python's own float64: the twins of the kernels."""

import math

import torch


def slow_attention(query, key, value, allowed):
    """softmax(QKᵀ/√E)·V over keys for which allowed(b, a, n, m) holds; zeros where there is none."""
    batch, heads, queries, width = query.shape
    mixed = torch.zeros(batch, heads, queries, width, dtype=torch.float64)
    for b, a, n in places(query):
        weights = {}
        for m in range(key.shape[2]):
            if allowed(b, a, n, m):
                weights[m] = math.exp(product(query[b, a, n], key[b, a, m]) / math.sqrt(width))
        for m, weight in weights.items():
            mixed[b, a, n] += weight / sum(weights.values()) * value[b, a, m].double()
    return mixed


def slow_sparse(query, key, value, seen, factor):
    """ProbSparse: the queries that stand out attend, the others take the mean."""
    length = query.shape[2]
    most = factor * max(1, math.ceil(math.log(length)))
    attends = {}
    for b, a in {(b, a) for b, a, _ in places(query)}:
        real = [n for n in range(length) if seen[b, n]]
        standing = {}
        for n in real:
            sampled = slow_sample(real, n, min(length, most))
            products = [product(query[b, a, n], key[b, a, m]) for m in sampled]
            standing[n] = max(products) - sum(products) / len(products)
        for n in range(length):
            larger = sum(one > standing[n] for one in standing.values()) if n in standing else length
            attends[b, a, n] = larger < most
    allowed = lambda b, a, n, m: bool(seen[b, m])  # noqa: E731
    mixed = slow_attention(query, key, value, allowed)
    even = slow_attention(torch.zeros_like(query), key, value, allowed)
    for place, stands in attends.items():
        if not stands:
            mixed[place] = even[place]
    return mixed


def slow_sample(candidates, n, samples):
    """Query n takes the ⌊r·c⌋-th of c candidates, r from multiples of the golden ratio."""
    golden = (math.sqrt(5) - 1) / 2
    draws = [(n * samples + u + 1) * golden % 1 for u in range(samples)]
    return [candidates[math.floor(draw * len(candidates))] for draw in draws]


def slow_low_rank(query, key, value, seen, key_mix, value_mix):
    """Keys and values become mixtures over the tokens that are real; every query meets all of these."""
    rank = len(key_mix)
    mixtures = []
    for tokens, mix in ((key, key_mix), (value, value_mix)):
        mixed = torch.zeros(*tokens.shape[:2], rank, tokens.shape[3], dtype=torch.float64)
        for b, a, m in places(tokens):
            for r in range(rank):
                if seen[b, m]:
                    mixed[b, a, r] += mix[r, m].double() * tokens[b, a, m].double()
        mixtures.append(mixed)
    return slow_attention(query, *mixtures, lambda b, a, n, r: True)


def product(first, second):
    """The dot product of two vectors."""
    return sum(x * y for x, y in zip(first.tolist(), second.tolist(), strict=True))


def places(tokens):
    """All (batch, head, token)."""
    batch, heads, length = tokens.shape[:3]
    return [(b, a, n) for b in range(batch) for a in range(heads) for n in range(length)]
