"""Speed, as ratios within one run: the two sides take turns, and medians are compared. Never a timed test."""
