"""Connection strings as libpq takes them."""

import socket
from urllib.parse import parse_qs, urlsplit

import asyncpg
import pytest

from queen.core.errors import DatabaseUnavailableError, SettingError
from queen.postgres.dsn import Target, connect, parse
from queen.postgres.setup import prepare
from tests.support.servers import create_database, drop_database


def read(dsn: str) -> Target:
    return parse(dsn, "queen", 2000)


def query(target: Target) -> dict[str, str]:
    return {name: values[0] for name, values in parse_qs(urlsplit(target.url).query).items()}


def test_dsn_uri_is_kept_and_named_without_its_password() -> None:
    target = read("postgresql://ann:s%40cret@db:5433/shop?sslmode=require")
    assert target.url == "postgresql://ann:s%40cret@db:5433/shop?sslmode=require"
    assert "db:5433" in target.place
    assert "shop" in target.place
    assert "s%40cret" not in target.place
    assert "s@cret" not in target.place
    assert (target.application_name, target.connect_timeout_s, target.pooled) == ("queen", 2.0, False)


@pytest.mark.parametrize(
    ("dsn", "fields", "path"),
    [
        ("host=db port=5433 user=ann dbname=shop", {"host": "db", "port": "5433", "user": "ann"}, "/shop"),
        ("host = db   user = 'ann lee'  ", {"host": "db", "user": "ann lee"}, "/"),
        (r"host=db password='it\'s \\ here'", {"host": "db", "password": r"it's \ here"}, "/"),
        (r"password=a\ b host=db", {"host": "db", "password": "a b"}, "/"),
        ("host=/run/postgresql dbname='a/b c'", {"host": "/run/postgresql"}, "/a%2Fb%20c"),
        ("password='' host=db", {"host": "db"}, "/"),
    ],
)
def test_dsn_of_keywords_is_read_with_quotes_and_escapes(dsn: str, fields: dict[str, str], path: str) -> None:
    target = read(dsn)
    assert query(target) == fields
    assert urlsplit(target.url).path == path
    assert "it's" not in target.place


def test_dsn_with_several_hosts_needs_a_primary_unless_told_otherwise() -> None:
    for dsn in ("postgresql://a:1,b:2/shop", "host=a,b port=1,2 dbname=shop", "postgresql:///shop?host=a,b"):
        assert query(read(dsn))["target_session_attrs"] == "read-write", dsn
    told = read("postgresql://a:1,b:2/shop?target_session_attrs=any")
    assert query(told)["target_session_attrs"] == "any"
    assert "target_session_attrs" not in query(read("postgresql://a:1/shop"))


@pytest.mark.parametrize("dsn", ["postgresql://db/shop?sslmod=require", "host=db sslmod=require"])
def test_dsn_with_an_unknown_parameter_is_refused_and_names_it(dsn: str) -> None:
    with pytest.raises(SettingError, match="sslmod"):
        read(dsn)


@pytest.mark.parametrize("dsn", ["", "nonsense", "http://db/shop", "host=db nonsense", "host='db", "db:5432/shop"])
def test_dsn_that_is_none_is_refused(dsn: str) -> None:
    with pytest.raises(SettingError):
        read(dsn)


@pytest.mark.parametrize(
    "dsn", ["postgresql://db:port/shop", "postgresql://[::1/shop", "postgresql://db/?connect_timeout=x"]
)
async def test_dsn_that_is_malformed_is_a_setting_error_at_the_latest_when_connecting(dsn: str) -> None:
    with pytest.raises(SettingError):
        await connect(read(dsn))


def test_dsn_with_libpq_parameters_that_change_nothing_here_is_accepted() -> None:
    target = read("postgresql://db/shop?keepalives=1&keepalives_idle=30&gssencmode=disable&client_encoding=utf8")
    assert query(target) == {}


def test_dsn_says_how_long_to_try_and_by_which_name() -> None:
    target = read("postgresql://db/shop?connect_timeout=7&application_name=billing")
    assert (target.connect_timeout_s, target.application_name) == (7.0, "billing")
    assert query(target) == {}
    assert read("postgresql://db/shop?connect_timeout=0").connect_timeout_s == 2.0


def test_dsn_that_asks_for_channel_binding_is_refused_with_a_way_out() -> None:
    with pytest.raises(SettingError, match="sslmode=verify-full"):
        read("postgresql://db/shop?channel_binding=require")
    assert query(read("postgresql://db/shop?channel_binding=prefer")) == {}


async def test_dsn_in_both_forms_leads_to_the_same_database(postgres: str) -> None:
    if not postgres.startswith("postgresql://postgres@/postgres?host="):
        pytest.skip("QUEEN_TEST_DSN has another form")
    socket_dir = query(read(postgres))["host"]
    for dsn in (
        postgres,
        f"host='{socket_dir}' user=postgres dbname=postgres",
        f"postgres://postgres@/postgres?host={socket_dir}",
    ):
        connection: asyncpg.Connection[asyncpg.Record] = await connect(read(dsn))
        try:
            assert await connection.fetchval("SELECT current_database()") == "postgres"
            assert await connection.fetchval("SHOW timezone") == "UTC"
            assert await connection.fetchval("SHOW application_name") == "queen"
        finally:
            await connection.close()


async def test_dsn_of_several_hosts_finds_the_one_that_is_there(postgres: str) -> None:
    if not postgres.startswith("postgresql://postgres@/postgres?host="):
        pytest.skip("QUEEN_TEST_DSN has another form")
    socket_dir = query(read(postgres))["host"]
    for dsn in (
        f"host=/nowhere,{socket_dir} user=postgres dbname=postgres",
        f"postgresql://postgres@/postgres?host=/nowhere,{socket_dir}",
    ):
        connection: asyncpg.Connection[asyncpg.Record] = await connect(read(dsn))
        try:
            assert await connection.fetchval("SELECT NOT pg_is_in_recovery()")
        finally:
            await connection.close()


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
async def test_dsn_of_several_hosts_finds_the_primary_beside_one_that_is_silent(
    postgres: str, order: tuple[int, int]
) -> None:
    """A machine that was switched off, or a PostgreSQL that is paused, refuses nothing: each host has its own time."""
    if not postgres.startswith("postgresql://postgres@/postgres?host="):
        pytest.skip("QUEEN_TEST_DSN has another form")
    with socket.create_server(("127.0.0.1", 0)) as silent:
        places = [("127.0.0.1", str(silent.getsockname()[1])), (query(read(postgres))["host"], "5432")]
        hosts, ports = (",".join(part) for part in zip(*(places[number] for number in order), strict=True))
        connection: asyncpg.Connection[asyncpg.Record]
        connection = await connect(read(f"postgresql://postgres@/postgres?host={hosts}&port={ports}"))
        try:
            assert await connection.fetchval("SELECT NOT pg_is_in_recovery()")
        finally:
            await connection.close()


async def test_dsn_of_several_silent_hosts_is_given_up_in_the_time_of_one() -> None:
    with socket.create_server(("127.0.0.1", 0)) as one, socket.create_server(("127.0.0.1", 0)) as two:
        ports = [each.getsockname()[1] for each in (one, two)]
        target = parse(f"postgresql://postgres@127.0.0.1:{ports[0]},127.0.0.1:{ports[1]}/postgres", "queen", 200)
        with pytest.raises(TimeoutError):
            await connect(target)


async def test_dsn_of_hosts_none_of_which_will_do_says_so(postgres: str) -> None:
    joint = "&" if "?" in postgres else "?"
    with pytest.raises(DatabaseUnavailableError, match="target attribute"):
        await prepare(f"{postgres}{joint}target_session_attrs=standby", 2000)


async def test_connections_override_the_isolation_level_of_the_database(postgres: str) -> None:
    url = await create_database(postgres)
    try:
        owner = await asyncpg.connect(url)
        name = await owner.fetchval("SELECT quote_ident(current_database())")
        await owner.execute(f"ALTER DATABASE {name} SET default_transaction_isolation = 'serializable'")
        await owner.close()
        for limit_s in (None, 5.0):
            connection: asyncpg.Connection[asyncpg.Record] = await connect(read(url), limit_s)
            try:
                assert await connection.fetchval("SHOW transaction_isolation") == "read committed"
            finally:
                await connection.close()
    finally:
        await drop_database(postgres, url)
