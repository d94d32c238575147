"""The conformance suite: the guarantees as a client sees them, checked over HTTP on any server.

It needs a URL, and a token if the server requires one. It uses queues of its own and deletes them.
"""

from .program import file_name
from .render import as_html, as_json, as_junit, as_table
from .report import Outcome, Report, Row, StatusRow
from .run import PROFILES, Profile, run
from .session import Progress, UnreachableError

__all__ = [
    "PROFILES",
    "Outcome",
    "Profile",
    "Progress",
    "Report",
    "Row",
    "StatusRow",
    "UnreachableError",
    "as_html",
    "as_json",
    "as_junit",
    "as_table",
    "file_name",
    "run",
]
