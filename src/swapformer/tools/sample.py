"""`swapformer sample`: generates text with a trained model."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from itertools import chain, takewhile

import torch

from swapformer.console import CommandLine, at_least, within
from swapformer.errors import UsageError
from swapformer.model.generate import Choose, Prompt, Sampler, beam_search, generate, greedy
from swapformer.model.tokens import Tokens
from swapformer.model.topology import Topology
from swapformer.random import stream
from swapformer.results.config import built_from, require_config
from swapformer.results.store import last_checkpoint
from swapformer.study.config.sizes import gigabytes, memory
from swapformer.task.base import Task
from swapformer.task.language import Language
from swapformer.tools.command_line import add_common, store_of
from swapformer.training.data import draw_positions, drawn_position_range, positions_of
from swapformer.training.weights import restore_writer

MOST_BEAMS = 10_000
LEAST_TEMPERATURE = 1e-6
"""Below it all of the probability is on the most probable symbol, in floats as on paper."""


def main(arguments: Sequence[str]) -> int:
    """Write what follows the prompt, symbol by symbol as it is chosen."""
    options = parser().parse_intermixed_args(arguments)
    store = store_of(options.overrides)
    record = store.find(options.trial)
    directory = store.directory(record.id)
    if not last_checkpoint(directory).exists():
        raise UsageError(f"trial {record.id} is {record.status} and has no checkpoint to write with; train it first.")
    config = require_config(directory)
    task, model = restore_writer(config, directory)
    if not task.predicts_next:
        raise UsageError(
            f"only a model that was trained to predict what comes next can write, but trial {record.id} learned "
            f"{task.name if isinstance(task, Language) else type(task).__name__}."
        )
    with built_from(directory):
        torch.set_num_threads(config["trainer"]["threads"])
    try:
        prompt = _prompt(task, model, options)
        _show(task, _written(task, model, prompt, options), [] if prompt.source is not None else prompt.ids[0].tolist())
    except ValueError as error:
        raise UsageError(str(error)) from error
    return 0


def parser() -> argparse.ArgumentParser:
    """The command line."""
    made = CommandLine(prog="swapformer sample", description="A trained model writes.")
    made.add_argument("trial", help="the beginning of a trial's id; swapformer trials lists them")
    made.add_argument("overrides", nargs="*", metavar="runs_dir=…", help="where the trial is kept")
    made.add_argument("--prompt", required=True, help="what it goes on from; of an encoder-decoder, the source")
    made.add_argument("--tokens", type=int, default=200, help="symbols to write at most (default 200)")
    made.add_argument("--temperature", type=within(0, 1e6), help="0 takes the most probable symbol (default 1)")
    made.add_argument("--top-k", type=at_least(1), help="draw among the k most probable symbols")
    made.add_argument("--top-p", type=within(0, 1), help="draw among the fewest symbols that reach p together")
    made.add_argument(
        "--beams", type=at_least(1, MOST_BEAMS), help="search with so many beams for the most probable answer instead"
    )
    made.add_argument("--length-penalty", type=within(-100, 100), help="of the beams' scores (default 0)")
    made.add_argument("--seed", type=int, default=0, help="names the random draws (default 0)")
    made.add_argument("--no-cache", action="store_true", help="compute all positions anew for each symbol")
    return add_common(made, json=False)


def _written(task: Task, model: Topology, prompt: Prompt, options: argparse.Namespace) -> Iterator[int]:
    """The symbols that are written, up to the end token."""
    beams = options.beams is not None
    idle = ("temperature", "top_k", "top_p") if beams else ("length_penalty",)
    if given := [name for name in idle if getattr(options, name) is not None]:
        how = "with --beams, which search and do not draw" if beams else "without --beams"
        raise UsageError(f"--{given[0].replace('_', '-')} does nothing {how}; remove it")
    if beams:
        if task.end_token is None:
            raise UsageError("beams compare whole answers, but this task's texts have no end; leave out --beams.")
        _require_memory(model, prompt.ids.shape[1] + options.tokens, options.beams)
        found, _ = beam_search(
            model, prompt, options.tokens, width=options.beams, stop=task.end_token,
            length_penalty=options.length_penalty or 0.0, cache=not options.no_cache,
        )  # fmt: skip
        symbols: Iterator[int] = iter(found[0].tolist())
    else:
        choose: Choose = greedy
        temperature = 1.0 if options.temperature is None else options.temperature
        top_p = 1.0 if options.top_p is None else options.top_p
        if temperature >= LEAST_TEMPERATURE:
            choose = Sampler(stream("sample", options.seed), temperature, options.top_k, top_p)
        steps = generate(model, prompt, options.tokens, choose, cache=not options.no_cache)
        symbols = (int(step[0]) for step in steps)
    return takewhile(lambda symbol: symbol != task.end_token, symbols)


def _require_memory(model: Topology, length: int, beams: int) -> None:
    """Refuse beams that this machine cannot hold: their probabilities, and keys and values in each layer."""
    dims = model.dims
    needed = 4.0 * beams * (3 * dims.vocab_size + 2 * length * dims.num_layers * dims.d_model)
    if needed > memory():
        raise UsageError(
            f"{beams:,} beams of {length:,} tokens take {gigabytes(needed)}, but this machine has "
            f"{gigabytes(memory())}; lower --beams or --tokens"
        )


def _prompt(task: Task, model: Topology, options: argparse.Namespace) -> Prompt:
    if options.tokens < 1:
        raise UsageError(f"`--tokens` must be at least 1, but it is {options.tokens}.")
    ids = torch.tensor([task.encode(options.prompt)], dtype=torch.int64)
    if not ids.numel():
        raise UsageError("a prompt must have at least one symbol of the task.")
    source = None
    if model.reads_source and not model.reads_ahead:
        assert task.start_token is not None, "a task with a source has a token that answers begin with"
        source, ids = ids, torch.tensor([[task.start_token]])
    drawn_from, length = drawn_position_range(model), ids.shape[1] + options.tokens
    positions = positions_of(model, length, "sample", options.seed)
    source_tokens = None
    if source is not None and drawn_from is not None:
        places = draw_positions(source.shape[1], drawn_from, "source", "sample", options.seed)
        source_tokens = Tokens.of(source.shape[1], position=places[None])
    return Prompt(ids, source=source, source_tokens=source_tokens, positions=positions)


def _show(task: Task, symbols: Iterator[int], before: list[int]) -> None:
    """Print the text as it is generated, behind the symbols `before`.

    A character may take several symbols: what is not whole yet waits.
    """
    written = list(before)
    shown = ""
    for symbol in chain([None], symbols):
        if symbol is not None:
            written.append(symbol)
        text = task.decode(written).removesuffix("\N{REPLACEMENT CHARACTER}")
        if text.startswith(shown):
            sys.stdout.write(text[len(shown) :])
            sys.stdout.flush()
            shown = text
    print()
