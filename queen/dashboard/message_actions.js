// Actions on one message, with their confirmations.

import { call } from "./api.js";
import { ask, confirm } from "./dialogs.js";
import { perform } from "./notices.js";
import { operations } from "./operations.js";

const key = ({ partitionId, transactionId }) => ({ partitionId, transactionId });

// Replays the newest dead letter of the message to the end of its partition.
export async function retry(message, then) {
  const sure = await confirm({
    title: "Replay this message?", text: `Pushes the dead letter of ${message.transactionId} to the end of its partition as a new message. Every consumer group gets it.`, action: "Replay",
  });
  if (sure && (await perform(() => call(operations.retryMessage, key(message)), replayed))) await then();
}

export async function replayDeadLetter(letter, then) {
  const values = await ask({
    title: "Replay this dead letter?", text: "Pushes it to the end of the partition as a new message. Every consumer group of the queue gets it.", action: "Replay",
    fields: [
      { name: "queue", label: "Queue", value: letter.queue, required: true }, { name: "partition", label: "Partition", value: letter.partition, required: true },
    ],
  });
  if (values && (await perform(() => call(operations.replayDeadLetter, { deadLetterId: letter.id }, values), replayed))) await then();
}

export async function remove(message, then) {
  const sure = await confirm({
    title: "Delete this message?", text: `This deletes ${message.transactionId} for all consumer groups, with its dead letters and traces.`, action: "Delete message",
  });
  if (sure && (await perform(() => call(operations.deleteMessage, key(message)), "Message deleted"))) await then();
}

export async function giveUp(message, then) {
  const values = await ask({
    title: "Move to dead letters?", text: "Consumer groups that have not acknowledged the message do not get it any more.", action: "Move", danger: true,
    fields: [{ name: "error", label: "Error text", value: "Moved in the dashboard", maxlength: 10000 }, { name: "consumerGroup", label: "Consumer group (empty: all)" }],
  });
  if (!values) return;
  const body = { error: values.error, consumerGroup: values.consumerGroup || null };
  if (await perform(() => call(operations.giveUpMessage, key(message), body), "Message moved to the dead letters")) await then();
}

function replayed({ result, queue, partition }) {
  return result === "moved" ? `Replayed to ${queue}, partition ${partition}` : "Already replayed: nothing was written";
}
