"""Every type of damage to every column of every table of the database, and to every field of a journal."""

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, get_args, get_origin, get_type_hints

import asyncpg
from msgspec.structs import asdict, fields, replace

from queen.log import ids
from spark_validation.inputs import Flaw
from spark_validation.journal.schema import AckItem, Call, Delivery, PushItem
from tests.support.runs import Tables

KINDS = ("null", "other", "swapped", "next", "ahead")
ROW_KINDS = ("deleted", "doubled")
ROW = "*"
"""In place of a column: the row itself."""

_NEXT = {
    "bigint": "{c} + 1", "integer": "{c} + 1", "smallint": "{c} + 1", "double precision": "{c} + 1",
    "boolean": "NOT {c}", "timestamp with time zone": "{c} + interval '1 hour'", "text": "{c} || 'x'",
    "uuid": "(overlay({c}::text placing case right({c}::text, 1) when '0' then '1' else '0' end from 36))::uuid",
    "bytea": "CASE WHEN length({c}) > 0 THEN set_byte({c}, length({c}) / 2, get_byte({c}, length({c}) / 2) # 1) END",
    "json": "'{{\"damaged\": 1}}'::json", "jsonb": "'{{\"damaged\": 1}}'::jsonb", '"char"': "'z'",
    "int8multirange": "{c} + '{{[3,4)}}'::int8multirange", "ARRAY": "{c} || {c}",
    "xid8": "({c}::text::bigint + 1)::text::xid8",
}  # fmt: skip
_AHEAD = {
    "bigint": "{c} + 1000000", "integer": "{c} + 1000000", "smallint": "{c} + 10000", "double precision": "{c} + 1e15",
    "timestamp with time zone": "CASE WHEN isfinite({c}) THEN {c} ELSE now() END + interval '8 days'",
    "text": "'never was'", "uuid": "'ffffffff-ffff-ffff-ffff-ffffffffffff'::uuid",
    "bytea": "{c} || '\\x00'::bytea", "json": "'[]'::json", "jsonb": "'[]'::jsonb",
    "int8multirange": "'{{[1000000,1000001)}}'::int8multirange", "xid8": "'999999999'::xid8",
    "pg_snapshot": "'999999999:999999999:'::pg_snapshot", "ARRAY": "'{{}}'",
}  # fmt: skip


@dataclass(frozen=True)
class Damage:
    """One damage to the database: a statement that changes rows if it can."""

    table: str
    column: str
    kind: str
    statement: str

    @property
    def name(self) -> str:
        return f"{self.table}.{self.column} {self.kind}"


async def columns(connection: asyncpg.Connection) -> list[tuple[str, str, str]]:
    """Table, column and type of all tables."""
    rows = await connection.fetch(
        "SELECT c.table_schema || '.' || c.table_name, c.column_name,"
        " CASE WHEN c.data_type = 'USER-DEFINED' OR c.udt_name = 'int8multirange' THEN c.udt_name ELSE c.data_type END"
        " FROM information_schema.columns AS c JOIN information_schema.tables AS t USING (table_schema, table_name)"
        " WHERE c.table_schema IN ('queen', 'simple_mq') AND t.table_type = 'BASE TABLE'"
        " ORDER BY c.table_schema, c.table_name, c.ordinal_position"
    )
    return [tuple(row) for row in rows]


def of_columns(found: Sequence[tuple[str, str, str]], seed: int) -> Iterator[Damage]:
    """All damages to these columns; the seed chooses the rows."""
    for table, column, type_ in found:
        if type_ == "pg_snapshot":  # has no operator to compare
            yield Damage(table, column, "ahead", f"UPDATE {table} SET \"{column}\" = '999999999:999999999:'")
            continue
        name, random_row = f'"{column}"', f"md5(t.ctid::text || '{seed}')"
        one = f"(SELECT t.ctid FROM {table} AS t WHERE {{0}} ORDER BY {random_row} LIMIT 1)"
        text = "::text" if type_ == "json" else ""
        differs = f"o.{name}{text} IS DISTINCT FROM t.{name}{text}"
        values = {
            "null": ("NULL", "{c} IS NOT NULL"),
            "next": (_NEXT[type_], "{c} IS NOT NULL"),
            "ahead": (_AHEAD.get(type_), "{c} IS NOT NULL"),
            "other": (
                f"(SELECT o.{name} FROM {table} AS o WHERE {differs} ORDER BY md5(o.ctid::text || '{seed}') LIMIT 1)",
                f"EXISTS (SELECT 1 FROM {table} AS o WHERE {differs})",
            ),
        }
        for kind, (value, where) in values.items():
            if value is not None:
                changed, there = value.format(c=f"t.{name}"), where.format(c=f"t.{name}")
                yield Damage(
                    table,
                    column,
                    kind,
                    f"UPDATE {table} AS t SET {name} = {changed} WHERE t.ctid = {one.format(there)}",
                )
        swap = (
            f"WITH a AS (SELECT t.ctid AS place, t.{name} AS v FROM {table} AS t ORDER BY {random_row} LIMIT 1),"
            f" b AS (SELECT t.ctid AS place, t.{name} AS v FROM {table} AS t, a"
            f" WHERE t.{name}{text} IS DISTINCT FROM a.v{text} ORDER BY {random_row} LIMIT 1)"
            f" UPDATE {table} AS t SET {name} = CASE WHEN t.ctid = a.place THEN b.v ELSE a.v END FROM a, b"
            f" WHERE t.ctid IN (a.place, b.place)"
        )
        yield Damage(table, column, "swapped", swap)
    for table in dict.fromkeys(table for table, _, _ in found):
        row = f"(SELECT t.ctid FROM {table} AS t ORDER BY md5(t.ctid::text || '{seed}') LIMIT 1)"
        yield Damage(table, ROW, "deleted", f"DELETE FROM {table} AS t WHERE t.ctid = {row}")
        names = ", ".join(f'"{column}"' for other, column, _ in found if other == table)
        again = f"SELECT {names} FROM {table} AS t WHERE t.ctid = {row}"
        yield Damage(table, ROW, "doubled", f"INSERT INTO {table} ({names}) OVERRIDING SYSTEM VALUE {again}")


async def applied(connection: asyncpg.Connection, damage: Damage) -> bool:
    """Does it; false if the database refuses it, or there is no row to damage."""
    try:
        async with connection.transaction():
            await connection.execute("SET LOCAL session_replication_role = replica")
            return int((await connection.execute(damage.statement)).split()[-1]) > 0
    except (
        asyncpg.IntegrityConstraintViolationError,
        asyncpg.DataError,
        asyncpg.GeneratedAlwaysError,
        asyncpg.CardinalityViolationError,
    ):
        return False


# ------------------------------------------------------------ journals

ITEMS: dict[str, type] = {"pushes": PushItem, "deliveries": Delivery, "acks": AckItem}
_LATER = 8 * 86_400 * 1_000_000
_ID = 36


def of_fields() -> Iterator[tuple[str, str]]:
    """List and field, of a call ``""``, of what journals record."""
    for each in fields(Call):
        if each.name not in ITEMS:
            yield "", each.name
    for items, kind in ITEMS.items():
        for each in fields(kind):
            yield items, each.name
    yield from ((items, ROW) for items in ("", *ITEMS))


@dataclass(frozen=True)
class _Places:
    """All values of a field: where they are, and what they are."""

    calls: list[Call]
    items: str
    field: str

    def all(self) -> list[tuple[int, int]]:
        """The numbers of calls, and of items in them."""
        return [
            (at, place)
            for at, call in enumerate(self.calls)
            for place in (range(len(getattr(call, self.items))) if self.items else (0,))
        ]

    def get(self, at: tuple[int, int]) -> Any:
        call = self.calls[at[0]]
        return getattr(getattr(call, self.items)[at[1]] if self.items else call, self.field)

    def put(self, at: tuple[int, int], value: Any) -> None:
        call = self.calls[at[0]]
        if self.items:
            old = getattr(call, self.items)
            value = (*old[: at[1]], replace(old[at[1]], **{self.field: value}), *old[at[1] + 1 :])
        self.calls[at[0]] = replace(call, **{self.items or self.field: value})


def damaged(calls: Sequence[Call], items: str, field: str, kind: str, seed: int) -> list[Call] | None:
    """The journal with one damage, at a place that the seed chooses; None if there is nothing to damage."""
    chosen, found = random.Random(f"{seed} {items} {field} {kind}"), list(calls)
    if field == ROW:
        return _row(found, items, kind, chosen)
    places = _Places(found, items, field)
    there = [at for at in places.all() if places.get(at) not in (None, "")]
    if not there:
        return None
    at = chosen.choice(there)
    value = places.get(at)
    others = [each for each in there if places.get(each) != value and _alike(found, at, each)]
    hint = get_type_hints(ITEMS[items] if items else Call)[field]
    if kind == "null":
        if type(None) not in get_args(hint):
            return None
        places.put(at, None)
    elif kind in ("other", "swapped"):
        if not others:
            return None
        other = chosen.choice(others)
        theirs = places.get(other)
        places.put(at, theirs)
        if kind == "swapped":
            places.put(other, value)
    else:
        new = (_next if kind == "next" else _far)(value, hint)
        if new is None:
            return None
        places.put(at, new)
    return found


def _alike(calls: list[Call], one: tuple[int, int], other: tuple[int, int]) -> bool:
    return calls[one[0]].kind == calls[other[0]].kind


def _row(calls: list[Call], items: str, kind: str, chosen: random.Random) -> list[Call] | None:
    """A call, or an item of one, that is missing or there twice; no number is missing."""
    some = [n for n, call in enumerate(calls) if (getattr(call, items) if items else call.kind not in ("end", "clock"))]
    at = chosen.choice(some)
    if not items:
        calls[at : at + 1] = [] if kind == "deleted" else [calls[at]] * 2
    else:
        old = getattr(calls[at], items)
        place = chosen.randrange(len(old))
        new = old[:place] + old[place + (1 if kind == "deleted" else 0) :]
        new = new if kind == "deleted" else (*old[: place + 1], *old[place:])
        calls[at] = replace(calls[at], **{items: new})
    return [replace(call, number=number) for number, call in enumerate(calls)]


def _next(value: Any, hint: object) -> Any:
    match value:
        case bool():
            return not value
        case int() | float():
            return value + 1
        case str() if get_origin(hint) is not None and "Literal" in str(hint):
            words = [word for word in get_args(hint) if word != value]
            return words[0] if words else None
        case str() if len(value) == _ID and value[14:23] == "8001-8000":
            return f"{value[:-1]}{'1' if value[-1] != '1' else '2'}"
        case str():
            return f"{value}x"
    return None


def _far(value: Any, hint: object) -> Any:
    match value:
        case bool():
            return None
        case int() if value > 1 << 48:
            return value + _LATER
        case int() | float():
            return value + 1_000_000
        case str() if "Literal" in str(hint):
            words = [word for word in get_args(hint) if word != value]
            return words[-1] if words else None
        case str():
            return "never was"
    return None


# ------------------------------------------------------------ side by side

_SHIFT = 1_000


def _shifted(id_: Any, number: int) -> Any:
    """A message id in a copy."""
    if isinstance(id_, str) and len(id_) == _ID and id_[14:23] == "8001-8000":
        return ids.message_id(int(id_[:13].replace("-", ""), 16) + number * _SHIFT, int(id_[24:], 16))
    return id_


def copied(tables: Tables, number: int) -> Tables:
    """The rows with other names, so that many copies can be judged at once: queues begin with ``m`` and the number."""

    def renamed(row: Any) -> Any:
        new: dict[str, Any] = {}
        for name, value in asdict(row).items():
            match name:
                case "queue" if value is not None:
                    new[name] = f"m{number}.{value}"
                case "part_id":
                    new[name] = value + number * _SHIFT
                case "agent":
                    new[name] = f"m{number} {value}"
                case "lease" if value:
                    new[name] = f"m{number} {value}"
                case "message_id" | "transaction_id":
                    new[name] = _shifted(value, number)
                case "pushes" | "deliveries" | "acks":
                    new[name] = tuple(map(renamed, value))
        if isinstance(row, Flaw) and row.queue is None:
            new["queue"] = f"m{number}.none"
        return replace(row, **new)

    return Tables(**{name: [renamed(row) for row in rows] for name, rows in vars(tables).items()})


def whole(calls: Sequence[Call]) -> bool:
    """Whether no agent counts as cut short: then nothing is judged that it may explain."""
    agents: dict[str, list[Call]] = {}
    for call in calls:
        agents.setdefault(call.agent, []).append(call)
    return all(
        any(call.kind == "end" for call in rows) and sorted(call.number for call in rows) == [*range(len(rows))]
        for rows in agents.values()
    )


def copy_of(name: str) -> int:
    """The number of the copy that a queue, or an agent, belongs to."""
    return int(name.partition(".")[0].partition(" ")[0][1:])
