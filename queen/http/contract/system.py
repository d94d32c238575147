"""Health, maintenance, the contract itself, and what instances tell each other."""

import falcon

from queen.http.assets import MEDIA_CSS
from queen.http.contract.operation import Answer, Operation, Parameter, Topic
from queen.http.contract.shapes import StatusOnly
from queen.http.resources.health import Health, Readiness
from queen.http.resources.identity import IdentityAnswer
from queen.http.resources.maintenance import Maintenance, PopMaintenance, SwitchBody
from queen.http.resources.notify import NotifyBody

_MAINTENANCE = "/api/v1/system/maintenance"

TOPIC = Topic(
    "System",
    "The server itself.",
    [
        Operation(
            "GET",
            "/health",
            "getHealth",
            "Whether the server can do its work",
            [
                Answer("The database answers", Health),
                Answer("The database is away", Health, 503),
            ],
            (),
        ),
        Operation(
            "GET",
            "/health/live",
            "getLiveness",
            "Whether this worker does its work",
            [
                Answer("It does, whatever the database does", StatusOnly),
                Answer("It is stuck: start it anew", StatusOnly, 503),
            ],
            (),
        ),
        Operation(
            "GET",
            "/health/ready",
            "getReadiness",
            "Whether pushes are taken",
            [
                Answer("`ready`, or `spooling`: pushes only", Readiness),
                Answer("Nothing can be done for a client", Readiness, 503),
            ],
            (),
        ),
        Operation(
            "GET",
            "/auth/me",
            "getIdentity",
            "Who the server takes the sender for, and what that may do",
            [Answer("Subject and role of the token; `admin` where no tokens are asked for", IdentityAnswer)],
            (),
        ),
        Operation(
            "GET",
            _MAINTENANCE,
            "getMaintenance",
            "Both maintenance modes, and what waits in the spool",
            [Answer("As it is", Maintenance)],
            (503,),
        ),
        Operation(
            "POST",
            _MAINTENANCE,
            "setMaintenance",
            "Let pushes wait in the spool, or store it",
            [Answer("For the whole installation", Maintenance)],
            (400, 413, 503),
            body=SwitchBody,
        ),
        Operation(
            "GET",
            f"{_MAINTENANCE}/pop",
            "getPopMaintenance",
            "Whether pops get messages",
            [Answer("As it is", PopMaintenance)],
            (503,),
        ),
        Operation(
            "POST",
            f"{_MAINTENANCE}/pop",
            "setPopMaintenance",
            "Let pops get nothing, or messages again",
            [Answer("For the whole installation", PopMaintenance)],
            (400, 413, 503),
            body=SwitchBody,
        ),
        Operation(
            "POST",
            "/internal/api/notify",
            "notify",
            "What other instances say happened in a queue",
            [Answer("It is on its way to those who wait", StatusOnly)],
            (400, 403, 413),
            "Signed with the secret of the instances (`QUEEN_SYNC_SECRET`). A list holds sealed sheets of notices.",
            (
                Parameter(
                    "Queen-Signature",
                    "Time and HMAC-SHA-256 of the body, as the sending instance makes it",
                    {"type": "string"},
                    "header",
                ),
            ),
            NotifyBody | list,
        ),
        Operation(
            "GET",
            "/openapi.json",
            "getContract",
            "This document",
            [Answer("OpenAPI 3.1", dict)],
            (),
        ),
        Operation(
            "GET",
            "/docs",
            "getDocumentation",
            "This document as a page",
            [Answer("Everything that it needs comes from this server", str, media_type=falcon.MEDIA_HTML)],
            (),
        ),
        Operation(
            "GET",
            "/docs/{asset}",
            "getDocumentationAsset",
            "A file of the page",
            [Answer("A script", str, media_type=falcon.MEDIA_JS), Answer("A style", str, media_type=MEDIA_CSS)],
            (404,),
            parameters=(Parameter("asset", "Name of the file", {"type": "string"}, "path", required=True),),
        ),
        Operation(
            "GET",
            "/",
            "getDashboard",
            "The dashboard, for people",
            [Answer("Everything that it needs comes from this server", str, media_type=falcon.MEDIA_HTML)],
            (),
        ),
        Operation(
            "GET",
            "/dashboard/{file}",
            "getDashboardFile",
            "A file of the dashboard",
            [Answer("A script", str, media_type=falcon.MEDIA_JS), Answer("A style", str, media_type=MEDIA_CSS)],
            (404,),
            parameters=(Parameter("file", "Its path, with slashes", {"type": "string"}, "path", required=True),),
            route="/dashboard/{place:path}",
        ),
    ],
)
