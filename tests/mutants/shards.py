"""Deliberate faults in several databases as one: for each of its guarantees at least one."""

from tests.mutants.mutant import Mutant, mutant

SQL, HOMES, DIVISION = "sql/internal/026_shards.sql", "queen/shards/homes.py", "queen/shards/division.py"
BEGINNING, ROUTER, LANES = "queen/shards/beginning.py", "queen/shards/router.py", "queen/engine/lane_store.py"
LIVE, FAULTS = "tests/integration/test_shards.py", "tests/chaos/test_shards.py"
LIST = "tests/integration/test_shards_list.py"
PARTS = "tests/property/test_shards_division.py"
MOVES, STEPS = "tests/property/test_moves.py", "sql/procedures/move_partitions.sql"
COPY, FOLLOWING = "queen/postgres/moves.py", "queen/shards/following.py"
SQS = "queen/simple_mq/sqs_administration.py"

SHARDS: tuple[Mutant, ...] = (
    mutant(
        "G-SHARD-1",
        "a database makes partitions that only its older list places there",
        (SQL, "        AND v_own = queen.home_of(p_queue, p_partition, v_list.version)\n", ""),
        tests=LIST,
    ),
    mutant(
        "G-SHARD-1",
        "partitions are looked for where the newest list places them only",
        ("queen/core/placement.py", "range(self.version, 0, -1)", "range(self.version, self.version - 1, -1)"),
        tests=FAULTS,
    ),
    mutant(
        "G-SHARD-1",
        "two commands change the list at once",
        ("queen/shards/setup.py", "if not await _locked(connection, first):", "if False:"),
        tests=LIST,
    ),
    mutant(
        "G-SHARD-2",
        "a push is answered as stored although one database has refused its part",
        (
            DIVISION,
            "        _all_or_error(list(results.values()))\n",
            "        results = {s: Buffered() if isinstance(r, BaseException) else r for s, r in results.items()}\n",
        ),
        tests=PARTS,
    ),
    mutant(
        "G-SHARD-2",
        "answers come in the order of the databases",
        (DIVISION, "sorted(found, key=lambda pair: pair[0])", "found"),
        tests=PARTS,
    ),
    mutant(
        "G-SHARD-3",
        "a pop asks unavailable databases, too, and fails with the first",
        (ROUTER, "                problems.append(problem)\n                continue\n", "                raise\n"),
        (ROUTER, "slots = self._shards.homes.available() or self._slots", "slots = self._slots"),
        tests=FAULTS,
    ),
    mutant(
        "G-SHARD-4",
        "a transaction over two databases is carried out in one of them",
        (DIVISION, '            raise ConflictError(spans("transaction", self._homes, slots))\n', "            pass\n"),
        tests=LIVE,
    ),
    mutant(
        "G-SHARD-5",
        "what a database does not make is set aside",
        (LANES, "startswith(_DATA_CLASSES) and not problem.misplaced", "startswith(_DATA_CLASSES)"),
        (LANES, "if not problem.misplaced or self.elsewhere is None or len(batch.units) > 1:", "if True:"),
        tests=LIST,
    ),
    mutant(
        "G-SHARD-5",
        "pushes overtake those in the spool of the earlier home",
        (HOMES, "return failover is not None and (failover.spooling or key in failover.held_back)", "return False"),
        tests=LIST,
    ),
    mutant(
        "G-SHARD-5",
        "pushes overtake those in the spool of the earlier home once the first of them is stored",
        (HOMES, "        if earlier is not None:\n", "        if False:\n"),
        tests="tests/property/test_shards_homes.py",
    ),
    mutant(
        "G-SHARD-6",
        "a group begins elsewhere than its first pop says",
        (BEGINNING, "    return Beginning(pop.mode, pop.since)\n", '    return Beginning("new")\n'),
        tests="tests/property/test_shards_against_model.py",
    ),
    mutant(
        "G-SHARD-7",
        "SQL pushes to a partition that belongs to another database",
        (SQL, "CASE WHEN l.here THEN u.partition ELSE u.partition || v_own END", "u.partition"),
        tests=LIVE,
    ),
    mutant(
        "G-SHARD-8",
        "the transaction ids of a partition stay behind",
        (COPY, '    "transaction_ids": ("part_id, hash, off", "part_id = $1"),\n', ""),
        tests=MOVES,
    ),
    mutant(
        "G-SHARD-8",
        "cursors begin anew",
        (STEPS, "FROM jsonb_array_elements(p_contents -> 'cursors') AS u", "FROM jsonb_array_elements('[]') AS u"),
        tests=MOVES,
    ),
    mutant(
        "G-SHARD-8",
        "a partition is used where it is while it is copied",
        (STEPS, "    PERFORM queen.hide_partitions(ARRAY[p_part]);\n", ""),
        tests=MOVES,
    ),
    mutant(
        "G-SHARD-8",
        "the target makes a partition whose messages are still to come",
        (SQL, "m.state IN ('awaited', 'sealed')", "false"),
        tests=MOVES,
    ),
    mutant(
        "G-SHARD-8",
        "a move that was interrupted is given up",
        (
            "queen/shards/moving.py",
            "if not waits or await self._bring(source, target, sealed):",
            "if True:",
        ),
        tests=MOVES,
    ),
    mutant(
        "G-SHARD-8",
        "the state of a stream reads as empty while its partition moves",
        ("queen/shards/context.py", "known.active and is_nothing(result)", "False"),
        tests=MOVES,
    ),
    mutant(
        "G-SHARD-8",
        "an ack does not follow its partition",
        (FOLLOWING, "            if sealed or slot != self._asked[number]:\n", "            if False:\n"),
        tests=MOVES,
    ),
    mutant(
        "G-SHARD-9",
        "requests of a queue go to the first database, whatever its number says",
        (DIVISION, "        return [slot if slot in self._engines else FIRST]\n", "        return [FIRST]\n"),
        tests=PARTS,
    ),
    mutant(
        "G-SHARD-9",
        "a queue of SQS is made where the newest list places it, not beside its dead-letter queue",
        (SQS, "for slot, here in places if len(places) > 1 else ():", "for slot, here in ():"),
        tests=LIST,
    ),
)
