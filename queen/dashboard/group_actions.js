// Moving and deleting consumer groups.

import { call } from "./api.js";
import { ask, confirm } from "./dialogs.js";
import { count } from "./format.js";
import { perform } from "./notices.js";
import { operations } from "./operations.js";

const PLACES = [["end", "The end: what waits is never delivered"], ["beginning", "The beginning: everything is delivered again"], ["time", "The first message after a time"]];

// Asks where a group goes on, in all partitions of a queue or in one.
export async function seek(consumerGroup, queue, partition, then) {
  const values = await ask({
    title: "Move the group?", text: `${consumerGroup} goes on elsewhere in ${queue}${partition === null ? "" : `, partition ${partition}`}. What it has leased is let go.`, action: "Move", danger: true,
    fields: [{ name: "place", label: "Go on at", options: PLACES }, { name: "time", label: "Time (for the last choice)", type: "datetime-local", step: "1" }],
  });
  if (!values) return;
  const work = () => {
    const body = target(values);
    return partition === null
      ? call(operations.seekConsumerGroup, { consumerGroup, queue }, body)
      : call(operations.seekPartition, { consumerGroup, queue, partition }, body);
  };
  const done = ({ partitionsUpdated }) => (partitionsUpdated === undefined ? "The group is moved" : `The group is moved in ${count(partitionsUpdated)} partitions`);
  if (await perform(work, done)) await then();
}

function target({ place, time }) {
  if (place === "end") return { toEnd: true };
  if (place === "beginning") return { toBeginning: true };
  if (!time) throw new Error("Say which time is meant");
  return { timestamp: new Date(time).toISOString() };
}

export async function removeGroup(consumerGroup, queue, then) {
  const sure = await confirm({
    title: "Delete the group?", text: `${consumerGroup} forgets how far it is in ${queue}. If it consumes again, it begins anew.`, action: "Delete group", type: consumerGroup,
  });
  if (sure && (await perform(() => call(operations.deleteConsumerGroupOfQueue, { consumerGroup, queue }), `Group ${consumerGroup} is deleted`))) await then();
}
