"""Delays that double."""


def doubled(delay_ms: float, initial_ms: float, limit_ms: float) -> float:
    """The delay after ``delay_ms``: ``initial_ms`` if there was none (0), else twice as much, up to ``limit_ms``."""
    return min(limit_ms, delay_ms * 2) if delay_ms else initial_ms
