"""Connection strings in libpq's forms, and connections from them."""

import asyncio
import contextlib
import re
import ssl
from collections.abc import Coroutine
from typing import Any
from urllib.parse import parse_qsl, quote, urlencode, urlsplit, urlunsplit

import asyncpg
from msgspec import Struct

from queen.core.errors import SettingError

#: The exceptions of a connection, or of an attempt, if PostgreSQL is unreachable. asyncpg raises InternalClientError if
#: none of several hosts is a primary, and after an unexpected message of a server that stops.
UNREACHABLE = (OSError, TimeoutError, asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError)

#: Parameters of libpq (PostgreSQL manual, section 34.1.2) that asyncpg supports.
_KNOWN = {
    "host", "port", "user", "password", "dbname", "database", "passfile", "sslmode", "sslcert", "sslkey", "sslrootcert",
    "sslcrl", "sslpassword", "sslnegotiation", "ssl_min_protocol_version", "ssl_max_protocol_version",
    "target_session_attrs", "krbsrvname", "gsslib", "service", "servicefile", "options",
}  # fmt: skip
#: Ignored parameters: time limits of the calls replace keep-alives.
_NEEDLESS = {
    "keepalives", "keepalives_idle", "keepalives_interval", "keepalives_count", "tcp_user_timeout", "client_encoding",
    "fallback_application_name", "gssencmode", "sslcompression", "sslsni",
}  # fmt: skip
#: Share of the time limit of a statement for which it waits for one lock.
_LOCK_SHARE = 0.8
#: What only the primary has.
_ONE_HOST = ("read-write", "primary")
_PAIR = re.compile(r"\s*(\w+)\s*=\s*('(?:[^'\\]|\\.)*'|(?:[^\s'\\]|\\.)+)")


class Target(Struct, frozen=True):
    """A database to connect to.

    Attributes:
        url: connection URI in asyncpg's form.
        place: the same for people, without secrets.
        connect_timeout_s: limit of one attempt.
        pooled: whether connections go through a pooler such as PgBouncer in transaction mode, which keeps no state of a
            session: no prepared statements, no LISTEN.
    """

    url: str
    place: str
    application_name: str
    connect_timeout_s: float
    pooled: bool = False


def _uri(text: str) -> str:
    """A keyword string (``host=a port=5432``) as a URI; a URI is unchanged."""
    if text.startswith(("postgresql://", "postgres://")):
        return text
    pairs, end = {}, 0
    while match := _PAIR.match(text, end):
        name, value = match.groups()
        pairs[name] = re.sub(r"\\(.)", r"\1", value[1:-1] if value.startswith("'") else value)
        end = match.end()
    if text[end:].strip() or not pairs:
        raise SettingError(
            "The DSN is neither a URI (postgresql://user@host:5432/database) nor a list of key=value pairs, "
            f"near {text[end : end + 20]!r}"
        )
    database = pairs.pop("dbname", "")
    return f"postgresql:///{quote(database, safe='')}?{urlencode(pairs)}"


def _supported(parameters: dict[str, str]) -> dict[str, str]:
    """The parameters for the driver, without needless ones.

    Raises:
        SettingError: one is unknown, or asks for something that the driver cannot do.
    """
    if parameters.pop("channel_binding", "prefer") == "require":
        raise SettingError(
            "The DSN has channel_binding=require, which the driver (asyncpg) does not support: use sslmode=verify-full"
        )
    found = {name: value for name, value in parameters.items() if name not in _NEEDLESS}
    for name in found:
        if name not in _KNOWN:
            raise SettingError(f"The DSN has an unknown parameter {name!r}")
    return found


def parse(dsn: str, application_name: str, connect_timeout_ms: int) -> Target:
    """Reads a connection string in libpq's form.

    With several hosts, the primary is used unless ``target_session_attrs`` says otherwise: a standby is read-only.

    Raises:
        SettingError: it is malformed, or asks for something that the driver cannot do.
    """
    try:
        parts = urlsplit(_uri(dsn))
        query = dict(parse_qsl(parts.query, keep_blank_values=True))
        timeout_s = float(query.pop("connect_timeout", "0") or 0) or connect_timeout_ms / 1000
    except ValueError as problem:
        raise SettingError(f"Invalid DSN: {problem}") from None
    name = query.pop("application_name", application_name)
    query = _supported(query)
    hosts = query.get("host") or parts.netloc.rpartition("@")[2]
    if "," in hosts:
        query.setdefault("target_session_attrs", "read-write")
    database = query.get("dbname") or query.get("database") or parts.path.lstrip("/") or "the user's database"
    url = urlunsplit((parts.scheme, parts.netloc, parts.path, urlencode(query, safe="/:,"), ""))
    return Target(
        url=url, place=f"{hosts or 'the local socket'}, database {database}", application_name=name,
        connect_timeout_s=timeout_s,
    )  # fmt: skip


def lock_timeout_ms(limit_s: float, lock_wait_s: float | None = None) -> int:
    """How long a statement waits for one lock: less than its time limit, so that its error shows the reason."""
    wait_s = limit_s * _LOCK_SHARE
    return max(1, round(1000 * min(wait_s, lock_wait_s or wait_s)))


def _each_host(url: str) -> list[str]:
    """The URI once per host, if no more than one of the hosts can be the one that is looked for.

    A machine that was switched off refuses nothing, and asyncpg, which goes through hosts one after the other, has one
    time limit for all of them.
    """
    parts = urlsplit(url)
    query = dict(parse_qsl(parts.query, keep_blank_values=True))
    if query.get("target_session_attrs") not in _ONE_HOST:
        return [url]
    login, at, places = parts.netloc.rpartition("@")
    if "host" not in query:
        return [urlunsplit(parts._replace(netloc=f"{login}{at}{place}")) for place in places.split(",")]
    hosts, ports = query["host"].split(","), query.get("port", "").split(",")
    if len(ports) != len(hosts):
        ports *= len(hosts)
    found = []
    for host, port in zip(hosts, ports, strict=False):
        one = {**query, "host": host, **({"port": port} if port else {})}
        found.append(urlunsplit(parts._replace(query=urlencode(one, safe="/:,"))))
    return found


async def _first_of(attempts: "list[Coroutine[Any, Any, asyncpg.Connection[Any]]]") -> "asyncpg.Connection[Any]":
    """The first connection that one of the attempts makes; if none does, the error of a PostgreSQL, or the last one."""
    tasks = [asyncio.ensure_future(attempt) for attempt in attempts]
    chosen = None
    try:
        for done in asyncio.as_completed(tasks):
            with contextlib.suppress(*UNREACHABLE):
                chosen = await done
                return chosen
    finally:
        for task in tasks:
            task.cancel()
            task.add_done_callback(lambda other: _leave(other, chosen))
    errors = [error for task in tasks if (error := task.exception()) is not None]
    raise next((error for error in errors if isinstance(error, asyncpg.PostgresError)), errors[-1])


def _leave(task: "asyncio.Task[asyncpg.Connection[Any]]", chosen: "asyncpg.Connection[Any] | None") -> None:
    """Ends what an attempt has made, if it is not what was chosen."""
    if not task.cancelled() and task.exception() is None and task.result() is not chosen:
        task.result().terminate()


async def connect(
    target: Target, statement_timeout_s: float | None = None, lock_wait_s: float | None = None
) -> "asyncpg.Connection[Any]":
    """One connection, in UTC and READ COMMITTED, on which PostgreSQL itself cancels a statement after that time.

    A wait for a lock ends earlier (``lock_timeout_ms``).

    Raises what asyncpg raises, and SettingError for a DSN that it cannot read.
    """
    settings = {"application_name": target.application_name, "timezone": "UTC"}
    if not target.pooled:  # a pooler refuses unknown parameters
        # A push reads the log end after it has locked the partition, and must see what was committed while it waited
        # (ADR 45).
        settings["default_transaction_isolation"] = "read committed"
    if statement_timeout_s is not None and not target.pooled:
        # Compiling a statement of a queue takes longer than running it.
        settings |= {
            "statement_timeout": str(int(statement_timeout_s * 1000)),
            "lock_timeout": str(lock_timeout_ms(statement_timeout_s, lock_wait_s)),
            "jit": "off",
        }
    attempts = [
        asyncpg.connect(
            url,
            timeout=target.connect_timeout_s,
            statement_cache_size=0 if target.pooled else 100,
            server_settings=settings,
        )
        for url in _each_host(target.url)
    ]
    try:
        return await (attempts[0] if len(attempts) == 1 else _first_of(attempts))
    except (ValueError, asyncpg.ClientConfigurationError, ssl.SSLError) as problem:
        raise SettingError(f"Invalid DSN: {problem}") from problem
