"""The procedures for administration over all shards."""

from collections.abc import Mapping

from queen.engine.context import Context


class ShardedAdministration:
    """Placeholder while the message path is built."""

    def __init__(self, contexts: Mapping[int, Context]) -> None:
        self._first = contexts[0].administration

    def __getattr__(self, name):
        return getattr(self._first, name)
