"""The law of facts: the facts that parts state, by which compatibility is decided, must be true."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import torch

from swapformer.conformance.subject import (
    CAUSAL,
    LENGTH,
    VOCABULARY,
    Subject,
    gradients,
    ids,
    make_tokens,
    require,
    run,
)
from swapformer.model.attention import Attention
from swapformer.model.context import Context
from swapformer.model.layers import Origin, Role
from swapformer.model.normaliser import Normaliser
from swapformer.model.pattern import Causal, Pattern
from swapformer.random import stream
from swapformer.training.assemble import factory


def facts_hold(subject: Subject) -> None:
    """Every fact that the parts of a layer state is true."""
    layer = subject.layers[0]
    _pattern_facts(layer.pattern(), subject)
    _position_facts(subject)
    _attention_facts(subject)
    _norm_facts(subject)
    _ffn_facts(subject)
    init = factory(subject.config["model"]["init"])(layer.dims)
    _require_fact(init, "zero_head", init.std(Origin(Role.HEAD, layer.dims.d_model, VOCABULARY)) == 0)
    _residual_facts(subject)
    if layer.part("score").is_dot:
        score = layer.part("score")
        q, k = torch.randn(2, 1, 1, 3, layer.dims.head_dim, dtype=torch.float64)
        require(torch.allclose(score.raw(q, k), q @ k.mT), "a score that states `is_dot` must be q·k.")
    _normaliser_facts(layer.part("normaliser").double(), layer.dims.num_heads)


def _require_fact(part: Any, fact: str, found: bool) -> None:
    """Raise BrokenLaw unless a part states the fact as it was found."""
    stated = getattr(part, fact)
    require(found == stated, f"{fact}={stated} is stated, but it is {found}.")


def _attention_facts(subject: Subject) -> None:
    model = subject.perturbed()
    attention: Any = model.stack.layers[0].attention
    _weights(attention, subject)
    _extension_facts(subject)
    if subject.slot != "attention":
        return
    if not attention.causal_safe:
        _refuses(
            subject.with_model(pattern=CAUSAL).build,
            "an attention that states causal_safe=False must refuse a causal pattern with ValueError.",
        )
    if attention.limit is not None:
        beyond = make_tokens(LENGTH, start=attention.limit - LENGTH + 1)
        _refuses(
            lambda: run(model, ids(), beyond),
            f"an attention that states limit={attention.limit} must raise ValueError beyond it.",
        )


def _extension_facts(subject: Subject) -> None:
    """Check shares_values, has_auxiliary_loss and training_only, which attentions state for their extensions."""
    if subject.slot not in ("attention", "extension"):
        return
    layers: Any = copy.deepcopy(subject.perturbed()).stack.layers
    first, last = layers[0].attention, layers[-1].attention
    position: Any = next(iter(subject.perturbed().stack.positions.values()))
    width, tokens = subject.layers[-1].dims.d_model, make_tokens()
    x, other = torch.randn(2, 2, LENGTH, width, generator=stream("extensions"), dtype=torch.float64)
    contexts = [Context(tokens, tokens, dtype=torch.float64) for _ in range(2)]
    with torch.no_grad():
        for context, inputs in zip(contexts, (x, other), strict=True):
            first(inputs, context, position)
        mixes = not torch.equal(*(last(x, context, position) for context in contexts))
    shares = last.shares_values is not None
    require(mixes == shares, f"shares_values={shares} is stated, but the first layer's values change others: {mixes}.")
    last.train()(x, contexts[0], position)
    _require_fact(last, "has_auxiliary_loss", getattr(last, "auxiliary_loss", None) is not None)
    if subject.slot == "extension":
        idle = torch.equal(run(subject.perturbed(), ids()), run(subject.with_model(extension={}).perturbed(), ids()))
        message = "an extension that states training_only=True must leave evaluation as it is."
        require(idle or not subject.part.training_only, message)


def _weights(attention: Attention, subject: Subject) -> None:
    """The weights of an attention are zero for forbidden keys, and below zero only if `signed` is stated."""
    layer, padding = subject.layers[0], torch.arange(LENGTH)[None] >= LENGTH - 3
    tokens = make_tokens(padding=padding)
    context = Context(tokens, tokens, dtype=torch.float64)
    position: Any = next(iter(subject.perturbed().stack.positions.values()))
    x = torch.randn(2, LENGTH, layer.dims.d_model, generator=stream("weights"), dtype=torch.float64)
    with torch.no_grad():
        weights = attention.weights(x, context, position)
    if weights is None:
        return
    expected = (2, layer.dims.num_heads, LENGTH, LENGTH)
    require(weights.shape == expected, f"weights must be [B, H, Q, K] = {expected}, but are {tuple(weights.shape)}.")
    mask = context.mask(layer.pattern())
    assert mask is not None, "there is padding"
    forbidden = ~mask & ~padding[:, None, :, None]
    require(not (weights * forbidden).any(), "weights must be zero where the pattern or padding forbids a key.")
    require(attention.signed or bool((weights >= 0).all()), "weights below zero must be stated by signed=True.")


def _refuses(use: Callable[[], object], message: str) -> None:
    """Require that `use` raises ValueError."""
    try:
        use()
    except ValueError:
        return
    require(False, message)


def _normaliser_facts(normaliser: Normaliser, heads: int) -> None:
    logits = torch.randn(2, heads, 3, 5, dtype=torch.float64)
    weights = normaliser(logits).detach()
    if normaliser.is_softmax:
        require(torch.allclose(weights, logits.softmax(-1)), "a normaliser that states `is_softmax` must be softmax.")
    unit = torch.allclose(weights.sum(-1), torch.ones(2, heads, 3, dtype=torch.float64))
    _require_fact(normaliser, "sums_to_one", unit)
    logits[0, 0, 0] = float("-inf")
    require(not normaliser(logits)[0, 0, 0].any(), "a query without allowed keys must get zero weights.")


def _norm_facts(subject: Subject) -> None:
    norm = subject.layers[0].norm().double().train()
    with torch.no_grad():
        for parameter in norm.parameters():
            parameter.add_(0.3)
    x = torch.randn(2, LENGTH, subject.layers[0].dims.d_model, dtype=torch.float64)
    other = x.clone()
    other[:, 1:] += 1 + x[:, 1:].square()
    with torch.no_grad():
        changed = bool((norm(x) - norm(other))[:, 0].abs().max() > 1e-9)
        acts = not torch.equal(norm(x), x)
        bounded = bool(norm(1000 * x).std() < 500 * norm(x).std())
    _require_fact(norm, "crosses_positions", changed)
    _require_fact(norm, "normalises", acts)
    _require_fact(norm, "rescales", bounded)


def _pattern_facts(pattern: Pattern, subject: Subject) -> None:
    tokens = make_tokens()
    allowed = pattern.allowed(tokens, tokens)
    dense = torch.ones(1, 1, LENGTH, LENGTH, dtype=torch.bool) if allowed is None else allowed
    require(bool(dense.any(-1).all()), "every query must be allowed at least one key.")
    require(not pattern.full or bool(dense.all()), "a pattern that states `full` must allow everything.")
    _require_fact(pattern, "causal", not dense.triu(1).any())
    prefix = make_tokens(LENGTH - 5)
    alone = pattern.allowed(prefix, prefix)
    same = alone is None or torch.equal(dense[..., : LENGTH - 5, : LENGTH - 5].expand(alone.shape), alone)
    require(
        same or pattern.depends_on_length,
        "depends_on_length=False is stated, but what a prefix allows depends on how many tokens follow.",
    )
    exact = Causal(subject.layers[0].dims).allowed(tokens, tokens)
    if pattern.plain_causal:
        require(
            torch.equal(dense, exact), "a pattern that states `plain_causal` must allow all earlier tokens and itself."
        )


def _position_facts(subject: Subject) -> None:
    model = subject.perturbed()
    position: Any = next(iter(model.stack.positions.values()))
    heads, width = subject.layers[0].position_dims.num_heads, subject.layers[0].position_dims.head_dim
    tokens = make_tokens()
    context = Context(tokens, tokens, dtype=torch.float64)
    q, k = torch.randn(2, 1, heads, LENGTH, width, dtype=torch.float64)
    stated = (position.has_bias, position.has_scores)
    found = (position.bias(context) is not None, position.scores(q, k, context) is not None)
    require(stated == found, f"has_bias, has_scores are stated as {stated}, but are {found}.")
    x = torch.randn(1, LENGTH, subject.layers[0].dims.d_model, dtype=torch.float64)
    adds = not torch.equal(position.embed(x, tokens), x)
    _require_fact(position, "embeds", adds)
    require(
        not any(part.reads and part.embeds for part in position.encodings()),
        "what is added to the embeddings must not depend on the heads, or layers with different heads add it more than "
        "once: state `reads = ()`.",
    )


def _ffn_facts(subject: Subject) -> None:
    layer = subject.layers[0]
    ffn = copy.deepcopy(next(module for module in subject.perturbed().modules() if type(module) is type(layer.ffn())))
    x = torch.randn(1, LENGTH, layer.dims.d_model, dtype=torch.float64)
    out = ffn.train()(x)
    _require_fact(ffn, "present", bool(out.any()))
    _require_fact(ffn, "has_auxiliary_loss", getattr(ffn, "auxiliary_loss", None) is not None)


def _residual_facts(subject: Subject) -> None:
    """Check counts_updates, carries and recomputes: weights by branches, a zero update, and calls in a step."""
    residual = subject.layers[0].residual()
    first, second, *_ = (module for module in subject.perturbed().modules() if type(module) is type(residual))
    sizes = [[w.shape for w in subject.layers[-1].residual(0, branches).parameters()] for branches in (2, 3)]
    _require_fact(residual, "counts_updates", sizes[0] != sizes[1])
    x = torch.randn(1, 3, subject.layers[0].dims.d_model, generator=stream("carried"), dtype=torch.float64)
    with torch.no_grad():
        left: Any = second.read(first.write(first.open(x), torch.zeros_like(x)))
    _require_fact(residual, "carries", bool(left.any()))
    model, runs = copy.deepcopy(subject.perturbed()), []
    ffn = next(module for module in model.modules() if type(module) is type(subject.layers[0].ffn()))
    ffn.register_forward_hook(lambda *_: runs.append(1))
    gradients(model, ids())
    if subject.layers[0].ffn().present:
        _require_fact(residual, "recomputes", len(runs) > 1)
