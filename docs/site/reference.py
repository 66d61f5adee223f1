"""The reference of the Python interface: what `import swapformer` gives, and the bases of things of one's own."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from importlib import import_module

import swapformer
from docs.site.docstrings import markdown, signature

BASES = {
    "Parts": (
        *("model.position.Position", "model.attention.Attention", "model.score.Score", "model.normaliser.Normaliser"),
        *("model.pattern.Pattern", "model.kernel.Kernel", "model.norm.Norm", "model.qk_norm.QKNorm"),
        *("model.placement.Placement", "model.residual.Residual", "model.block.Block", "model.ffn.FFN"),
        *("model.activation.Activation", "model.depth.Depth", "model.init.Init", "model.topology.Topology"),
        *("model.extension.Extension", "model.tokens.Tokens", "model.context.Context", "model.dims.Dims"),
    ),
    "Tasks and data": ("task.base.Task", "task.base.Batch", "task.base.EvaluationSet", "task.synthetic.Synthetic"),
    "Probes and measurements": ("probes.base.Probe", "measure.base.Measurement"),
    "Training": ("training.schedule.Schedule",),
    "Stored files": ("results.store.Store", "results.record.Record"),
}


def pages() -> dict[str, str]:
    """Path → text: one page for what the package gives, and one for each kind of base."""
    names = sorted(name for name in dir(swapformer) if not name.startswith("_"))
    found = {
        "reference/swapformer.md": "# `swapformer`\n\n"
        + "\n\n".join(_entry(name, getattr(swapformer, name)) for name in names)
    }
    for kind, paths in BASES.items():
        entries = [_entry(*_found(path)) for path in paths]
        found[f"reference/{kind.lower().replace(' ', '_')}.md"] = f"# {kind}\n\n" + "\n\n".join(entries)
    return found


def _found(path: str) -> tuple[str, object]:
    """The name of a class and the class."""
    module, _, name = path.rpartition(".")
    return name, getattr(import_module(f"swapformer.{module}"), name)


def _entry(name: str, made: object) -> str:
    text = [f"## `{name}`"]
    if callable(made):
        text.append(signature(name, made))
    text.append(markdown(inspect.getdoc(made) or ""))
    if inspect.isclass(made):
        text += _methods(made)
    return "\n\n".join(text)


def _methods(cls: type) -> Iterator[str]:
    """The public methods that a class defines itself."""
    for name, member in vars(cls).items():
        function = member.__func__ if isinstance(member, classmethod | staticmethod) else member
        function = function.fget if isinstance(function, property) else function
        if name.startswith("_") or not inspect.isfunction(function) or not function.__doc__:
            continue
        call = f"`{name}`" if isinstance(member, property) else signature(name, function)
        yield f"### `{cls.__name__}.{name}`\n\n{call}\n\n{markdown(function.__doc__)}"
