"""Reports of studies: from records to statistics, verdicts, figures, tables and one page.

Start at `build.build`. Imports run one way: `records`, `tuning` → `statistics` → `figures` → `page` → `build`.
"""
