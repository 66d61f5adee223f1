"""Running trials: on this machine, on Ray, on SLURM; signals, slots and provenance."""
