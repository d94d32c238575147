"""Audits of the whole log and of client journals with PySpark. The command is ``queen audit``."""

import os

# gRPC, by which PySpark talks to Sail, reads it when it is imported. Without it the child of a fork listens to the
# connection as well until it calls exec, and takes parts of answers away (https://github.com/grpc/grpc/issues/28557).
os.environ["GRPC_ENABLE_FORK_SUPPORT"] = "0"
