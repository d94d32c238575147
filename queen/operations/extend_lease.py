"""Extends a lease: ``POST /api/v1/lease/{leaseId}/extend``."""

from typing import Annotated

import falcon
import falcon.asgi
import msgspec
from msgspec import Meta, Struct

from queen.core.job_type import JobType
from queen.core.limits import LEASE_SECONDS_MAX
from queen.http.access import READ_WRITE
from queen.http.operation import Answer, operation
from queen.http.parameters import path
from queen.http.parsing import decode, renewal
from queen.http.rendering import LeaseAnswer, render_lease
from queen.http.request import QueenRequest
from queen.operations.server import Server

_DEFAULT_SECONDS = 60


class ExtendBody(Struct):
    """The extension of a lease.

    Attributes:
        seconds: lease time from now; negative values count as 0.
    """

    seconds: Annotated[int, Meta(extra_json_schema={"maximum": LEASE_SECONDS_MAX})] = _DEFAULT_SECONDS


_decoder = msgspec.json.Decoder(ExtendBody)


@operation(
    "POST",
    "/api/v1/lease/{leaseId}/extend",
    "extendLease",
    "Extend a lease",
    access=READ_WRITE,
    answers=[Answer("When it ends now; `success` is false if the lease is unknown or has expired", LeaseAnswer)],
    errors=(400, 503),
    description="Without a body the lease is extended to 60 seconds from now.",
    parameters=[path("leaseId", "Id of the lease, from a pop", {"type": "string", "minLength": 1})],
    body=ExtendBody,
    needs_body=False,
)
async def extend_lease(server: Server, req: QueenRequest, resp: falcon.asgi.Response, lease_id: str) -> None:
    """No body is what the published client sends."""
    body = bytes(await req.stream.read(4096))
    seconds = (
        decode(_decoder, body, {"seconds": "seconds must be a whole number"}).seconds if body else _DEFAULT_SECONDS
    )
    renewed = await server.engine.submit(JobType.RENEW_LEASE, renewal(lease_id, seconds)).future
    resp.content_type = falcon.MEDIA_JSON
    resp.data = render_lease(lease_id, renewed)
