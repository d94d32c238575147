"""The suite for SQS: `queen verify --interface sqs URL`.

The URL is the endpoint that an SDK gets: of this server, of another one with SQS's protocol, or of AWS. The scenarios
rely on nothing beyond what AWS documents; what a server does not know is skipped.
"""

from .run import run

__all__ = ["run"]
