"""A report as a page, on a terminal, as JSON and as tables."""
