"""The address to listen on."""

import errno
import socket
import ssl
from collections.abc import Iterable

from queen.config import Settings
from queen.core.addresses import is_loopback
from queen.core.errors import SettingError
from queen.server.errors import StartError

#: Connections that may wait for a worker to accept them, as many as gunicorn allows by default.
BACKLOG = 2048


def listen(host: str, port: int) -> socket.socket:
    """A listening socket to be handed to gunicorn; port 0 takes a free one.

    Connections that come before the workers are ready wait in the backlog. Binding alone would not do: two sockets may
    be bound to one port while neither listens.

    Raises:
        StartError: the address cannot be had.
    """
    family, address = _resolve(host, port)
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((address, port))
        listener.listen(BACKLOG)
    except OSError as problem:
        listener.close()
        raise StartError(_advice(problem, host, port)) from None
    return listener


def protect(settings: Settings, hosts: Iterable[str]) -> None:
    """Makes sure that nobody on other machines may do everything because nobody has thought of it.

    Args:
        settings: what the operator wants.
        hosts: what the server listens on, as names or addresses.

    Raises:
        SettingError: it is open to all, and that was not asked for.
        StartError: a name cannot be resolved.
    """
    if settings.jwt_enabled or settings.insecure:
        return
    for host in hosts:
        if not is_loopback(_resolve(host, settings.port)[1]):
            raise SettingError(
                f"Other machines can reach {host or 'every address of this one'}, and may do everything without a "
                "token: set JWT_ENABLED (docs/security.md) or listen on 127.0.0.1; --insecure (QUEEN_INSECURE=true) "
                "starts anyway, where a firewall or a proxy says who may come"
            )


def _resolve(host: str, port: int) -> tuple[socket.AddressFamily, str]:
    try:
        family, _, _, _, address = socket.getaddrinfo(
            host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
    except OSError as problem:
        raise StartError(f"The host {host!r} cannot be resolved ({problem}): give an address with --host") from None
    return family, str(address[0])


def _advice(problem: OSError, host: str, port: int) -> str:
    match problem.errno:
        case errno.EADDRINUSE:
            return f"Port {port} on {host} is in use: stop the program that holds it, or choose another with --port"
        case errno.EADDRNOTAVAIL:
            return f"The address {host} does not belong to this machine: choose another with --host"
        case errno.EACCES:
            return f"Port {port} needs more rights than this user has: choose one above 1023 with --port"
        case _:
            return f"Cannot listen on {host}, port {port} ({problem.strerror}): choose others with --host and --port"


def authority(host: str, port: int) -> str:
    """Host and port as a URL has them."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def reachable(host: str) -> str:
    """The address by which this machine reaches itself: a wildcard cannot be connected to."""
    return {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104 - compared, not bound


def tls(settings: Settings) -> bool:
    """Whether to serve https.

    Raises:
        SettingError: certificate and key cannot be read, or do not belong together.
    """
    if not settings.tls_certificate:
        return False
    if settings.worker_class == "meinheld":
        raise SettingError("QUEEN_TLS_CERTFILE: meinheld serves no https; use the worker class uvicorn")
    try:
        ssl.create_default_context(ssl.Purpose.CLIENT_AUTH).load_cert_chain(settings.tls_certificate, settings.tls_key)
    except OSError as problem:  # SSLError is one
        raise SettingError(
            f"QUEEN_TLS_CERTFILE={settings.tls_certificate} and QUEEN_TLS_KEYFILE={settings.tls_key} cannot be used: "
            f"{problem.strerror or problem}"
        ) from None
    return True
