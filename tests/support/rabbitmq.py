"""A RabbitMQ of the test's own, on loopback, where the machine has one."""

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil

from tests.support.processes import free_port, wait_until

PROGRAM = Path("/usr/lib/rabbitmq/bin/rabbitmq-server")


@contextmanager
def serving_rabbitmq(folder: Path) -> Iterator[str]:
    """Its address for the length of the block; everything that it writes goes to the folder."""
    port, distribution, mapper = free_port(), free_port(), free_port()
    environment = {
        "PATH": os.environ["PATH"], "HOME": str(folder), "RABBITMQ_NODENAME": f"queen-{port}@localhost",
        "RABBITMQ_MNESIA_BASE": f"{folder}/data", "RABBITMQ_LOG_BASE": f"{folder}/log",
        "RABBITMQ_CONFIG_FILE": f"{folder}/rabbitmq", "RABBITMQ_CONF_ENV_FILE": f"{folder}/rabbitmq-env.conf",
        "RABBITMQ_ENABLED_PLUGINS_FILE": f"{folder}/plugins", "RABBITMQ_NODE_IP_ADDRESS": "127.0.0.1",
        "RABBITMQ_NODE_PORT": str(port), "RABBITMQ_DIST_PORT": str(distribution),
        "ERL_EPMD_ADDRESS": "127.0.0.1", "ERL_EPMD_PORT": str(mapper),
        "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "-kernel inet_dist_use_interface {127,0,0,1}",
    }  # fmt: skip
    output = folder / "output"
    with output.open("wb") as file:
        process = psutil.Popen([PROGRAM], env=environment, stdout=file, stderr=subprocess.STDOUT)
    try:
        wait_until(lambda: "Starting broker... completed" in output.read_text(errors="replace"), "RabbitMQ")
        yield f"amqp://127.0.0.1:{port}"
    finally:
        family = [process, *process.children(recursive=True)]
        process.terminate()
        # The port mapper goes on by itself when its broker has ended.
        family += [each for each in psutil.process_iter() if _listens(each, mapper)]
        for each in family:
            with suppress(psutil.NoSuchProcess):
                each.terminate()
        psutil.wait_procs(family, 30)


def _listens(process: psutil.Process, port: int) -> bool:
    with suppress(psutil.Error):
        return any(each.status == psutil.CONN_LISTEN and each.laddr.port == port for each in process.net_connections())
    return False
