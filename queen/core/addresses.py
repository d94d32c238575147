"""Addresses and names of hosts."""

import ipaddress


def is_loopback(host: str) -> bool:
    """Whether only programs on this machine can reach the address."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def name_of(authority: str) -> str:
    """The host of ``host:port``; ``[::1]:80`` is ``::1``."""
    host = authority.lower()
    if not host.endswith("]"):
        name, _, port = host.rpartition(":")
        host = name if port.isdecimal() else host
    return host.strip("[]").rstrip(".")


def is_own_name(authority: str) -> bool:
    """Whether no outsider can own the name of ``host:port`` in the DNS: an address, localhost, or no dot in it."""
    name = name_of(authority)
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return "." not in name or name.endswith(".localhost")
    return True
