"""Statistics of a report: claims, estimates, verdicts, power, sequential looks and grids."""
