"""Composes overrides to the resolved configuration of a trial, checks it, and gives its identity."""
