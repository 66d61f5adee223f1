"""A model's forward in training, compiled by torch."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch

from swapformer.errors import UsageError


def compiled(function: Callable[..., Any], trainer: Mapping[str, Any]) -> Callable[..., Any]:
    """The same function, compiled at its first call; weights keep their names.

    Raises:
        UsageError: on the CPU without a C++ compiler.
    """
    from torch._inductor import config, cpp_builder
    from torch._inductor.exc import InvalidCxxCompiler

    if trainer["accelerator"] == "cpu":
        try:
            cpp_builder.get_cpp_compiler()
        except InvalidCxxCompiler as error:
            raise UsageError(
                "trainer.compile=true needs a C++ compiler on the CPU, but there is none; install g++ or clang, name "
                "one in the environment variable CXX, or use trainer.compile=false."
            ) from error
    config.compile_threads = 1  # in this process: a trial has its own cores, and leaves no helpers behind
    return torch.compile(function)
