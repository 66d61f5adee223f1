"""Figures of a report: their data, how they are drawn, and their SVG."""
