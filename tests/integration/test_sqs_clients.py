"""Programs with other clients of SQS: aiobotocore, a Celery worker, and the JavaScript SDK."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from tests.support.processes import Server, clean_environment, wait_until
from tests.support.sqs_clients import KEY, SECRET, Queues, endpoint, figures, queues_of, sqs_client


@pytest.fixture
def sqs(server: Server) -> Any:
    return sqs_client(server.port)


@pytest.fixture
def make(sqs: Any) -> Iterator[Queues]:
    with queues_of(sqs) as queues:
        yield queues


async def test_aiobotocore(server: Server) -> None:
    session = pytest.importorskip("aiobotocore.session").get_session()
    place = {"endpoint_url": endpoint(server.port), "region_name": "us-east-1"}
    keys = {"aws_access_key_id": KEY, "aws_secret_access_key": SECRET}
    async with session.create_client("sqs", **place, **keys) as sqs:
        url = (await sqs.create_queue(QueueName=f"aio-{uuid4().hex}"))["QueueUrl"]
        entries = [{"Id": str(n), "MessageBody": f"ü{n}"} for n in range(10)]
        assert len((await sqs.send_message_batch(QueueUrl=url, Entries=entries))["Successful"]) == 10
        got: set[str] = set()
        while len(got) < 10:
            answer = await sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=10, WaitTimeSeconds=5)
            for message in answer["Messages"]:
                got.add(message["Body"])
                await sqs.delete_message(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])
        assert got == {f"ü{n}" for n in range(10)}
        await sqs.delete_queue(QueueUrl=url)


_TASKS = """
from celery import Celery
from kombu.utils.url import safequote

app = Celery("tasks", broker=f"sqs://{safequote('%(key)s')}:{safequote('%(secret)s')}@")
app.conf.update(
    broker_transport_options={
        "region": "us-east-1", "wait_time_seconds": 1, "polling_interval": 0.1, "queue_name_prefix": "%(prefix)s",
    },
    worker_enable_remote_control=False, task_ignore_result=True,
)

@app.task
def note(number):
    with open("%(notes)s", "a") as notes:
        notes.write(f"{number}\\n")
"""


def test_a_celery_worker(server: Server, sqs: Any, make: Queues, tmp_path: Path) -> None:
    pytest.importorskip("celery")
    prefix, notes = f"{uuid4().hex[:8]}-", tmp_path / "notes"
    notes.touch()
    (tmp_path / "tasks.py").write_text(_TASKS % {"key": KEY, "secret": SECRET, "prefix": prefix, "notes": notes})
    environment = clean_environment(PYTHONPATH=str(tmp_path), AWS_ENDPOINT_URL_SQS=endpoint(server.port))
    send = "import tasks\nfor number in range(20): tasks.note.delay(number)"
    subprocess.run([sys.executable, "-c", send], cwd=tmp_path, env=environment, check=True)
    # Celery has made it.
    url = make(f"{prefix}celery", VisibilityTimeout="1800")
    assert figures(sqs, url) == (20, 0, 0)
    command = [sys.executable, "-m", "celery", "-A", "tasks", "worker", "-P", "threads", "-c", "4", "--without-mingle"]
    with (tmp_path / "output").open("wb") as output:
        worker = subprocess.Popen(command, cwd=tmp_path, env=environment, stdout=output, stderr=output)
    try:
        wait_until(lambda: len(notes.read_text().split()) >= 20, "all tasks")
        wait_until(lambda: figures(sqs, url) == (0, 0, 0), "all acks")
    finally:
        worker.terminate()
        worker.wait(60)
    assert sorted(map(int, notes.read_text().split())) == list(range(20))


_PROGRAM = """
const sdk = require("@aws-sdk/client-sqs");
const [endpoint, accessKeyId, secretAccessKey, QueueName] = process.argv.slice(2);
const sqs = new sdk.SQSClient({ endpoint, region: "us-east-1", credentials: { accessKeyId, secretAccessKey } });
(async () => {
  const Attributes = { FifoQueue: "true", ContentBasedDeduplication: "true" };
  const { QueueUrl } = await sqs.send(new sdk.CreateQueueCommand({ QueueName, Attributes }));
  const Entries = ["a", "b", "b"].map((MessageBody, n) => ({
    Id: `${n}`, MessageBody, MessageGroupId: "g",
    MessageAttributes: { n: { DataType: "Binary", BinaryValue: new Uint8Array([n, 255]) } },
  }));
  const sent = await sqs.send(new sdk.SendMessageBatchCommand({ QueueUrl, Entries }));
  const options = { QueueUrl, MaxNumberOfMessages: 10, WaitTimeSeconds: 5, MessageAttributeNames: ["All"] };
  const { Messages } = await sqs.send(new sdk.ReceiveMessageCommand(options));
  for (const { ReceiptHandle } of Messages) await sqs.send(new sdk.DeleteMessageCommand({ QueueUrl, ReceiptHandle }));
  await sqs.send(new sdk.DeleteQueueCommand({ QueueUrl }));
  let error;
  try { await sqs.send(new sdk.GetQueueUrlCommand({ QueueName })); } catch (caught) { error = caught; }
  console.log(JSON.stringify({
    sent: sent.Successful.length, bodies: Messages.map((m) => m.Body),
    attribute: [...Messages[1].MessageAttributes.n.BinaryValue],
    error: [error.name, error instanceof sdk.QueueDoesNotExist, error.$metadata.httpStatusCode],
  }));
})();
"""


def test_the_javascript_sdk(server: Server, tmp_path: Path) -> None:
    """With the packages in `QUEEN_TEST_NODE_MODULES`, or from the registry."""
    modules = os.environ.get("QUEEN_TEST_NODE_MODULES")
    if shutil.which("node") is None or (modules is None and shutil.which("npm") is None):
        pytest.skip("there is no node")
    if modules is None:
        install = ["npm", "install", "--silent", "--no-audit", "--no-fund", "@aws-sdk/client-sqs@3"]
        if subprocess.run(install, cwd=tmp_path, capture_output=True, timeout=300, check=False).returncode:
            pytest.skip("the SDK cannot be installed")
        modules = str(tmp_path / "node_modules")
    (tmp_path / "program.js").write_text(_PROGRAM)
    command = ["node", "program.js", endpoint(server.port), KEY, SECRET, f"js-{uuid4().hex}.fifo"]
    environment = {**os.environ, "NODE_PATH": modules}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {
        "sent": 3, "bodies": ["a", "b"], "attribute": [1, 255], "error": ["QueueDoesNotExist", True, 400],
    }  # fmt: skip
