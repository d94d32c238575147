"""Reads the guides of the documentation as a reader does who types their commands."""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path


def code(page: Path, language: str) -> list[str]:
    """The blocks of code of a language, in their order."""
    return re.findall(rf"^```{language}\n(.*?)^```", page.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)


def request_of(line: str) -> tuple[str, str, str | None]:
    """Method, path with its query, and body of a line with curl; it knows what the guides use."""
    method, url, body = "", "", None
    words: Iterator[str] = iter(shlex.split(line, comments=True)[1:])
    for word in words:
        match word:
            case "-s":
                pass
            case "-X":
                method = next(words)
            case "-d" | "--json":
                body = next(words)
            case _:
                url = word
    assert url.startswith("localhost:6632/"), line
    return method or ("POST" if body else "GET"), url.removeprefix("localhost:6632"), body
