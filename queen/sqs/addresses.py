"""The names of queues in SQS: URLs and ARNs. The last part of either is the name of the queue."""

import re
from urllib.parse import unquote, urlsplit

from msgspec import Struct

from queen.sqs.errors import invalid_parameter, invalid_value, missing, unknown_queue

#: Path of the interface.
ROOT = "/sqs"
FIFO = ".fifo"

_NAME_CHARS = re.compile(r"[A-Za-z0-9_.-]{0,80}")
_NAME = re.compile(r"[A-Za-z0-9_-]{1,80}(\.fifo)?")
_ARN = re.compile(r"arn:[a-z-]+:sqs:[^:]*:[^:]*:([A-Za-z0-9_-]+(\.fifo)?)")
_NAME_CHARS_MAX = 80


class Place(Struct, frozen=True):
    """How a client reaches the server.

    Attributes:
        base: URL of the interface.
        account: number of the account in URLs and ARNs.
        region: that of the client.
    """

    base: str
    account: str
    region: str

    def url_of(self, name: str) -> str:
        """The URL of a queue."""
        return f"{self.base}/{self.account}/{name}"

    def arn_of(self, name: str) -> str:
        """The ARN of a queue."""
        return f"arn:aws:sqs:{self.region}:{self.account}:{name}"


def check_name(name: str, *, fifo: bool) -> None:
    """Checks the name of a queue that is created."""
    valid = _NAME.fullmatch(name) is not None and len(name) <= _NAME_CHARS_MAX
    if fifo and not (valid and name.endswith(FIFO)):
        raise invalid_value(
            "The name of a FIFO queue can only include alphanumeric characters, hyphens, or underscores, must end "
            "with .fifo suffix and be 1 to 80 in length."
        )
    if not valid or (name.endswith(FIFO) and not fifo):
        raise invalid_value("Can only include alphanumeric characters, hyphens, or underscores. 1 to 80 in length")


def may_name(text: str) -> bool:
    """Whether a text may be a queue's name or its beginning."""
    return _NAME_CHARS.fullmatch(text) is not None


def name_of_url(url: str | None, path: str) -> str:
    """The queue of a request: that of ``QueueUrl``, which may be a name alone, or of the path of the request."""
    if url:
        try:
            path = urlsplit(url).path
        except ValueError:
            raise unknown_queue() from None
    elif not path:
        raise missing("QueueUrl")
    return unquote(path.rstrip("/").rpartition("/")[2])


def name_of_arn(arn: str, parameter: str) -> str:
    """The queue of an ARN. Account and region are not looked at: the server has one of each."""
    found = _ARN.fullmatch(arn)
    if found is None:
        raise invalid_parameter(parameter, arn, "Invalid ARN.")
    return found[1]
