"""Words that refer to what was said: pronouns that are bound by a feature, and turns of a dialogue."""

from swapformer.task.reference.coreference import Coreference
from swapformer.task.reference.dialogue import Dialogue

__all__ = ["Coreference", "Dialogue"]
