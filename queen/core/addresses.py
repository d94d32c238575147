"""Addresses and names of hosts."""

import ipaddress
from functools import lru_cache


def is_loopback(host: str) -> bool:
    """Whether only programs on this machine can reach the address."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


@lru_cache(maxsize=1000)
def is_own_name(authority: str) -> bool:
    """Whether ``host:port`` is nothing that people outside can have in the DNS: an address, localhost, a word."""
    host = authority.lower()
    if not host.endswith("]"):
        name, _, port = host.rpartition(":")
        host = name if port.isdecimal() else host
    try:
        ipaddress.ip_address(host.strip("[]"))
    except ValueError:
        name = host.rstrip(".")
        return "." not in name or name.endswith(".localhost")
    return True
