"""`swapformer report A B`: two studies, or two scales of one, side by side."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from swapformer.errors import UsageError
from swapformer.report.build import write
from swapformer.report.page.versus_page import print_versus, render, versus_dict
from swapformer.report.versus import Versus, compare, judge_study
from swapformer.results.config import differences, read_config
from swapformer.results.manifest import Manifest, manifest_path
from swapformer.tools.lookup import store_of, study_folder

NOT_COMPARED = ("runs_dir", "logger", "seed")
"""Keys of a config that say where a trial is kept and shown, or which of several it is, not what it is."""
FOLLOWING = "the seed"
"""What `data_seed` is where it is not set: each trial draws its batches by its own seed."""


def run(names: Sequence[str], overrides: Sequence[str], as_json: bool) -> None:
    """Write the page into the first study's report folder, and print."""
    folders = [_folder(name, overrides) for name in names]
    if folders[0] == folders[1]:
        raise UsageError(f"two different studies are compared, but both names mean {folders[0]}")
    labels = [folder.name for folder in folders]
    if labels[0] == labels[1]:  # of two stores
        labels = [str(folder) for folder in folders]
    a, b = (judge_study(label, folder, folder.parents[1]) for label, folder in zip(labels, folders, strict=True))
    found = compare(a, b, differences(_config(a.manifest, folders[0]), _config(b.manifest, folders[1])))
    page = f"against_{folders[1].name}.html"
    (path,) = write(folders[0] / "report", {page: render(found)}, clean=False)
    _print(found, path, as_json)


def _folder(name: str, overrides: Sequence[str]) -> Path:
    """The study that a name means, or the folder of one in another store."""
    path = Path(name)
    if manifest_path(path).is_file():
        return path.resolve()
    return study_folder(store_of(overrides), name)


def _config(manifest: Manifest, folder: Path) -> dict[str, object]:
    """The baseline's settings as far as they are compared."""
    config = {key: value for key, value in manifest.shared_config.items() if key not in NOT_COMPARED}
    if "data_seed" in config and _follows(manifest, folder.parents[1]):
        config["data_seed"] = FOLLOWING
    return config


def _follows(manifest: Manifest, runs_dir: Path) -> bool:
    """Whether trials draw their batches by their own seed, by the configs of the baseline's first and last trial."""
    trials = [cell.trial for cell in manifest.cells if cell.arm == manifest.baseline]
    last = read_config(runs_dir / "trials" / trials[-1]) if trials else {}
    return all(each.get("data_seed") == each.get("seed") for each in (manifest.shared_config, last))


def _print(found: Versus, path: Path, as_json: bool) -> None:
    if as_json:
        print(json.dumps({**versus_dict(found), "file": str(path)}, indent=1))
        return
    console = Console()
    print_versus(found, console)
    console.print(str(path), soft_wrap=True, markup=False, highlight=False)
