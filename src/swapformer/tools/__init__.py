"""The commands of `swapformer` other than train, study, report and list: a module or package for each."""
