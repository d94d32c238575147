// The options of a queue: how they are shown, and the form that changes them.

import { call } from "./api.js";
import { ask } from "./dialogs.js";
import { count, duration } from "./format.js";
import { perform } from "./notices.js";
import { operations } from "./operations.js";

const seconds = (value) => (value ? duration(value) : "–");
const yes = (value) => (value ? "yes" : "no");

// Name, label, default, how it reads. A default of true or false is a box to tick, any other a number.
const OPTIONS = [
  ["leaseTime", "Lease, in seconds", 60, duration],
  ["retryLimit", "Failures before a message is a dead letter", 3, count],
  ["retryDelay", "Pause before a retry, in milliseconds", 0, (value) => `${count(value)} ms`],
  ["deadLetterQueue", "Dead letters are kept", true, yes],
  ["delayedProcessing", "Delay before delivery, in seconds", 0, seconds],
  ["windowBuffer", "Quiet time before delivery, in seconds", 0, seconds],
  ["priority", "Priority", 0, count],
  ["maxSize", "Most messages that wait (0: any number)", 0, (value) => (value ? count(value) : "any number")],
  ["ttl", "Age at which messages go, in seconds (0: never)", 0, seconds],
  ["retentionEnabled", "Retention is on", false, yes],
  ["retentionSeconds", "Retention, in seconds", 0, seconds],
  ["completedRetentionSeconds", "Retention of what is done, in seconds", 0, seconds],
  ["maxWaitTimeSeconds", "Longest wait before a message is given up, in seconds", 0, seconds],
  ["encryptionEnabled", "Payloads are encrypted", false, yes],
];

// Pairs of label and value.
export function described({ namespace, task, options }) {
  const labels = [["Namespace", namespace || "–"], ["Task", task || "–"]];
  return [...labels, ...OPTIONS.map(([name, label, , text]) => [label.replace(/, in \w+| \(.*\)/g, ""), text(options[name])])];
}

// Asks for the options of a queue, or for a new one.
export async function configure(present, then) {
  const values = await ask({
    title: present ? `Options of ${present.queue}` : "New queue", action: present ? "Change" : "Make it",
    fields: [
      ...(present ? [] : [{ name: "queue", label: "Name", required: true, maxlength: 255 }]),
      { name: "namespace", label: "Namespace", value: present?.namespace },
      { name: "task", label: "Task", value: present?.task },
      ...OPTIONS.map(([name, label, value]) => input(name, label, present ? present.options[name] : value)),
    ],
  });
  if (!values) return;
  const queue = present ? present.queue : values.queue;
  const chosen = Object.fromEntries(OPTIONS.map(([name]) => [name, typeof values[name] === "boolean" ? values[name] : Number(values[name])]));
  const options = { ...present?.options, ...chosen, dlqAfterMaxRetries: chosen.deadLetterQueue };
  const work = () => call(operations.configureQueue, {}, { queue, namespace: values.namespace, task: values.task, options });
  if (await perform(work, `Queue ${queue} is ${present ? "changed" : "there"}`)) await then();
}

function input(name, label, value) {
  return typeof value === "boolean"
    ? { name, label, value, type: "checkbox" }
    : { name, label, value, type: "number", min: name === "priority" ? null : 0, required: true };
}
