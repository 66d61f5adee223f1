"""`swapformer report A B`: compares two studies, or two scales of one, side by side."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from swapformer.console import terminal
from swapformer.errors import UsageError
from swapformer.report.build import write
from swapformer.report.page.versus_page import print_versus, render, versus_dict
from swapformer.report.versus import compare, judge_study
from swapformer.results.config import differences, read_config
from swapformer.results.manifest import Manifest, manifest_path, place_of
from swapformer.tools.command_line import store_of, study_folder

NOT_COMPARED = ("runs_dir", "logger", "seed")
"""Keys of a config that say where a trial is stored and shown, or name its seed, not what it is."""
TRIAL_SEED = "the seed"
"""The value of `data_seed` where it is not set: each trial draws its batches by its own seed."""


def run(names: Sequence[str], overrides: Sequence[str], as_json: bool) -> None:
    """Write a page into the first study's report folder, and print the comparison."""
    folders = [_folder(name, overrides) for name in names]
    if folders[0] == folders[1]:
        raise UsageError(f"two different studies are compared, but both names mean {folders[0]}")
    stores, labels = zip(*map(place_of, folders), strict=True)
    page = f"against_{labels[1].replace('/', '.')}.html"
    if labels[0] == labels[1]:  # of two stores
        labels = tuple(map(str, folders))
    a, b = (judge_study(*each) for each in zip(labels, folders, stores, strict=True))
    found = compare(a, b, differences(_config(a.manifest, folders[0]), _config(b.manifest, folders[1])))
    (path,) = write(folders[0] / "report", {page: render(found)}, clean=False)
    if as_json:
        print(json.dumps({**versus_dict(found), "file": str(path)}, indent=1))
        return
    console = terminal()
    print_versus(found, console)
    console.print(str(path), soft_wrap=True, markup=False, highlight=False)


def _folder(name: str, overrides: Sequence[str]) -> Path:
    """The folder of the study of this name, or the folder that the name is a path of."""
    path = Path(name)
    if manifest_path(path).is_file():
        return path.resolve()
    return study_folder(store_of(overrides), name)


def _config(manifest: Manifest, folder: Path) -> dict[str, object]:
    """The baseline's settings without those that are not compared."""
    config = {key: value for key, value in manifest.shared_config.items() if key not in NOT_COMPARED}
    trials = [cell.trial for cell in manifest.cells if cell.arm == manifest.baseline]
    last = read_config(place_of(folder)[0] / "trials" / trials[-1]) if trials else {}
    # Trials draw their batches by their own seed if the baseline's first and last trial both do.
    if "data_seed" in config and all(c.get("data_seed") == c.get("seed") for c in (manifest.shared_config, last)):
        config["data_seed"] = TRIAL_SEED
    task = config.get("task")
    if isinstance(task, dict) and "batch_size" in task:  # what older trials were evaluated in
        config["task"] = {**task, "eval_batch_size": task.get("eval_batch_size") or task["batch_size"]}
    return config
