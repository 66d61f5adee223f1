"""What Python's own parser says of Python source: syntax tree, definitions, roles of names, documented functions."""

from swapformer.task.code.functions import Function, functions
from swapformer.task.code.parsed import Parsed
from swapformer.task.code.roles import ROLES, Span, roles
from swapformer.task.code.syntax import TAGS, syntax

__all__ = ["ROLES", "TAGS", "Function", "Parsed", "Span", "functions", "roles", "syntax"]
