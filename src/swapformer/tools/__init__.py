"""The commands of `swapformer` beside train, study, report and list: a module or package for each."""
