"""Records → statistics, verdicts, tables, figures and one page. Start at `build.build`; claims at `claims.parse`."""
