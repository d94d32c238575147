// Seek and delete consumer groups.

import { call } from "./api.js";
import { ask, confirm } from "./dialogs.js";
import { count } from "./format.js";
import { perform } from "./notices.js";
import { operations } from "./operations.js";

const PLACES = [["end", "End: skips the backlog"], ["beginning", "Beginning: delivers all messages again"], ["time", "Time: the first message at or after it"]];

// Seeks a group in one partition, or in all partitions of a queue.
export async function seek(consumerGroup, queue, partition, then) {
  const values = await ask({
    title: "Seek", text: `Moves the cursors of ${consumerGroup} in ${queue}${partition === null ? "" : `, partition ${partition}`}, and releases its leases there.`, action: "Seek", danger: true,
    fields: [{ name: "place", label: "Position", options: PLACES }, { name: "time", label: "Time (if chosen above)", type: "datetime-local", step: "1" }],
  });
  if (!values) return;
  const work = () => {
    const body = target(values);
    return partition === null
      ? call(operations.seekConsumerGroup, { consumerGroup, queue }, body)
      : call(operations.seekPartition, { consumerGroup, queue, partition }, body);
  };
  const done = ({ partitionsUpdated }) => (partitionsUpdated === undefined ? "Cursor moved" : `Cursors moved in ${count(partitionsUpdated)} partitions`);
  if (await perform(work, done)) await then();
}

function target({ place, time }) {
  if (place === "end") return { toEnd: true };
  if (place === "beginning") return { toBeginning: true };
  if (!time) throw new Error("Enter a time");
  return { timestamp: new Date(time).toISOString() };
}

export async function removeGroup(consumerGroup, queue, then) {
  const sure = await confirm({
    title: "Delete this group?", text: `This deletes the cursors of ${consumerGroup} in ${queue}. If the group consumes again, it starts as a new group.`, action: "Delete group", type: consumerGroup,
  });
  if (sure && (await perform(() => call(operations.deleteConsumerGroupOfQueue, { consumerGroup, queue }), `Group ${consumerGroup} deleted`))) await then();
}
