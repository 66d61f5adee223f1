"""Imports that the fork server makes once for all trials. They must not run a torch operation: children would hang."""

from __future__ import annotations

import gc
import pkgutil
from contextlib import suppress
from importlib import import_module

gc.disable()  # importing torch takes a fifth less time
for package in ("model", "task", "probes", "measure", "training"):
    for module in pkgutil.walk_packages(import_module(f"swapformer.{package}").__path__, f"swapformer.{package}."):
        with suppress(Exception):  # the trial that needs it will say what is wrong with it
            import_module(module.name)

for name in ("hydra.utils", "torch._dynamo"):  # imported at first use, by instantiate and by torch's optimisers
    import_module(name)

gc.collect()
gc.freeze()  # keeps the collector of a child from touching, and so copying, the pages it shares with the server
gc.enable()
