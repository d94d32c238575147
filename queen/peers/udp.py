"""Notifications to other instances by UDP: the fastest transport, for trusted networks.

All workers of an instance share one port (``SO_REUSEPORT``). The system gives each datagram to one of them, which
forwards it to its siblings (``queen.peers.siblings``).
"""

import asyncio
import logging
import socket
import time
from collections.abc import Callable, Sequence

from queen.core.seal import seal, unseal

log = logging.getLogger("queen.notifications")

#: Names of peers are resolved again after this time.
_RESOLVE_S = 30.0


class UdpTransport(asyncio.DatagramProtocol):
    """Implements ``queen.engine.ports.Transport``.

    Args:
        bind: address and port to listen on.
        peers: addresses or names, and ports, to send to; may include this instance.
        secret: of all instances.
    """

    name = "udp"
    interval_s = 0.0
    reaches_all = False

    def __init__(self, bind: tuple[str, int], peers: Sequence[tuple[str, int]], secret: bytes) -> None:
        self._bind, self._peers, self._secret = bind, peers, secret
        self._addresses: list[tuple[str, int]] = []
        self._socket: asyncio.DatagramTransport | None = None
        self._resolving: asyncio.Task[None] | None = None
        self._receive: Callable[[bytes], None] = lambda _packet: None

    def send(self, packets: Sequence[bytes], *, waiting_only: bool = False) -> None:  # noqa: ARG002 - not known here
        """Sends each packet to each peer."""
        if self._socket is None:
            return
        now_ms = time.time_ns() // 1_000_000
        for packet in packets:
            datagram = seal(self._secret, packet, now_ms)
            for address in self._addresses:
                self._socket.sendto(datagram, address)

    async def start(self, receive: Callable[[bytes], None], missed: Callable[[], None]) -> None:  # noqa: ARG002 - losses are not noticed
        """Listens on the port, and resolves the peers."""
        self._receive = receive
        loop = asyncio.get_running_loop()
        self._socket, _ = await loop.create_datagram_endpoint(lambda: self, local_addr=self._bind, reuse_port=True)
        await self._resolve()
        self._resolving = loop.create_task(self._keep_resolving())

    async def stop(self) -> None:
        """Stops listening and sending."""
        if self._resolving is not None:
            self._resolving.cancel()
        if self._socket is not None:
            self._socket.close()

    def datagram_received(self, data: bytes, addr: object) -> None:
        """Called by the loop."""
        packet = unseal(self._secret, data, time.time_ns() // 1_000_000)
        if packet is None:
            log.debug("A datagram from %s has no valid signature (QUEEN_SYNC_SECRET), or is too old", addr)
        else:
            self._receive(packet)

    def error_received(self, exc: Exception) -> None:
        """Called by the loop: a peer is not listening at the moment."""
        log.debug("A notification could not be delivered: %s", exc)

    async def _keep_resolving(self) -> None:
        while True:
            await asyncio.sleep(_RESOLVE_S)
            await self._resolve()

    async def _resolve(self) -> None:
        loop = asyncio.get_running_loop()
        family = socket.AF_INET6 if ":" in self._bind[0] else socket.AF_INET
        addresses = []
        for host, port in self._peers:
            try:
                found = await loop.getaddrinfo(host, port, family=family, type=socket.SOCK_DGRAM)
            except OSError as problem:
                log.warning("The UDP peer %s:%d cannot be resolved: %s", host, port, problem)
            else:
                addresses.append((str(found[0][4][0]), port))
        self._addresses = addresses
