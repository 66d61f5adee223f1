"""From overrides to the resolved configuration of a trial, its checks and its identity."""
