"""What operations work with."""

from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from msgspec import Struct

from queen.config import Settings
from queen.core.job_type import JobType
from queen.engine.context import Context
from queen.engine.handle import EngineHandle
from queen.http.access import Levels
from queen.http.metrics_collector import MetricsCollector
from queen.http.operation import Topic
from queen.http.pops import PopDefaults, Pops
from queen.http.socket.sockets import Sockets
from queen.security.authentication import role_names
from queen.security.keyring import Keyring

T = TypeVar("T")


class Server(Struct, frozen=True, eq=False):
    """One worker of the server, as operations see it.

    Attributes:
        settings: of the server.
        engine: does the work.
        sockets: its WebSockets.
        keys: encrypt and decrypt payloads; ``None``: the server has no key.
        pops: parses and renders pops.
        levels: the access levels of roles.
        metrics: collects metrics for Prometheus.
        topics: all operations.
    """

    settings: Settings
    engine: EngineHandle
    sockets: Sockets
    keys: Keyring | None
    pops: Pops
    levels: Levels
    metrics: MetricsCollector
    topics: Sequence[Topic]

    @property
    def body_bytes_max(self) -> int:
        """The largest body, in bytes (``MAX_BODY_SIZE``)."""
        return self.settings.requests.body_bytes_max

    async def ask(self, question: Callable[[Context], Awaitable[T]]) -> T:
        """The result of a read; it is repeated if PostgreSQL was unavailable."""

        async def work(context: Context) -> T:
            return await context.with_retries(lambda _again: question(context))

        return await self.run(work)

    async def run(self, work: Callable[[Context], Awaitable[T]]) -> T:
        """The result of a function that runs in the engine, on the connections of administration."""
        result: T = await self.engine.submit(JobType.CUSTOM, work).future
        return result


def server_of(
    settings: Settings, engine: EngineHandle, sockets: Sockets, metrics: MetricsCollector, topics: Sequence[Topic]
) -> Server:
    """What operations work with in a worker with these settings."""
    keys = Keyring.from_settings(settings.security.encryption_key, settings.security.encryption_old_keys)
    delivery = settings.delivery
    defaults = PopDefaults(delivery.default_batch, delivery.default_timeout_ms, delivery.default_subscription_mode)
    return Server(
        settings, engine, sockets, keys, Pops(engine, defaults, keys), Levels(role_names(settings)),
        metrics, topics,
    )  # fmt: skip
