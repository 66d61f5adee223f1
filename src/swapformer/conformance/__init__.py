"""What every part must satisfy, whoever wrote it: laws that a model built from a configuration obeys."""

from swapformer.conformance.laws import FIRST, LAWS, Verdict, examine
from swapformer.conformance.subject import BrokenLaw

__all__ = ["FIRST", "LAWS", "BrokenLaw", "Verdict", "examine"]
