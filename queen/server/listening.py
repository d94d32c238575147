"""The address of the server."""

import errno
import socket
import ssl
from collections.abc import Iterable

from queen.config import Settings
from queen.core.addresses import is_loopback
from queen.core.errors import SettingError
from queen.system.errors import StartError

#: Connections that may wait for a worker to accept them, as many as gunicorn allows by default.
BACKLOG = 2048


def listen(host: str, port: int) -> socket.socket:
    """A listening socket for gunicorn; port 0 chooses a free one.

    Connections wait in the backlog until the workers are ready. Binding alone would not be enough: two sockets can
    be bound to one port while neither listens.

    Raises:
        StartError: the address cannot be used.
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
    """Refuses to start if other machines would have full access by accident.

    Args:
        settings: of the server.
        hosts: names or addresses that the server listens on.

    Raises:
        SettingError: other machines would have access, and ``QUEEN_INSECURE`` is not set.
        StartError: a name cannot be resolved.
    """
    if settings.jwt.enabled or settings.security.insecure:
        return
    for host in hosts:
        if not is_loopback(_resolve(host, settings.server.port)[1]):
            raise SettingError(
                f"Other machines can reach {host or 'all addresses of this one'}, and would have full access "
                "without a token. Set JWT_ENABLED (docs/security.md) or listen on 127.0.0.1. If a firewall "
                "or a proxy restricts access, start with --insecure (QUEEN_INSECURE=true)"
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
            return f"This user has no permission to listen on port {port}: choose one above 1023 with --port"
        case _:
            return f"Cannot listen on {host}, port {port} ({problem.strerror}): choose others with --host and --port"


def authority(host: str, port: int) -> str:
    """Host and port as a URL has them."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def reachable(host: str) -> str:
    """The address for connections from this machine; a wildcard is replaced by loopback."""
    return {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104 - compared, not bound


def tls(settings: Settings) -> bool:
    """Whether to serve https.

    Raises:
        SettingError: certificate and key cannot be read, or do not belong together.
    """
    certificate, key = settings.security.tls_certificate, settings.security.tls_key
    if not certificate:
        return False
    if settings.server.worker_class == "meinheld":
        raise SettingError("QUEEN_TLS_CERTFILE: meinheld does not support https; use the worker class uvicorn")
    try:
        ssl.create_default_context(ssl.Purpose.CLIENT_AUTH).load_cert_chain(certificate, key)
    except OSError as problem:  # SSLError is one
        raise SettingError(
            f"QUEEN_TLS_CERTFILE={certificate} and QUEEN_TLS_KEYFILE={key} cannot be used: "
            f"{problem.strerror or problem}"
        ) from None
    return True
