"""Parameters of which a few are tested each time, and all at night."""

from collections.abc import Container, Iterable
from typing import Any

import pytest


def mostly_at_night(values: Iterable[Any], always: Container[Any]) -> list[Any]:
    """The values as parameters; those that are not tested ``always`` are marked ``nightly``."""
    return [value if value in always else pytest.param(value, marks=pytest.mark.nightly) for value in values]
