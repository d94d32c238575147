"""The suite for the interface of simple-mq: `queen verify --interface simple-mq URL`.

It needs a URL, and works on the original too: what goes beyond it is skipped there, and statuses that the documents and
the source of the original disagree about are reported, not judged.
"""

from .run import run

__all__ = ["run"]
