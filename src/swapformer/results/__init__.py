"""The files that trials and studies leave: for each one class, one reader and one writer. Imports no torch."""
