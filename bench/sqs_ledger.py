"""A journal of a load on one queue of SQS, kept in memory, and what of it contradicts the guarantees of SQS.

Each check is sound whatever happened between a request and its answer: an event is somewhere between both.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise

from msgspec import Struct


class Sending(Struct, frozen=True):
    """A message that was sent, perhaps twice with one deduplication id; times are seconds of a monotonic clock."""

    number: int
    message_id: str
    group: str | None
    began: float
    ended: float


class Receiving(Struct, frozen=True):
    """An answer to a receive: the numbers of its messages in their order."""

    numbers: Sequence[int]
    began: float
    ended: float


class Deleting(Struct, frozen=True):
    """A deletion of a message with its newest handle, that was answered as successful."""

    number: int
    began: float
    ended: float


class Ledger(Struct):
    """What was asked and answered.

    Attributes:
        visibility_s: visibility timeout of the queue. Nothing changes it.
        sent, received, deleted: in any order.
        doubtful: messages whose deletion ended too late to know whether it had an effect.
        left: messages that the queue has in the end, by its own figures.
    """

    visibility_s: float
    sent: list[Sending] = []
    received: list[Receiving] = []
    deleted: list[Deleting] = []
    doubtful: set[int] = set()
    left: int = 0

    def violations(self) -> Mapping[str, int]:
        """How many there are, by guarantee."""
        return {
            "G-SQS-1": self._lost() + self._late() + self._invented(),
            "G-SQS-2": sum(1 for _ in self._seen_while_hidden()),
            "G-SQS-3": self._disorder() + sum(1 for _ in self._beside_in_flight()),
            "G-SQS-4": self._stored_twice(),
        }

    def _lost(self) -> int:
        """Answered sends that were neither deleted nor are left; or more is left than can be."""
        rest = {each.number for each in self.sent} - {each.number for each in self.deleted}
        return max(0, self.left - len(rest)) + max(0, len(rest - self.doubtful) - self.left)

    def _late(self) -> int:
        """Deliveries by a receive that began after the answer to the deletion."""
        gone = {each.number: each.ended for each in self.deleted}
        return sum(gone.get(number, each.began) < each.began for each in self.received for number in each.numbers)

    def _invented(self) -> int:
        known = {each.number for each in self.sent}
        return len({number for each in self.received for number in each.numbers} - known)

    def _of_message(self) -> Mapping[int, list[Receiving]]:
        found: dict[int, list[Receiving]] = defaultdict(list)
        for each in sorted(self.received, key=lambda each: each.ended):
            for number in each.numbers:
                found[number].append(each)
        return found

    def _seen_while_hidden(self) -> Iterator[int]:
        """Deliveries before the visibility timeout of the one before was over."""
        for number, receives in self._of_message().items():
            if len(receives) == len({id(each) for each in receives}):
                yield from (number for one, two in pairwise(receives) if two.ended < one.began + self.visibility_s)
            else:
                yield number

    def _groups(self) -> Mapping[str, list[Sending]]:
        """The messages of each group in the order in which its one producer sent them."""
        found: dict[str, dict[int, Sending]] = defaultdict(dict)
        for each in sorted(self.sent, key=lambda each: each.began):
            if each.group is not None:
                found[each.group].setdefault(each.number, each)
        return {group: list(messages.values()) for group, messages in found.items()}

    def _disorder(self) -> int:
        """Messages of a group that came before an earlier one: in an earlier receive, or further ahead in the same."""
        receives = self._of_message()
        count = 0
        for messages in self._groups().values():
            came = [(receives[each.number][0], each.number) for each in messages if each.number in receives]
            for (one, earlier), (two, later) in pairwise(came):
                numbers = one.numbers
                count += numbers.index(later) < numbers.index(earlier) if one is two else two.ended < one.began
        return count

    def _beside_in_flight(self) -> Iterator[int]:
        """Deliveries of a group by a receive while another one had messages of the group in flight."""
        ends = {each.number: each.began for each in self.deleted}
        group_of = {each.number: each.group for each in self.sent if each.group is not None}
        held: dict[str | None, list[tuple[Receiving, float]]] = defaultdict(list)
        for each in self.received:
            of_group: dict[str | None, float] = {}
            for number in each.numbers:
                if (group := group_of.get(number)) is not None:
                    end = min(each.began + self.visibility_s, ends.get(number, each.began + self.visibility_s))
                    of_group[group] = max(of_group.get(group, 0.0), end)
            for group, end in of_group.items():
                held[group].append((each, end))
        for intervals in held.values():
            intervals.sort(key=lambda pair: pair[0].began)
            for (one, end), (two, _) in pairwise(intervals):
                if two.began > one.ended and two.ended < end:
                    yield 1

    def _stored_twice(self) -> int:
        """Deduplication ids that have more than one message."""
        ids = {(each.number, each.message_id) for each in self.sent}
        return sum(number > 1 for number in Counter(number for number, _ in ids).values())
