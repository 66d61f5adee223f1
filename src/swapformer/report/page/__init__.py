"""Forms of a report: its page, its tables, its words and plain data for `--json`."""
