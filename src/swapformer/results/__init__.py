"""Every file that a trial or a study leaves: one class, one reader and one writer for each. Imports no torch."""
