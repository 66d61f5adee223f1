"""What studies came to, shown after their trials."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from swapformer.mirror.base import Destination, Say
from swapformer.mirror.findings import findings
from swapformer.mirror.follow import Target
from swapformer.mirror.process import folder_of
from swapformer.results.store import Store


def show_studies(
    targets: Sequence[Target], store: Store, place: Destination, say: Say, done: Callable[[], None]
) -> None:
    """Show the verdicts of each study that the targets belong to; what goes wrong is said, and ends nothing."""
    for study in dict.fromkeys(target.study for target in targets if target.study):
        try:
            place.show(findings(store.studies / study, store.runs_dir), folder_of(store), say)
            done()
        except Exception as error:
            say(f"{type(error).__name__}: {error}")
