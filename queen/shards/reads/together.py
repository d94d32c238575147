"""The reads of all topics over all databases."""

from queen.engine.context import Context
from queen.shards.reads.catalogue import CatalogueOfAll
from queen.shards.reads.groups import GroupsOfAll
from queen.shards.reads.messages import DeadLettersOfAll, MessagesOfAll
from queen.shards.reads.statistics import StatisticsOfAll
from queen.shards.reads.timers import TimersOfAll
from queen.shards.reads.traces import TracesOfAll


class ReadsOfAll:
    """Implements ``queen.engine.administration.Reads``."""

    def __init__(self, context: Context) -> None:
        self.catalogue = CatalogueOfAll(context)
        self.messages = MessagesOfAll(context)
        self.dead_letters = DeadLettersOfAll(context)
        self.consumer_groups = GroupsOfAll(context, self.catalogue)
        self.traces = TracesOfAll(context)
        self.timers = TimersOfAll(context)
        self.statistics = StatisticsOfAll(context)
