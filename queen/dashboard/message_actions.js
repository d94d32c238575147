// Actions on one message, with their confirmations.

import { call } from "./api.js";
import { ask } from "./dialogs.js";
import { operations } from "./operations.js";

const key = ({ partitionId, transactionId }) => ({ partitionId, transactionId });

// Replays the newest dead letter of the message to the end of its partition.
export async function retry(message, then) {
  const sure = await ask({
    title: "Replay this message?", text: `Pushes the dead letter of ${message.transactionId} to the end of its partition as a new message. Every consumer group gets it.`, action: "Replay",
    run: () => call(operations.retryMessage, key(message)), done: replayed,
  });
  if (sure) await then();
}

export async function replayDeadLetter(letter, then) {
  const sure = await ask({
    title: "Replay this dead letter?", text: "Pushes it to the end of the partition as a new message. Every consumer group of the queue gets it.", action: "Replay",
    fields: [
      { name: "queue", label: "Queue", value: letter.queue, required: true }, { name: "partition", label: "Partition", value: letter.partition, required: true },
    ],
    run: (values) => call(operations.replayDeadLetter, { deadLetterId: letter.id }, values), done: replayed,
  });
  if (sure) await then();
}

export async function remove(message, then) {
  const sure = await ask({
    title: "Delete this message?", text: `This deletes ${message.transactionId} for all consumer groups, with its dead letters and traces.`, action: "Delete message", danger: true,
    run: () => call(operations.deleteMessage, key(message)), done: "Message deleted",
  });
  if (sure) await then();
}

export async function giveUp(message, then) {
  const sure = await ask({
    title: "Move to dead letters?", text: "Consumer groups that have not acknowledged the message do not get it any more.", action: "Move", danger: true,
    fields: [{ name: "error", label: "Error text", value: "Moved in the dashboard", maxlength: 10000 }, { name: "consumerGroup", label: "Consumer group (empty: all)" }],
    run: (values) => call(operations.giveUpMessage, key(message), { error: values.error, consumerGroup: values.consumerGroup || null }),
    done: "Message moved to the dead letters",
  });
  if (sure) await then();
}

function replayed({ result, queue, partition }) {
  return result === "moved" ? `Replayed to ${queue}, partition ${partition}` : "Already replayed: nothing was written";
}
