"""Probe by the lm-evaluation-harness: its tasks, asked of a trained model, and the adapter that answers them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from itertools import takewhile
from numbers import Real
from typing import Any

import torch

from swapformer.interface import MAIN
from swapformer.model.generate import Prompt, generate, greedy
from swapformer.model.tokens import Tokens
from swapformer.model.topology import Topology
from swapformer.probes.base import Finding, Probe
from swapformer.ranges import Count, Natural
from swapformer.task.base import Task
from swapformer.training.data import drawn_position_range, positions_of

MOST_WRITTEN = 256
"""Symbols that an answer may have where a question does not say."""


class Harness(Probe):
    """Scores in tasks of the lm-evaluation-harness (Gao et al., https://github.com/EleutherAI/lm-evaluation-harness).

    The metrics are `probe/harness/<task>/<metric>`, as the harness names them; with a filter, `<metric>,<filter>`.

    Args:
        tasks: their names.
        include_path: a folder of task files; the harness's own tasks are then not looked for.
        num_fewshot: examples before each question; None as each task says.
        limit: questions of each task; None for all.
    """

    def __init__(
        self, *, tasks: Sequence[str], include_path: str | None, num_fewshot: Natural | None, limit: Count | None
    ) -> None:
        self.tasks, self.include_path, self.num_fewshot, self.limit = list(tasks), include_path, num_fewshot, limit

    def unsuited(self, model: Topology, task: Task) -> str | None:
        if find_spec("lm_eval") is None:
            return "probes=harness needs the lm-evaluation-harness; pip install 'swapformer[harness]'."
        readout = task.interface.readouts[MAIN]
        if not task.predicts_next or readout.kind != "symbols" or model.reads_source or not hasattr(task, "tokeniser"):
            return f"the harness asks in text, which a model of {type(task).__name__} does not read; use task=text."
        return None

    def measure(self, model: Topology, task: Task) -> Finding:
        from lm_eval import simple_evaluate
        from lm_eval.tasks import TaskManager

        found = simple_evaluate(
            adapter(model, task),
            tasks=self.tasks,
            num_fewshot=self.num_fewshot,
            limit=self.limit,
            task_manager=TaskManager(include_path=self.include_path, include_defaults=self.include_path is None),
            bootstrap_iters=0,
            log_samples=False,
        )
        return Finding(
            {
                f"probe/harness/{name}/{metric.removesuffix(',none')}": float(value)
                for name, results in found["results"].items()
                for metric, value in results.items()
                if isinstance(value, Real) and "," in metric and "_stderr" not in metric
            }
        )


def adapter(model: Topology, task: Task) -> Any:
    """A trained model as the harness's `LM`; `sf.load_trial` gives its arguments.

    A text's first symbol is not scored where nothing precedes it. Contexts are cut to the tokens that the model reads,
    on their left. Answers are written greedily. The harness must be installed.
    """
    from lm_eval.api.model import LM

    class Adapter(LM):  # type: ignore[misc]  # of a package without types
        def loglikelihood(self, requests: Sequence[Any], disable_tqdm: bool = False) -> list[tuple[float, bool]]:
            return [_continuation(model, task, *request.args) for request in requests]

        def loglikelihood_rolling(self, requests: Sequence[Any], disable_tqdm: bool = False) -> list[float]:
            return [float(_scores(model, task.encode(request.args[0]))[0].sum()) for request in requests]

        def generate_until(self, requests: Sequence[Any], disable_tqdm: bool = False) -> list[str]:
            return [_written(model, task, *request.args) for request in requests]

    return Adapter()


def _limit(model: Topology) -> int | None:
    """The most tokens that the model reads, each at a position of its own; None for any number."""
    most = min(model.stack.limit, drawn_position_range(model) or math.inf)
    return None if most == math.inf else int(most)


@torch.no_grad()
def _scores(model: Topology, ids: Sequence[int]) -> tuple[torch.Tensor, torch.Tensor]:
    """The log-likelihood of each symbol but the first, and whether it is the most probable one, [T − 1] each.

    A text that is longer than the model reads is cut into windows, each of which begins with the last symbol before.
    """
    row, size = torch.tensor(list(ids)), _limit(model) or len(ids)
    likelihoods, right = [torch.zeros(0, dtype=torch.float64)], [torch.zeros(0, dtype=torch.bool)]
    for start in range(0, len(ids) - 1, size):
        window = row[start : start + size + 1]
        places = positions_of(model, len(window) - 1, "harness", start)
        given = Tokens.of(len(window) - 1, position=None if places is None else places[None])
        logits = model(window[None, :-1], given)[0].double().log_softmax(-1)
        likelihoods.append(logits.gather(1, window[1:, None])[:, 0])
        right.append(logits.argmax(-1) == window[1:])
    return torch.cat(likelihoods), torch.cat(right)


def _continuation(model: Topology, task: Task, context: str, continuation: str) -> tuple[float, bool]:
    """log p(continuation | context), and whether greedy writing gives it.

    White space between them is the continuation's, since a tokeniser may write it as one token with the word behind.
    """
    kept = context.rstrip()
    context, continuation = kept, context[len(kept) :] + continuation
    whole = task.encode(context + continuation)
    # The end of the context may be one symbol with what follows: `retur`, `n`. Then that symbol is the continuation's.
    pairs = zip(whole, task.encode(context) if context else (), strict=False)
    before = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))
    count = len(whole) - max(before, 1)
    if count < 1:
        return 0.0, True
    limit = _limit(model) or len(whole)
    likelihoods, right = _scores(model, whole[-(max(limit, count) + 1) :])
    return float(likelihoods[-count:].sum()), bool(right[-count:].all())


def _written(model: Topology, task: Task, context: str, settings: dict[str, Any]) -> str:
    """The text that the model writes greedily after a context, up to the first of the texts that end it."""
    until = settings.get("until") or []
    stops = [until] if isinstance(until, str) else list(until)
    ids = task.encode(context)[-(_limit(model) or len(context) + 1) :]
    written: list[int] = []
    for symbol in _symbols(model, ids, int(settings.get("max_gen_toks", MOST_WRITTEN))):
        if symbol == task.end_token:
            break
        written.append(symbol)
        text = task.decode([*ids, *written])[len(task.decode(ids)) :]
        if ends := [text.index(stop) for stop in stops if stop and stop in text]:
            return text[: min(ends)]
    return task.decode([*ids, *written])[len(task.decode(ids)) :]


def _symbols(model: Topology, ids: Sequence[int], count: int) -> Iterator[int]:
    if (most := drawn_position_range(model)) is not None:  # no two tokens have the same position
        ids = ids[-max(most - count, 1) :]
        count = min(count, most - len(ids))
    prompt = Prompt(torch.tensor([list(ids)]), positions=positions_of(model, len(ids) + count, "harness", 0))
    for step in generate(model, prompt, count, greedy):
        yield int(step[0])
