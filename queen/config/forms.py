"""Forms of settings that are neither a number nor a choice."""

import re
from collections.abc import Callable
from urllib.parse import urlsplit

from queen.config.variable import Form


def _form(words: str, valid: Callable[[str], object], tidy: Callable[[str], object] = str) -> Form:
    def parse(text: str) -> object:
        if not valid(text):
            raise ValueError
        return tidy(text)

    return Form(words, parse)


def _list_of(words: str, valid: Callable[[str], object], tidy: Callable[[str], object] = str) -> Form:
    element = _form("", valid, tidy)
    parts = re.compile(r"[^,\s](?:[^,]*[^,\s])?")
    return Form(f"{words}, separated by commas", lambda text: tuple(map(element.parse, parts.findall(text))))


def is_url(text: str) -> bool:
    """Whether a text is an http or https URL."""
    try:
        parts = urlsplit(text)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False


def _is_origin(text: str) -> bool:
    parts = urlsplit(text)
    return bool(parts.scheme and parts.netloc) and text == f"{parts.scheme}://{parts.netloc}".lower()


def _is_address(text: str) -> bool:
    host, _, port = text.rpartition(":")
    return bool(host) and port.isdecimal() and 1 <= int(port) <= 65535


def _address(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    return host.strip("[]"), int(port)


def _key(text: str) -> str:
    return text.replace(" ", "").lower()


def _is_key(text: str) -> object:
    return re.fullmatch("[0-9a-f]{64}", _key(text))


_shard = re.compile(r"([a-z][a-z0-9-]{0,29})=(postgres(?:ql)?://\S+)").fullmatch


def _shards(text: str) -> tuple[tuple[str, str], ...]:
    found = [_shard(word) for word in text.split()]
    pairs = tuple((match[1], match[2]) for match in found if match is not None)
    if len(pairs) < len(found) or len(dict(pairs)) < len(pairs):
        raise ValueError
    return pairs


_is_name = re.compile(r"[\w-]+(\.[\w-]+)*\.*", re.ASCII).fullmatch
_origins = _list_of("* or auto alone, or a list of origins such as https://ops.example.org", _is_origin)
_keys = _list_of("64 hexadecimal digits, or several such keys", _is_key, _key)

_is_access_key = re.compile(r"[\w.-]{1,128}:[^:\s]{8,128}:(read-only|read-write|admin)", re.ASCII).fullmatch

ACCESS_KEYS = _list_of(
    "a list of id:secret:level, with secrets of 8 characters or more and the levels read-only, read-write and admin",
    _is_access_key,
    lambda text: tuple(text.split(":")),
)
ACCOUNT = _form("12 digits", re.compile("[0-9]{12}").fullmatch)
ADDRESSES = _list_of("a list of host:port", _is_address, _address)
HOST_NAMES = _list_of(
    "a list of names such as queen.example.org, without ports", _is_name, lambda text: text.lower().rstrip(".")
)
KEY = _form("64 hexadecimal digits", lambda text: not text or _is_key(text), _key)
KEYS = _keys._replace(parse=lambda text: ",".join(_keys.parse(text)))
ORIGINS = _origins._replace(
    parse=lambda text: (word,) if (word := text.strip()) in ("*", "auto") else _origins.parse(text)
)
PATHS = _list_of("a list of paths such as /health", lambda text: text[0] == "/", lambda text: text.rstrip("/") or "/")
SHARDS = Form("a list of NAME=URL with different names such as db1, separated by spaces", _shards)
URL = _form("a URL such as https://host/path", lambda text: not text or is_url(text))
URLS = _list_of("a list of URLs such as http://host:6632", is_url, lambda text: text.rstrip("/"))
