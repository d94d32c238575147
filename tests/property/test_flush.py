"""Fusing pushes: every request gets exactly the answers of its own items, whatever it was fused with."""

import json
from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw

from queen.http.parsing import PushItem, to_push
from queen.log import ids
from queen.log.append import AppendBatch, Appended, lay_out, reserved_ids
from queen.log.requests import Push, Pushed
from spec.guarantees import Level, checks

PARTS = {("q", "a"): 1, ("q", "b"): 2, ("r", "a"): 3}
keys = st.sampled_from(sorted(PARTS))
items = st.tuples(keys, st.none() | st.sampled_from("uvwxyz"))
named = st.tuples(keys, st.sampled_from("uvwxyz"))
requests = st.lists(
    st.lists(items, min_size=1, max_size=5) | st.lists(named, min_size=1, max_size=5), min_size=1, max_size=5
)


class Log:
    """A log in memory that does what the procedure promises."""

    def __init__(self, heads: dict[int, int], stored: dict[tuple[int, bytes], int]) -> None:
        self.heads, self.stored = dict(heads), dict(stored)
        self.written: dict[tuple[int, int], object] = {}

    def append(self, batch: AppendBatch) -> list[Appended]:
        c, rows = batch, []
        assert c.part == sorted(set(c.part)), "partitions ascending and distinct"
        hashes = {(part, place): digest for part, place, digest in zip(c.hash_part, c.hash_pos, c.hash, strict=True)}
        assert len({(part, digest) for (part, _), digest in hashes.items()}) == len(hashes), "no hash twice"
        for part, number, data, column in zip(c.part, c.n, c.data, c.ids, strict=True):
            wanted = [hashes.get((part, place), bytes(16)) for place in range(number)]
            assert column == (b"".join(wanted) if any(map(any, wanted)) else None)
            payloads = [entry["payload"] for entry in json.loads(data)]
            assert len(payloads) == number
            dups = [p for p in range(number) if (part, hashes.get((part, p))) in self.stored]
            first = self.heads[part]
            for place in (p for p in range(number) if p not in dups):
                offset = self.heads[part]
                self.heads[part] += 1
                self.written[part, offset] = payloads[place]
                if (part, place) in hashes:
                    self.stored[part, hashes[part, place]] = offset
            offsets = [self.stored[part, hashes[part, p]] for p in dups]
            rows.append(Appended(part, first, None, dups or None, offsets or None))
        return rows


def pushes_of(written: list[list[tuple[tuple[str, str], str | None]]]) -> list[Push]:
    number, pushes = 0, []
    for request in written:
        parsed = []
        for (queue, partition), text in request:
            parsed.append(PushItem(queue, partition, Raw(str(number).encode()), text))
            number += 1
        pushes.append(to_push(parsed))
    return pushes


@checks("G-ISO-2", "G-IDEM-1", level=Level.MODEL)
@given(requests, st.dictionaries(st.tuples(st.sampled_from([1, 2, 3]), st.sampled_from("uvwxyz")), st.integers(0, 9)))
def test_each_request_gets_the_offsets_of_its_own_items(
    written: list[list[tuple[tuple[str, str], str | None]]], before: dict[tuple[int, str], int]
) -> None:
    pushes = pushes_of(written)
    log = Log({1: 10, 2: 20, 3: 30}, {(part, ids.transaction_hash(text)): off for (part, text), off in before.items()})
    batch = lay_out(UUID(int=1), pushes, PARTS)
    answers = batch.answers(log.append(batch))
    first_of = dict(before)
    number = 0
    for request, push, answer in zip(written, pushes, answers, strict=True):
        for place, (key, text) in enumerate(request):
            part, offset, duplicate = answer_of(push, answer, place)
            assert part == PARTS[key]
            known = (part, text) in first_of
            assert duplicate == known
            if known:
                assert offset == first_of[part, text]
            else:
                assert log.written[part, offset] == number
                if text is not None:
                    first_of[part, text] = offset
            number += 1


def answer_of(push: Push, answer: Pushed, place: int) -> tuple[int, int, bool]:
    for batch, stored in zip(push.batches, answer.stored, strict=True):
        if place in batch.places:
            number = list(batch.places).index(place)
            return stored.part_id, stored.offset(number), number in stored.duplicates
    raise AssertionError(f"item {place} was not answered")


@given(st.lists(st.sampled_from(["u", "v", ids.message_id(1, 4), ids.message_id(1, 5)]), min_size=1, max_size=5))
def test_an_id_that_only_the_server_gives_out_names_its_message_or_is_refused(texts: list[str]) -> None:
    """Of the two the first was given out."""
    made = ids.message_id(1, 4)
    [push] = pushes = pushes_of([[(("q", "a"), text) for text in texts]])
    reserved = reserved_ids(pushes, PARTS)
    assert reserved == {text: (1, int(text[-1])) for text in texts if len(text) == 36}
    known = {text: ~offset if text == made else None for text, (_, offset) in reserved.items()}
    batch = lay_out(UUID(int=1), pushes, PARTS, known)
    log = Log({1: 10, 2: 20, 3: 30}, {})
    [answer] = batch.answers(log.append(batch))
    for place, text in enumerate(texts):
        part, offset, duplicate = answer_of(push, answer, place)
        assert part == 1
        assert (place in answer.stored[0].refused) == (text == ids.message_id(1, 5))
        if text == made:
            assert (offset, duplicate) == (4, True)
        elif len(text) == 1:
            assert (offset >= 10, duplicate) == (True, text in texts[:place])
    assert len(log.written) == len({text for text in texts if len(text) == 1})
