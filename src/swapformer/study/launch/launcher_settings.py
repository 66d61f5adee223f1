"""What the settings that all launchers share must be."""

from __future__ import annotations

from swapformer.errors import UsageError


def require_counts(**settings: int | None) -> None:
    """Raise UsageError for a setting below one."""
    for name, value in settings.items():
        if value is not None and value < 1:
            raise UsageError(f"{name} must be at least 1, but {value} was given")


def require_time(limit: float | None) -> None:
    """Raise UsageError for a limit that leaves no time."""
    if limit is not None and not limit > 0:
        raise UsageError(f"time_limit must be more than 0 minutes, but {limit} was given")
