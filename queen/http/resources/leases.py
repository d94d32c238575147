"""``POST /api/v1/lease/:leaseId/extend``."""

from typing import Annotated

import falcon
import falcon.asgi
import msgspec
from msgspec import Meta, Struct

from queen.core.errors import BadRequestError
from queen.core.limits import LEASE_SECONDS_MAX
from queen.core.operations import JobType, RenewLease
from queen.engine.thread import EngineThread
from queen.http.parsing import decode
from queen.http.rendering import render_lease

_DEFAULT_SECONDS = 60


class ExtendBody(Struct):
    """How long the lease shall last.

    Attributes:
        seconds: from now; less than 0 counts as 0.
    """

    seconds: Annotated[int, Meta(extra_json_schema={"maximum": LEASE_SECONDS_MAX})] = _DEFAULT_SECONDS


_decoder = msgspec.json.Decoder(ExtendBody)


def renewal(lease: str, seconds: int) -> RenewLease:
    """The operation; raises BadRequestError for more seconds than a lease may have."""
    if seconds > LEASE_SECONDS_MAX:
        raise BadRequestError(f"seconds must be at most {LEASE_SECONDS_MAX}, not {seconds}", "seconds")
    return RenewLease(lease, max(seconds, 0))


class LeaseResource:
    """Gives a consumer more time."""

    def __init__(self, engine: EngineThread) -> None:
        self._engine = engine

    async def on_post(self, req: falcon.asgi.Request, resp: falcon.asgi.Response, lease: str) -> None:
        """Extends the lease; the published client sends no body at all, which means 60 seconds."""
        body = bytes(await req.stream.read(4096))
        seconds = (
            decode(_decoder, body, {"seconds": "seconds must be a whole number"}).seconds if body else _DEFAULT_SECONDS
        )
        renewed = await self._engine.submit(JobType.RENEW_LEASE, renewal(lease, seconds)).future
        resp.content_type = falcon.MEDIA_JSON
        resp.data = render_lease(lease, renewed)
