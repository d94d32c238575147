"""Chaos: schedules of faults from a seed, the world in which they happen, and the judgement of what clients saw."""
