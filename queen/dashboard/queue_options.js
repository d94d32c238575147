// The options of a queue: how they are displayed, and the form that changes them.

import { call } from "./api.js";
import { ask } from "./dialogs.js";
import { count, duration } from "./format.js";
import { operations } from "./operations.js";

const seconds = (value) => (value ? duration(value) : "–");
const yes = (value) => (value ? "yes" : "no");

// Name, label, default, formatter. A default of true or false makes a checkbox, any other a number field.
const OPTIONS = [
  ["leaseTime", "Lease time, in seconds", 60, duration],
  ["retryLimit", "Retry limit", 3, count],
  ["retryDelay", "Retry delay, in milliseconds", 0, (value) => `${count(value)} ms`],
  ["deadLetterQueue", "Dead letters enabled", true, yes],
  ["delayedProcessing", "Delivery delay, in seconds", 0, seconds],
  ["windowBuffer", "Window buffer, in seconds (quiet time before delivery)", 0, seconds],
  ["priority", "Priority", 0, count],
  ["maxSize", "Max backlog (0: unlimited)", 0, (value) => (value ? count(value) : "unlimited")],
  ["ttl", "Message TTL, in seconds (0: none)", 0, seconds],
  ["retentionEnabled", "Retention enabled", false, yes],
  ["retentionSeconds", "Retention time, in seconds", 0, seconds],
  ["completedRetentionSeconds", "Retention of acknowledged messages, in seconds", 0, seconds],
  ["maxWaitTimeSeconds", "Max age before eviction, in seconds", 0, seconds],
  ["encryptionEnabled", "Encryption enabled", false, yes],
  ["sqlPush", "Push with SQL allowed", true, yes],
];

// Pairs of label and formatted value.
export function described({ namespace, task, options }) {
  const labels = [["Namespace", namespace || "–"], ["Task", task || "–"]];
  return [...labels, ...OPTIONS.map(([name, label, value, text]) => [label.replace(/, in \w+| \(.*\)/g, ""), text(options[name] ?? value)])];
}

// Asks for the options of a queue, or for a new one.
export async function configure(present, then) {
  const sure = await ask({
    title: present ? `Options of ${present.queue}` : "New queue", action: present ? "Save" : "Create",
    fields: [
      ...(present ? [] : [{ name: "queue", label: "Name", required: true, maxlength: 255 }]),
      { name: "namespace", label: "Namespace", value: present?.namespace },
      { name: "task", label: "Task", value: present?.task },
      ...OPTIONS.map(([name, label, value]) => input(name, label, present?.options[name] ?? value)),
    ],
    run: (values) => save(present, values), done: ({ queue }) => `Queue ${queue} ${present ? "saved" : "created"}`,
  });
  if (sure) await then();
}

async function save(present, values) {
  const queue = present ? present.queue : values.queue;
  if (!present && (await call(operations.listQueues, { queue, limit: 1 })).queues.length) throw new Error(`There is a queue ${queue} already`);
  const chosen = Object.fromEntries(OPTIONS.map(([name]) => [name, typeof values[name] === "boolean" ? values[name] : Number(values[name])]));
  const options = { ...present?.options, ...chosen, dlqAfterMaxRetries: chosen.deadLetterQueue };
  await call(operations.configureQueue, {}, { queue, namespace: values.namespace, task: values.task, options });
  return { queue };
}

function input(name, label, value) {
  return typeof value === "boolean"
    ? { name, label, value, type: "checkbox" }
    : { name, label, value, type: "number", min: name === "priority" ? null : 0, required: true };
}
