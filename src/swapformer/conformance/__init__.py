"""Conformance: laws that every part of a model must satisfy, those of users included."""

from swapformer.conformance.laws import FIRST, LAWS, LawVerdict, examine
from swapformer.conformance.subject import BrokenLaw

__all__ = ["FIRST", "LAWS", "BrokenLaw", "LawVerdict", "examine"]
