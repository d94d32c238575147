// What can be done with one message, and what is asked before.

import { call } from "./api.js";
import { ask, confirm } from "./dialogs.js";
import { perform } from "./notices.js";
import { operations } from "./operations.js";

const key = ({ partitionId, transactionId }) => ({ partitionId, transactionId });

// Pushes the newest dead letter of the message to the end of its partition again.
export async function retry(message, then) {
  const sure = await confirm({
    title: "Deliver it again?", text: `The dead letter of ${message.transactionId} becomes a new message at the end of its partition. Every consumer group gets it.`, action: "Deliver again",
  });
  if (sure && (await perform(() => call(operations.retryMessage, key(message)), replayed))) await then();
}

export async function replayDeadLetter(letter, then) {
  const values = await ask({
    title: "Replay the dead letter?", text: "It becomes a new message at the end of the partition. Every consumer group of the queue gets it.", action: "Replay",
    fields: [
      { name: "queue", label: "Queue", value: letter.queue, required: true }, { name: "partition", label: "Partition", value: letter.partition, required: true },
    ],
  });
  if (values && (await perform(() => call(operations.replayDeadLetter, { deadLetterId: letter.id }, values), replayed))) await then();
}

export async function remove(message, then) {
  const sure = await confirm({
    title: "Delete the message?", text: `${message.transactionId} is gone for all consumer groups, with its dead letters and traces.`, action: "Delete message",
  });
  if (sure && (await perform(() => call(operations.deleteMessage, key(message)), "The message is deleted"))) await then();
}

export async function giveUp(message, then) {
  const values = await ask({
    title: "Move it to the dead letters?", text: "No consumer group that has not completed the message gets it any more.", action: "Move", danger: true,
    fields: [{ name: "error", label: "Why", value: "Moved in the dashboard", maxlength: 10000 }, { name: "consumerGroup", label: "Consumer group (empty: all)" }],
  });
  if (!values) return;
  const body = { error: values.error, consumerGroup: values.consumerGroup || null };
  if (await perform(() => call(operations.giveUpMessage, key(message), body), "The message is among the dead letters")) await then();
}

function replayed({ result, queue, partition }) {
  return result === "moved" ? `It is in ${queue}, partition ${partition}, again` : "It was replayed before: nothing is written twice";
}
