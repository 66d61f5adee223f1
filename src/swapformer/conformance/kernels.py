"""Laws about fast computation: kernels, blocks of a band and the cache of generation change no number."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from itertools import product
from typing import Any

import torch
from torch import Tensor

from swapformer.catalogue import options
from swapformer.conformance.subject import LENGTH, Subject, gradients, ids, make_tokens, require, require_near, run
from swapformer.model.context import Context
from swapformer.model.generate import Prompt, StepwiseGeneration
from swapformer.model.kernel import Kernel, Reference
from swapformer.model.normaliser import Normaliser
from swapformer.model.ops import head_sums
from swapformer.model.pattern import Pattern
from swapformer.model.position import Position
from swapformer.model.tokens import Tokens
from swapformer.model.topology import Topology
from swapformer.random import stream
from swapformer.targets import find

KERNEL_SLOTS = ("kernel", "attention", "score", "normaliser", "pattern", "position", "qk_norm")
"""Slots whose parts are arguments of a kernel: these are examined with every kernel, others with their own."""

DRAWS = 400
"""Draws of dropped weights of which a mean and a variance are taken."""

LONG = 80
"""Tokens of a sequence that blocked kernels divide into several blocks."""

WINDOW = {"_target_": "swapformer.model.pattern.Window", "_partial_": True, "_convert_": "all", "before": 9, "after": 2}
REFERENCE = {"_target_": "swapformer.model.kernel.Reference", "_partial_": True, "_convert_": "all"}
BLOCKED = {"_target_": "swapformer.model.kernel.Blocked", "_partial_": True, "_convert_": "all"}


def kernel_equals_reference(subject: Subject) -> str | None:
    """Logits and gradients equal those of the reference kernel, with padding, documents and shifted positions too.

    Examined are all kernels of conf/model/kernel that run on this machine and take the part, or the configuration's own
    kernel if the part is no argument of kernels.
    """
    if "kernel" not in subject.layers[0].attention().uses:
        return "the attention has no kernel"
    nodes = options("kernel")
    reference = nodes.pop("reference")
    if subject.slot not in KERNEL_SLOTS or subject.slot == "kernel":
        nodes = {"its own": subject.config["model"]["kernel"]}
    others = {"position": ("alibi", "transformer_xl"), "attention": ("gqa",), "normaliser": ("sigmoid",)}
    settings: list[dict[str, Any]] = [{}]
    if subject.slot == "kernel":  # a kernel must have what it does not refuse
        settings += [{slot: options(slot)[name]} for slot, names in others.items() for name in names]
    compared = 0
    for (name, node), setting in product(nodes.items(), settings):
        fast = subject.with_model(kernel=node, **setting)
        runs_here = find(node["_target_"]).accelerator in (None, "cpu")
        if runs_here and node != reference and not fast.refused:
            slow = subject.once(f"reference {setting}", subject.with_model(kernel=reference, **setting).perturbed)
            padding = torch.zeros(2, LENGTH, dtype=torch.bool)
            padding[1, LENGTH - 3 :] = padding[0, :2] = True
            document = (torch.arange(LENGTH) >= torch.tensor([[LENGTH // 3], [LENGTH // 2 + 3]])).long()
            both = make_tokens(padding=padding, document=document)
            cases = [make_tokens(), make_tokens(padding=padding), make_tokens(start=7), both]
            fitting = [tokens for tokens in cases if tokens.extent <= subject.config["model"]["max_len"]]
            _agree(f"kernel {name}", fast.perturbed(), slow, ids(), fitting, both)
            compared += 1
    return None if compared else "it is the reference, or no other kernel takes it on this machine"


def _agree(name: str, fast: Topology, slow: Topology, inputs: Tensor, cases: Sequence[Tokens], trained: Tokens) -> None:
    """Raise BrokenLaw unless a model has the logits of the reference in all cases, and its gradients in one."""
    for tokens in cases:
        message = f"{name} must equal the reference, but logits differ by {{gap}}."
        require_near(run(fast, inputs, tokens), run(slow, inputs, tokens), message)
    (_, quick), (_, exact) = (gradients(model, inputs, trained) for model in (fast, slow))
    for weight in exact:
        message = f"{name} must equal the reference, but gradients of {weight} differ by {{gap}}."
        require_near(quick[weight], exact[weight], message)


def kernels_drop_weights(subject: Subject) -> str | None:
    """With a dropout of p each weight is dropped by itself and the others grow by 1 / (1 - p).

    The output's mean over draws is then Σ w v, as without, and its variance p / (1 - p) · Σ (w v)²; both are held over
    DRAWS draws, the variance within a fifth.
    """
    if subject.slot != "kernel":
        return "the part is no kernel"
    p = 0.3
    if subject.with_model(dropout=p).refused:
        return "it refuses dropout"
    model = copy.deepcopy(subject.perturbed())
    attention: Any = next(part for part in model.modules() if isinstance(getattr(part, "kernel", None), Kernel))
    kernel, asked = attention.kernel, []

    def listen(*given: Any) -> Tensor:
        asked.append(given)
        answer: Tensor = kernel(*given)
        return answer

    attention.kernel = listen
    run(model, ids())
    q, k, v, plan, position, context, _ = asked[0]
    weights = plan.normaliser(Reference.logits(q, k, plan, position, context))
    mean, variance = head_sums(weights, v), p / (1 - p) * head_sums(weights.square(), v.square())
    torch.manual_seed(0)
    with torch.no_grad():
        draws = torch.stack([kernel(q, k, v, plan, position, context, p) for _ in range(DRAWS)])
    off = float((draws.mean(0) - mean).square().sum() / variance.sum()) * DRAWS
    require(
        off < 2,
        f"dropped weights must leave the mean of the output as it is, but it is {off**0.5:.1f} standard errors away.",
    )
    spread = float(draws.var(0).sum() / variance.sum())
    require(
        0.8 < spread < 1.25,
        f"each weight must be dropped by itself, but the output varies by {spread:.2f} times what that would give.",
    )
    return None


def blocks_equal_the_whole(subject: Subject) -> str | None:
    """A band computed block by block equals the reference: logits and gradients, with padding too.

    This requires patterns that allow nothing beyond the reach that they state, positions whose terms for a block are
    those of the whole, and normalisers whose weights do not depend on forbidden keys.
    """
    if subject.slot not in KERNEL_SLOTS or "kernel" not in subject.layers[0].attention().uses:
        return "the part is no argument of a kernel"
    layer = subject.layers[0]
    _reach(layer.pattern())
    _terms_of_a_block(next(iter(subject.perturbed().stack.positions.values())), layer.dims.num_heads, subject)  # type: ignore[arg-type]
    _absent_keys(layer.part("normaliser").double(), layer.dims.num_heads)
    band = subject if layer.pattern().reach.bounded else subject.with_model(pattern=WINDOW)
    fast = band if subject.slot == "kernel" else band.with_model(kernel=BLOCKED)
    if (refusal := fast.layers[0].attention().refuses(fast.layers[0].position())) is not None:
        return refusal
    padding, plain = torch.zeros(2, LONG, dtype=torch.bool), make_tokens(LONG)
    padding[0, :3] = padding[1, -40:] = True
    models = fast.perturbed(), band.with_model(kernel=REFERENCE).perturbed()
    _agree("a band from its blocks", *models, ids(2, LONG), [plain, make_tokens(LONG, padding=padding)], plain)
    return None


def _reach(pattern: Pattern) -> None:
    tokens, reach = make_tokens(LONG), pattern.reach
    allowed = pattern.allowed(tokens, tokens)
    order = torch.arange(LONG)
    ahead, marked = order[None] - order[:, None], torch.isin(order, torch.tensor(reach.landmarks).long())
    within = (ahead >= -reach.before) & (ahead <= reach.after) & (ahead % reach.step == 0)
    beyond = ~(within | marked[:, None] | marked)
    require(
        not (beyond if allowed is None else allowed & beyond).any(),
        f"a pattern must allow nothing beyond its stated reach, {reach}, but it does: state a wider `reach`.",
    )


def _terms_of_a_block(position: Position, heads: int, subject: Subject) -> None:
    queries, keys = slice(8, 12), slice(1, 6)
    tokens = make_tokens()
    whole = Context(tokens, tokens, dtype=torch.float64)
    block, pick = whole.at(queries, keys), (..., queries, keys)
    if (bias := position.bias(whole)) is not None:
        own: Any = position.bias(block)
        same = torch.allclose(own, bias.expand(-1, -1, LENGTH, LENGTH)[pick], rtol=0, atol=1e-10)
        require(
            same, "a bias for some queries and keys must be that part of the whole: read `context`, not the length."
        )
    q, k = torch.randn(
        2, 1, heads, LENGTH, subject.layers[0].dims.head_dim, generator=stream("block"), dtype=torch.float64
    )
    if (scores := position.scores(q, k, whole)) is not None:
        own = position.scores(q[:, :, queries], k[:, :, keys], block)
        same = torch.allclose(own, scores.expand(-1, -1, LENGTH, LENGTH)[pick], rtol=0, atol=1e-10)
        require(
            same == position.pairwise,
            f"pairwise={position.pairwise} is stated, but scores for some queries and keys are "
            f"{'those' if same else 'not those'} of the whole.",
        )


def _absent_keys(normaliser: Normaliser, heads: int) -> None:
    logits = torch.randn(2, heads, 3, 9, generator=stream("absent"), dtype=torch.float64)
    with torch.no_grad():
        alone = normaliser(logits[..., :4])
        logits[..., 4:] = float("-inf")
        gap = (normaliser(logits)[..., :4] - alone).abs().max().item()
    require(gap < 1e-12, f"weights must not depend on forbidden keys, but they change by {gap:.2g} without them.")


def cache_changes_nothing(subject: Subject) -> str | None:
    """Logits of tokens that are read one after the other, with a cache, are those of reading all again for each.

    One prompt is shorter, and padded on the left; on the way rows are left out, repeated and put in another order.
    """
    model = subject.perturbed()
    if not model.stack.can_cache:
        return "its parts cannot cache tokens, so each symbol is generated from the whole sequence"
    if model.stack.tags:
        return "its pattern reads tags, which generated tokens do not have"
    if model.reads_source:
        return "the cache of a source is tested elsewhere"
    inputs, prompt = ids(3), LENGTH // 2
    padding = torch.zeros(3, prompt, dtype=torch.bool)
    padding[0, :3] = True
    given = Prompt(inputs[:, :prompt], padding)
    with torch.no_grad():
        cached, whole = (StepwiseGeneration(model, given, cache=cache) for cache in (True, False))
        for index in range(prompt, prompt + 6):
            message = "generating with a cache must equal reading at once, but logits differ by {gap}."
            require_near(cached.logits(), whole.logits(), message)
            for generation in (cached, whole):
                generation.append(inputs[:, index])
                if index == prompt + 2:
                    generation.select(torch.tensor([2, 0, 2]))
    return None
