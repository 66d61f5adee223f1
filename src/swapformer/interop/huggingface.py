"""A causal or masked language model of Hugging Face's transformers, as an arm of a study."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from swapformer.errors import UsageError, cut


class HuggingFaceModel(nn.Module):
    """Token ids [B, T] → logits [B, T, V] by the model of a `config.json`, with weights that the trial draws.

    Weights are float32 whatever `config.json` says of their type: precision is `trainer.precision`'s, as for all arms.

    The vocabulary is the task's. A model whose `architectures` name one for masked symbols is that one; any other is
    causal. Trained weights are loaded by `swapformer import`, where the architecture is one that swapformer has.

    Args:
        config: a config.json, the folder that holds it, or its content.
        vocab_size: symbols of the task.
        max_len: its longest sequence.

    Attributes:
        notes: what the record says besides: the dropout of the config.json, which `model.dropout` does not set.

    Raises:
        ValueError: without transformers, for what is no configuration, or one whose positions end before `max_len`.
    """

    def __init__(self, *, config: str | Mapping[str, Any], vocab_size: int, max_len: int) -> None:
        super().__init__()
        try:
            from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForMaskedLM
        except ImportError as error:
            raise ValueError("model=huggingface needs transformers; pip install transformers.") from error
        said = dict(self.resolved(config=config)["config"])
        try:
            family = said.pop("model_type", None)
            known: Any = AutoConfig.for_model(family, **said)
            names = {*AutoConfig.for_model(family).to_dict(), *known.attribute_map}
        except (KeyError, TypeError, ValueError) as error:
            raise ValueError(f"model.config must be a config.json of transformers, but: {cut(error)}") from error
        _require_spelled(said, names)
        limit = getattr(known, "max_position_embeddings", None)
        if limit is not None and limit < max_len:
            raise ValueError(
                f"the task's longest sequence has {max_len} tokens, but model.config says max_position_embeddings="
                f"{limit}; "
                "raise it there, or shorten the task."
            )
        known.vocab_size, known.use_cache = vocab_size, False
        for name in ("bos_token_id", "eos_token_id", "pad_token_id"):  # of another vocabulary
            setattr(known, name, None)
        masked = any(name.endswith("ForMaskedLM") for name in known.architectures or ())
        kind: Any = AutoModelForMaskedLM if masked else AutoModelForCausalLM
        self.model: Any = kind.from_config(known).float()
        heads = ("summary", "classifier")  # of other answers
        said = {name: rate for name, rate in known.to_dict().items() if "drop" in name and not name.startswith(heads)}
        told = ", ".join(f"{name}={rate}" for name, rate in said.items() if rate)
        self.notes = (
            f"trains with {told}, its own or transformers' default; arms of slots have model.dropout",
        ) * bool(told)

    @staticmethod
    def resolved(config: str | Mapping[str, Any]) -> dict[str, Any]:
        """The settings with the file's content instead of its path: a trial is known by what the file says.

        The type of its weights is left out.
        """
        if not isinstance(config, str):
            return {"config": {key: value for key, value in config.items() if key not in ("dtype", "torch_dtype")}}
        path = Path(config) / "config.json" if Path(config).is_dir() else Path(config)
        try:
            found = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise UsageError(f"model.config must be a config.json or its folder, but {config}: {cut(error)}") from error
        if not isinstance(found, dict):
            raise UsageError(f"model.config must be a config.json of transformers, but {config} holds no settings")
        return HuggingFaceModel.resolved(found)

    def forward(self, ids: Tensor, attention_mask: Tensor | None = None) -> Any:
        return self.model(input_ids=ids, attention_mask=attention_mask)


def _require_spelled(said: Iterable[str], known: Collection[str]) -> None:
    """Raise UsageError for a setting that is nearly one of `known`: transformers would keep it, and ignore it.

    Other unknown settings pass: files of checkpoints hold those of other versions and programs.
    """
    for name in said:
        near = get_close_matches(name, known, n=1, cutoff=0.8)
        if near and name not in known and not name.endswith("_token_id"):
            raise UsageError(
                f"model.config must spell its settings as transformers does, but this model has no {name!r}; "
                f"write {near[0]}, or leave it out"
            )
