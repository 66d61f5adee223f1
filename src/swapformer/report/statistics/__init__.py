"""From records to verdicts: estimates, claims, power, sequential looks and grids."""
