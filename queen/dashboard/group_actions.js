// Seek and delete consumer groups.

import { call } from "./api.js";
import { ask } from "./dialogs.js";
import { count, groupName, moment } from "./format.js";
import { operations } from "./operations.js";

const PLACES = [["", "Choose…"], ["end", "End: skips the backlog"], ["beginning", "Beginning: delivers all messages again"], ["time", "Time: the first message at or after it"]];

// Seeks a group in one partition, or in all partitions of a queue. What it would skip and repeat is shown first.
export async function seek(consumerGroup, queue, partition, then) {
  const where = partition === null ? {} : { partition };
  const foreseen = async (values) => {
    if (!values.place || (values.place === "time" && !values.time)) return "Choose where to: how many messages are skipped or delivered again is shown here first.";
    const { partitions, skipped, repeated } = await call(operations.previewSeek, { consumerGroup, queue, ...where, ...target(values) });
    return `${told(skipped, "will be skipped")}, ${told(repeated, "delivered again")}, in ${count(partitions)} ${partitions === 1 ? "partition" : "partitions"}.`;
  };
  const sure = await ask({
    title: "Seek", text: `Moves the cursors of ${groupName(consumerGroup)} in ${queue}${partition === null ? "" : `, partition ${partition}`}, and releases its leases there.`, action: "Seek", type: groupName(consumerGroup),
    fields: [{ name: "place", label: "Position", options: PLACES, required: true }, { name: "time", label: "Time (if chosen above)", type: "datetime-local", step: "1" }],
    preview: foreseen,
    run: (values) => (partition === null
      ? call(operations.seekConsumerGroup, { consumerGroup, queue }, target(values))
      : call(operations.seekPartition, { consumerGroup, queue, partition }, target(values))),
    done: ({ partitionsUpdated, cursorMovedTo }) => (partitionsUpdated === undefined ? `Cursor moved${cursorMovedTo ? ` behind ${moment(cursorMovedTo)}` : ""}` : `Cursors moved in ${count(partitionsUpdated)} partitions`),
  });
  if (sure) await then();
}

function told(number, what) {
  return `${count(number)} ${number === 1 ? "message" : "messages"} ${what}`;
}

function target({ place, time }) {
  if (place === "end") return { toEnd: true };
  if (place === "beginning") return { toBeginning: true };
  if (!place) throw new Error("Choose a position");
  if (!time) throw new Error("Enter a time");
  return { timestamp: new Date(time).toISOString() };
}

export async function removeGroup(consumerGroup, queue, then) {
  const sure = await ask({
    title: "Delete this group?", text: `This deletes the cursors of ${groupName(consumerGroup)} in ${queue}. If the group consumes again, it starts as a new group.`, action: "Delete group", type: groupName(consumerGroup),
    run: () => call(operations.deleteConsumerGroupOfQueue, { consumerGroup, queue }), done: `Group ${groupName(consumerGroup)} deleted`,
  });
  if (sure) await then();
}
