// The form for the options of a queue.

import { call } from "./api.js";
import { ask } from "./dialogs.js";
import { perform } from "./notices.js";
import { operations } from "./operations.js";

const NUMBERS = [
  ["leaseTime", "Lease, in seconds", 60],
  ["retryLimit", "Failures before a message is a dead letter", 3],
  ["retryDelay", "Pause before a retry, in milliseconds", 0],
  ["maxSize", "Most messages that wait (0: any number)", 0],
  ["ttl", "Age at which messages are removed, in seconds (0: never)", 0],
];

// Asks for a new queue with its options.
export async function configure(_queue, then) {
  const values = await ask({
    title: "New queue", action: "Make it",
    fields: [
      { name: "queue", label: "Name", required: true, maxlength: 255 },
      { name: "namespace", label: "Namespace" },
      { name: "task", label: "Task" },
      ...NUMBERS.map(([name, label, value]) => ({ name, label, value, type: "number", min: 0, required: true })),
    ],
  });
  if (!values) return;
  const { queue, namespace, task } = values;
  const options = Object.fromEntries(NUMBERS.map(([name]) => [name, Number(values[name])]));
  if (await perform(() => call(operations.configureQueue, {}, { queue, namespace, task, options }), `Queue ${queue} is there`)) await then();
}
