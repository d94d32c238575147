"""Histories of a correct server, of which operators do whatever there is to do; and some with a fault beside that."""

import asyncio
import time
from collections.abc import Callable
from typing import Any
from urllib.parse import quote

import asyncpg
from msgspec import Raw
from msgspec.structs import replace

from spark_validation.journal.schema import QUEUE_MODE
from tests.audit.test_removed import Agent, partition_of
from tests.support.processes import Server, wait_until

KEY = "11" * 32
SCENES: dict[str, Callable[["Scene"], None]] = {}


def scene(function: Callable[["Scene"], None]) -> Callable[["Scene"], None]:
    """What is done with a queue of the function's name."""
    SCENES[function.__name__] = function
    return function


class Scene:
    """A queue, agents' calls on it, and an operator's, which no journal has."""

    def __init__(self, server: Server, url: str, agent: Agent, queue: str) -> None:
        self.server, self.url, self.agent, self.queue = server, url, agent, queue

    def operator(self, method: str, path: str, body: Any = None) -> Any:
        status, answer = self.server.request(method, f"/api/v1/{path}", body)
        assert status in (200, 201, 202, 204), (method, path, status, answer)
        return answer

    def sql(self, *statements: str) -> None:
        """In one transaction."""

        async def work() -> None:
            connection = await asyncpg.connect(self.url)
            try:
                async with connection.transaction():
                    for statement in statements:
                        await connection.execute(statement)
            finally:
                await connection.close()

        asyncio.run(work())

    def configure(self, **options: Any) -> None:
        self.agent.configure(self.queue, **options)

    def push(self, *names: str, partition: str = "a", **fields: Any) -> None:
        items = [
            {"queue": self.queue, "partition": partition, "payload": name, "transactionId": f"{self.queue} {name}"}
            | fields
            for name in names
        ]
        self.agent.ask("push", "POST", "push", {"items": items})

    def pop(self, group: str | None = None, batch: int = 10, **query: Any) -> Any:
        asked = {"queue": self.queue, "batch": batch, "partitions": 10} | ({"consumerGroup": group} if group else {})
        words = asked | {"wait": "false"} | query
        text = "&".join(f"{name}={quote(str(value))}" for name, value in words.items() if name != "queue")
        asked |= {"autoAck": True} if query.get("autoAck") else {}
        return self.agent.ask("pop", "GET", f"pop/queue/{self.queue}?{text}", None, asked) or {"messages": []}

    def ack(self, popped: Any, group: str | None = None, status: str = "completed", count: int | None = None) -> None:
        said = [
            {name: message[name] for name in ("transactionId", "partitionId")}
            | {"leaseId": popped["leaseId"], "status": status}
            | ({"consumerGroup": group} if group else {})
            for message in popped["messages"][:count]
        ]
        body = {"acknowledgments": said} | ({"consumerGroup": group} if group else {})
        self.agent.ask("ack", "POST", "ack/batch", body)

    def work(self, group: str | None = None, batch: int = 10, status: str = "completed") -> list[str]:
        """Takes and acks messages; their payloads."""
        popped = self.pop(group, batch)
        if popped["messages"]:
            self.ack(popped, group, status)
        return [message["data"] for message in popped["messages"]]

    def drain(self, group: str | None = None) -> list[str]:
        """Until nothing is left, as the journal says then."""
        done: list[str] = []
        while got := self.work(group):
            done += got
        self.agent.drained.append((time.time_ns() // 1000, self.queue, group or QUEUE_MODE))
        return done

    def letters(self, count: int) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = []

        def there() -> bool:
            found[:] = self.operator("GET", f"dlq?queue={self.queue}")["messages"]
            return len(found) == count

        wait_until(there, f"{count} dead letters of {self.queue}", 20)
        return found

    def removed(self) -> None:
        """Waits until nothing is stored any more."""

        def gone() -> bool:
            return not self.operator("GET", f"messages?queue={self.queue}&limit=100")["messages"]

        wait_until(gone, f"no messages of {self.queue}", 60)

    def stored(self, count: int) -> None:
        def there() -> bool:
            return len(self.operator("GET", f"messages?queue={self.queue}&limit=100")["messages"]) >= count

        wait_until(there, f"{count} messages of {self.queue}", 20)


@scene
def deleted_group(scene: Scene) -> None:
    scene.configure()
    scene.push("0", "1", "2", "3")
    scene.push("b0", "b1", partition="b")
    scene.drain("g")
    scene.push("4", "5")
    popped = scene.pop("g")
    scene.operator("DELETE", "consumer-groups/g")
    scene.ack(popped, "g")
    assert len(scene.drain("g")) == 8
    scene.push("6")
    scene.drain("g")


@scene
def group_put_back(scene: Scene) -> None:
    scene.configure()
    scene.push("0", "1", "2")
    scene.drain("g")
    scene.operator("DELETE", f"consumer-groups/g/queues/{scene.queue}?deleteMetadata=false")
    assert len(scene.drain("g")) == 3


@scene
def deleted_twice(scene: Scene) -> None:
    scene.configure()
    scene.push("0", "1", "2")
    for _ in range(3):
        scene.drain("g")
        scene.operator("DELETE", f"consumer-groups/g/queues/{scene.queue}")
    scene.drain("g")


@scene
def sought_back(scene: Scene) -> None:
    scene.configure()
    scene.push("0", "1", "2", "3")
    scene.drain("g")
    scene.operator("POST", f"consumer-groups/g/queues/{scene.queue}/seek", {"toBeginning": True})
    assert len(scene.drain("g")) == 4
    scene.operator("POST", f"consumer-groups/g/queues/{scene.queue}/seek", {"toBeginning": True})


@scene
def sought_to_the_end(scene: Scene) -> None:
    scene.configure()
    scene.push("0", "1", "2", "3")
    scene.work("g", 2)
    scene.operator("POST", f"consumer-groups/g/queues/{scene.queue}/partitions/a/seek")
    scene.push("4", "5")
    assert scene.drain("g") == ["4", "5"]


@scene
def later_group_of_a_short_wait(scene: Scene) -> None:
    scene.configure(maxWaitTimeSeconds=1)
    scene.push("0", "1")
    time.sleep(1.5)  # the time is what it is about
    scene.push("2")
    scene.drain("g")
    assert scene.drain("h") == ["2"]


@scene
def short_wait_without_letters(scene: Scene) -> None:
    scene.configure(maxWaitTimeSeconds=1, deadLetterQueue=False, dlqAfterMaxRetries=False)
    scene.push("0", "1")
    scene.drain("g")
    time.sleep(1.5)
    scene.push("2")
    scene.drain("h")
    scene.configure()


@scene
def lower_limit(scene: Scene) -> None:
    scene.configure(retryLimit=5, retryDelay=0)
    scene.push("0")
    for _ in range(3):
        scene.work("g", status="failed")
    scene.configure(retryLimit=1, retryDelay=0)
    scene.work("g", status="failed")
    scene.letters(1)
    scene.drain("g")


@scene
def lower_limit_of_an_operator(scene: Scene) -> None:
    scene.configure(retryLimit=5, retryDelay=0)
    scene.push("0")
    for _ in range(3):
        scene.work("g", status="failed")
    scene.operator("POST", "configure", {"queue": scene.queue, "options": {"retryLimit": 1, "retryDelay": 0}})
    scene.work("g", status="failed")
    scene.letters(1)
    scene.drain("g")


@scene
def letters_deleted(scene: Scene) -> None:
    scene.configure(retryLimit=0)
    scene.push("0", "1", "2")
    scene.work("g", status="failed")
    first, *_ = scene.letters(3)
    scene.operator("DELETE", f"dlq/{first['id']}")
    scene.operator("DELETE", f"dlq?queue={scene.queue}")
    scene.drain("g")


@scene
def letters_replayed(scene: Scene) -> None:
    scene.configure(retryLimit=0)
    scene.push("0", "1", "2")
    scene.push("x", partition="b")
    scene.work("g", status="failed")
    scene.work("g", status="failed")
    one, two, *_ = scene.letters(4)
    scene.operator("POST", f"dlq/{one['id']}/replay")
    scene.operator("POST", f"dlq/{two['id']}/replay", {"partition": "b"})
    scene.drain("g")
    scene.drain("h")


@scene
def letters_replayed_at_once(scene: Scene) -> None:
    scene.configure(retryLimit=0)
    scene.push("0", "1", "2")
    scene.push("0", partition="b")
    for _ in range(2):
        scene.work("g", status="failed")
    scene.letters(4)
    told = scene.operator("POST", "dlq/replay", {"queue": scene.queue, "limit": 3})
    assert told["replayed"] == 3
    scene.operator("DELETE", f"dlq?queue={scene.queue}&partition=b")
    scene.operator("DELETE", f"dlq?queue={scene.queue}&partition=a")
    scene.drain("g")


def pop_during_a_deletion(scene: Scene) -> None:
    """As far as the journal tells: nobody knows of which life of the group it was."""
    scene.configure()
    scene.push("0", "1", "2")
    scene.drain("g")
    before = time.time_ns() // 1_000_000
    scene.operator("DELETE", f"consumer-groups/g/queues/{scene.queue}?deleteMetadata=false")
    popped = scene.pop("g")
    scene.agent.lines[-1] = replace(scene.agent.lines[-1], sent=before - 1)
    assert len(popped["messages"]) == 3
    scene.ack(popped, "g")
    scene.push("3", "4")


@scene
def popped_during_a_deletion(scene: Scene) -> None:
    pop_during_a_deletion(scene)
    scene.drain("g")


@scene
def given_up(scene: Scene) -> None:
    scene.configure()
    scene.push("0", "1", "2")
    scene.work("g", 1)
    partition = partition_of(scene.server, scene.queue)
    for name in ("1", "2"):
        scene.operator("POST", f"messages/{partition}/{quote(f'{scene.queue} {name}')}/dlq", {})
    scene.operator("DELETE", f"dlq?queue={scene.queue}")
    scene.push("3")
    scene.drain("g")


@scene
def paused(scene: Scene) -> None:
    scene.configure()
    scene.push("0", "1")
    scene.work("g", 1)
    for path in (f"resources/queues/{scene.queue}/pause", f"consumer-groups/g/queues/{scene.queue}/pause"):
        scene.operator("POST", path, {"paused": True})
        scene.push(path[:3])
        assert scene.work("g") == []
        scene.operator("POST", path, {"paused": False})
    scene.drain("g")


@scene
def timers(scene: Scene) -> None:
    scene.configure()
    scene.push("0")
    scene.push("later", delaySeconds=1)
    scene.push("then", deliverAt="2020-01-01T00:00:00Z")
    operation = {"op": "schedule", "queue": scene.queue, "timerKey": "k", "payload": "MQ==", "delayMs": 0}
    scene.operator("POST", "timers", {"operations": [operation | {"partition": "a"}]})
    scene.push("1")
    scene.stored(5)
    scene.drain("g")


@scene
def cron(scene: Scene) -> None:
    scene.configure()
    scene.push("0")
    scene.operator(
        "POST", "schedules", {"queue": scene.queue, "name": "n", "cron": "* * * * *", "partition": "a", "payload": 1}
    )
    scene.sql(
        f"UPDATE queen.schedules SET last_at = now() - interval '5 minutes', next_at = now() - interval '3 minutes' "
        f"WHERE queue_id = (SELECT id FROM queen.queues WHERE name = '{scene.queue}')"
    )
    scene.push("1")
    scene.stored(3)
    scene.drain("g")


@scene
def sql_push(scene: Scene) -> None:
    scene.configure()
    scene.push("0")
    scene.sql(*[f"SELECT queen.push('{scene.queue}', '{n}', partition => 'a')" for n in (1, 2)])
    scene.stored(3)
    scene.push("3")
    scene.drain("g")


@scene
def sql_pop(scene: Scene) -> None:
    scene.configure()
    scene.push("0", "1", "2")
    scene.work("g", 1)
    # Nothing but this tells an audit of consumers without a journal.
    scene.agent.unrecorded.append((scene.queue, "g"))
    scene.sql(f"SELECT * FROM queen.pop('{scene.queue}', 'g', auto_ack => true)")
    scene.push("3")
    scene.drain("g")


@scene
def headers(scene: Scene) -> None:
    scene.configure()
    scene.push("0", headers={"type": "order"})
    scene.push("1")
    scene.drain("g")


@scene
def encrypted(scene: Scene) -> None:
    scene.configure()
    scene.push("0")
    scene.operator("POST", "configure", {"queue": scene.queue, "options": {"encryptionEnabled": True, "leaseTime": 60}})
    scene.push("1")
    scene.drain("g")


@scene
def made_anew(scene: Scene) -> None:
    scene.configure(retryLimit=0)
    scene.push("0", "1", "2")
    scene.work("g", 1, status="failed")
    scene.drain("g")
    scene.operator("DELETE", f"resources/queues/{scene.queue}")
    scene.configure(retryLimit=2)
    scene.push("0", "3")
    scene.work("g", 1, status="failed")
    scene.drain("g")
    scene.drain("h")


@scene
def buffered(scene: Scene) -> None:
    scene.configure()
    scene.push("0")
    scene.operator("POST", "system/maintenance", {"enabled": True})
    scene.push("1", "2")
    scene.push("1")
    scene.operator("POST", "system/maintenance", {"enabled": False})
    wait_until(scene.server.is_settled, "the replay", 30)
    scene.push("3")
    scene.drain("g")


@scene
def retention(scene: Scene) -> None:
    scene.configure(retentionEnabled=True, retentionSeconds=1, completedRetentionSeconds=1)
    scene.push("0", "1")
    scene.work("g", 1)
    scene.removed()
    scene.push("2")
    scene.drain("g")
    scene.drain("h")


@scene
def new_group(scene: Scene) -> None:
    scene.configure()
    scene.push("0", "1")
    scene.pop("n", subscriptionMode="new")
    scene.push("2")
    assert scene.work("n") == ["2"]


@scene
def subscription_moved(scene: Scene) -> None:
    scene.configure()
    scene.push("0", "1")
    scene.work("s", 1)
    scene.operator("POST", "consumer-groups/s/subscription", {"subscriptionTimestamp": "2099-01-01T00:00:00Z"})
    scene.push("b", partition="b")
    scene.work("s")


@scene
def auto_acked(scene: Scene) -> None:
    scene.configure()
    scene.push("0", "1", "2")
    scene.pop("g", 2, autoAck="true")
    scene.drain("g")


@scene
def deleted_messages(scene: Scene) -> None:
    scene.configure(retryLimit=0)
    scene.push("0", "1", "2", "3")
    scene.work("g", 1, status="failed")
    partition = partition_of(scene.server, scene.queue)
    for name in ("0", "2"):
        scene.operator("DELETE", f"messages/{partition}/{quote(f'{scene.queue} {name}')}")
    scene.push("2")
    scene.drain("g")
    scene.drain("h")


@scene
def any_queue(scene: Scene) -> None:
    """A pop of a namespace without an answer: the journal does not say of which queue.

    Its group is in no other scene.
    """
    scene.configure(namespace="of_any_queue")
    scene.push("0", "1", "2")
    path = "pop?namespace=of_any_queue&consumerGroup=any&batch=2&autoAck=true"
    asked = {"consumerGroup": "any", "batch": 2, "autoAck": True}
    assert len(scene.agent.ask("pop", "GET", path, None, asked)["messages"]) == 2
    scene.agent.lines[-1] = replace(scene.agent.lines[-1], status=0, response=Raw(b"null"))
    assert scene.drain("any") == ["2"]


@scene
def failed_without_letters(scene: Scene) -> None:
    scene.configure(retryLimit=0, deadLetterQueue=False)
    scene.push("0", "1", "2")
    scene.work("g", 1, "failed")
    scene.drain("g")


@scene
def pushed_for_later(scene: Scene) -> None:
    scene.configure()
    scene.push("0")
    scene.push("later", delaySeconds=1)
    scene.stored(2)
    scene.drain("g")


@scene
def retention_turned_off(scene: Scene) -> None:
    retention(scene)
    scene.configure()


@scene
def longer_retention(scene: Scene) -> None:
    retention(scene)
    scene.configure(retentionEnabled=True, retentionSeconds=86_400)


@scene
def ttl_turned_off(scene: Scene) -> None:
    scene.configure(ttl=1)
    scene.push("0")
    scene.removed()
    scene.configure()
    scene.push("1")
    scene.drain("g")


@scene
def long_delays(scene: Scene) -> None:
    scene.configure(delayedProcessing=30 * 86_400, windowBuffer=60 * 86_400)
    scene.push("0")
    scene.work("g")


@scene
def an_id_again_after_retention(scene: Scene) -> None:
    scene.configure(retentionEnabled=True, retentionSeconds=1, completedRetentionSeconds=1)
    for _ in range(2):
        scene.push("0")
        scene.drain("g")
        scene.removed()


@scene
def long_names(scene: Scene) -> None:
    """What an operator configured is logged whole."""
    names = {"namespace": "ü" * 250, "task": "\u2028" * 250}
    scene.configure(retryLimit=5, retryDelay=0, **names)
    scene.push("0")
    for _ in range(2):
        scene.work("g", status="failed")
    scene.operator("POST", "configure", {"queue": scene.queue, "options": {"retryLimit": 1, "retryDelay": 0, **names}})
    scene.work("g", status="failed")
    scene.letters(1)
    scene.configure(retryLimit=5, **names)


@scene
def rare_cron(scene: Scene) -> None:
    scene.configure()
    body = {"queue": scene.queue, "name": "n", "partition": "x", "payload": 1}
    scene.operator("POST", "schedules", body | {"cron": "0  0\t1 1 *"})


@scene
def given_up_under_a_lease(scene: Scene) -> None:
    scene.configure(leaseTime=300)
    scene.push("0", "1", "2")
    scene.pop("g", 1)
    partition = partition_of(scene.server, scene.queue)
    scene.operator("POST", f"messages/{partition}/{quote(f'{scene.queue} 0')}/dlq")
    scene.drain("g")


@scene
def removed_under_a_lease(scene: Scene) -> None:
    scene.configure(leaseTime=300, retentionEnabled=True, retentionSeconds=1)
    scene.push("0")
    scene.pop("g", 1)
    scene.removed()
    scene.push("1")
    scene.drain("g")


@scene
def deletion_that_no_log_tells(scene: Scene) -> None:
    """It is in the log of another server, which does not lie beside the journals; the database tells of it."""
    scene.configure()
    scene.push("0")
    scene.drain("g")
    scene.operator("DELETE", f"consumer-groups/g/queues/{scene.queue}")
    assert scene.drain("g") == ["0"]


#: What is a fault beside an operation, the audit that finds it, and at which offsets, if it is these alone.
GUILTY: dict[str, tuple[str, list[int] | None]] = {
    "moved_after_a_seek": ("answered_acks_are_below_the_cursor", None),
    "passed_over_after_a_deletion": ("cursors_pass_only_what_is_done", [3, 4]),
    "passed_over_during_a_deletion": ("cursors_pass_only_what_is_done", [3, 4]),
    "letters_lost": ("answered_dead_letters_are_kept", [0, 1, 2]),
    "letter_lost_beside_a_deleted_one": ("answered_dead_letters_are_kept", [2]),
    "letters_lost_beside_a_purge": ("answered_dead_letters_are_kept", [0, 1]),
    "letter_lost_beside_a_replay": ("answered_dead_letters_are_kept", [1]),
    "again_after_a_seek": ("what_is_done_does_not_come_again", None),
}


def move_cursor(scene: Scene, to: str) -> None:
    scene.sql(
        f"""UPDATE queen.partition_consumers AS c
        SET acked = {to}, upto = {to}, seen = {to}, ready_at = clock_timestamp()
        FROM queen.partitions AS p JOIN queen.queues AS q ON q.id = p.queue_id
        WHERE q.name = '{scene.queue}' AND p.id = c.part_id"""
    )


@scene
def moved_after_a_seek(scene: Scene) -> None:
    sought_back(scene)
    scene.drain("g")
    move_cursor(scene, "-1")


@scene
def passed_over_after_a_deletion(scene: Scene) -> None:
    group_put_back(scene)
    scene.push("3", "4")
    move_cursor(scene, "4")


@scene
def passed_over_during_a_deletion(scene: Scene) -> None:
    pop_during_a_deletion(scene)
    move_cursor(scene, "4")


def lose_letters(scene: Scene, which: str) -> None:
    scene.sql(
        f"""DELETE FROM queen.dead_letter_queue AS d USING queen.queues AS q, queen.partitions AS p
        WHERE q.id = d.queue_id AND p.id = d.part_id AND q.name = '{scene.queue}' AND {which}"""
    )


@scene
def letter_lost_beside_a_deleted_one(scene: Scene) -> None:
    scene.configure(retryLimit=0)
    scene.push("0", "1", "2")
    scene.work("g", status="failed")
    [first] = [each for each in scene.letters(3) if each["transactionId"].endswith(" 0")]
    scene.operator("DELETE", f"dlq/{first['id']}")
    lose_letters(scene, "d.off = 2")


@scene
def letters_lost_beside_a_purge(scene: Scene) -> None:
    scene.configure(retryLimit=0)
    scene.push("0", "1")
    scene.push("b0", "b1", partition="b")
    for _ in range(2):
        scene.work("g", status="failed")
    scene.letters(4)
    scene.operator("DELETE", f"dlq?queue={scene.queue}&partition=b")
    lose_letters(scene, "p.name = 'a'")


@scene
def letter_lost_beside_a_replay(scene: Scene) -> None:
    """Of another partition, and with the same transaction id."""
    scene.configure(retryLimit=0)
    scene.push("1", "0", partition="b")
    scene.push("0", "1")
    for _ in range(2):
        scene.work("g", status="failed")
    names = {each["id"]: each for each in scene.letters(4)}
    [one] = [id_ for id_, each in names.items() if each["transactionId"].endswith(" 1") and each["partition"] == "b"]
    scene.operator("POST", f"dlq/{one}/replay")
    lose_letters(scene, "p.name = 'a' AND d.off = 1")


@scene
def letters_lost(scene: Scene) -> None:
    scene.configure(retryLimit=0)
    scene.push("0", "1", "2")
    scene.work("g", status="failed")
    scene.letters(3)
    lose_letters(scene, "true")


@scene
def again_after_a_seek(scene: Scene) -> None:
    sought_back(scene)
    scene.drain("g")
    time.sleep(0.01)  # a pop that was sent before the answer says nothing
    move_cursor(scene, "0")
    assert scene.drain("g")
