"""Notices to other instances by UDP: the quickest way, for a network where somebody may be listened to.

All workers of an instance share one port (``SO_REUSEPORT``), and the system gives each datagram to one of them, which
passes it on to its siblings (``queen.peers.siblings``).
"""

import asyncio
import logging
import socket
import time
from collections.abc import Callable, Sequence

from queen.core.seal import seal, unseal

log = logging.getLogger("queen.notices")

#: Names of peers are looked up anew after this time.
_LOOK_UP_S = 30.0


class UdpTransport(asyncio.DatagramProtocol):
    """Implements ``queen.engine.ports.Transport``.

    Args:
        bind: address and port to listen on.
        peers: addresses or names, and ports, to send to; our own may be among them.
        secret: what all instances know.
    """

    name = "udp"
    interval_s = 0.0

    def __init__(self, bind: tuple[str, int], peers: Sequence[tuple[str, int]], secret: bytes) -> None:
        self._bind, self._peers, self._secret = bind, peers, secret
        self._addresses: list[tuple[str, int]] = []
        self._socket: asyncio.DatagramTransport | None = None
        self._looking: asyncio.Task[None] | None = None
        self._receive: Callable[[bytes], None] = lambda _sheet: None

    def send(self, sheets: Sequence[bytes]) -> None:
        """Sends each sheet to each peer."""
        if self._socket is None:
            return
        now_ms = time.time_ns() // 1_000_000
        for sheet in sheets:
            datagram = seal(self._secret, sheet, now_ms)
            for address in self._addresses:
                self._socket.sendto(datagram, address)

    async def start(self, receive: Callable[[bytes], None], missed: Callable[[], None]) -> None:  # noqa: ARG002 - nobody can know
        """Listens on the port, and looks up the peers."""
        self._receive = receive
        loop = asyncio.get_running_loop()
        self._socket, _ = await loop.create_datagram_endpoint(lambda: self, local_addr=self._bind, reuse_port=True)
        await self._look_up()
        self._looking = loop.create_task(self._keep_looking())

    async def stop(self) -> None:
        """Ends it."""
        if self._looking is not None:
            self._looking.cancel()
        if self._socket is not None:
            self._socket.close()

    def datagram_received(self, data: bytes, addr: object) -> None:
        """Called by the loop."""
        sheet = unseal(self._secret, data, time.time_ns() // 1_000_000)
        if sheet is None:
            log.debug("A datagram from %s is not sealed with QUEEN_SYNC_SECRET, or too old", addr)
        else:
            self._receive(sheet)

    def error_received(self, exc: Exception) -> None:
        """Called by the loop: a peer does not listen at the moment."""
        log.debug("A notice was not delivered: %s", exc)

    async def _keep_looking(self) -> None:
        while True:
            await asyncio.sleep(_LOOK_UP_S)
            await self._look_up()

    async def _look_up(self) -> None:
        loop = asyncio.get_running_loop()
        family = socket.AF_INET6 if ":" in self._bind[0] else socket.AF_INET
        addresses = []
        for host, port in self._peers:
            try:
                found = await loop.getaddrinfo(host, port, family=family, type=socket.SOCK_DGRAM)
            except OSError as problem:
                log.warning("The UDP peer %s:%d cannot be found: %s", host, port, problem)
            else:
                addresses.append((str(found[0][4][0]), port))
        self._addresses = addresses
