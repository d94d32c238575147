// Queues of SQS: the actions that the pages about them call, and the dialogs for them.

import { call } from "./api.js";
import { ask } from "./dialogs.js";
import { count } from "./format.js";
import { operations } from "./operations.js";
import { session } from "./session.js";

const FIFO = ".fifo";
const LOCKED = "Access keys protect the queues of SQS (QUEEN_SQS_KEYS). With JWT_ENABLED they are shown here to those who sign in.";

// The level of those that change something.
const LEVELS = {
  CreateQueue: "read-write", SetQueueAttributes: "read-write", SendMessage: "read-write", StartMessageMoveTask: "read-write",
  CancelMessageMoveTask: "read-write", PurgeQueue: "admin", DeleteQueue: "admin",
};

// The numbers that a dialog asks for: name, label, default, maximum.
const NUMBERS = [
  ["VisibilityTimeout", "Visibility timeout, in seconds", 30, 43200], ["DelaySeconds", "Delay, in seconds", 0, 900],
  ["MessageRetentionPeriod", "Retention, in seconds", 345600, 1209600],
  ["ReceiveMessageWaitTimeSeconds", "Wait of a receive, in seconds", 0, 20],
];

export async function act(action, given = {}) {
  const target = action.startsWith("Queen.") ? action : `AmazonSQS.${action}`;
  try {
    return await call(operations.sqs, {}, given, { "X-Amz-Target": target });
  } catch (error) {
    if (error.status === 403 && kindOf(error) === "MissingAuthenticationTokenException") error.message = LOCKED;
    throw error;
  }
}

// The name of an error of AWS.
export function kindOf(error) {
  return String(error.problem?.__type ?? "").split("#").pop();
}

export function mayAct(action) {
  return session.may({ level: LEVELS[action] });
}

// The queue of a URL or an ARN.
export function nameOf(place) {
  return place.split("/").pop().split(":").pop();
}

export async function attributesOf(queue) {
  return (await act("GetQueueAttributes", { QueueUrl: queue, AttributeNames: ["All"] })).Attributes;
}

const arnOf = async (queue) => (await attributesOf(queue)).QueueArn;

// What a queue does with messages that were received too often; null: nothing.
export function redriveOf(attributes) {
  if (!attributes.RedrivePolicy) return null;
  const { deadLetterTargetArn, maxReceiveCount } = JSON.parse(attributes.RedrivePolicy);
  return { queue: nameOf(deadLetterTargetArn), receives: Number(maxReceiveCount) };
}

export async function configure(present, then) {
  const dead = present && redriveOf(present);
  const queue = present && nameOf(present.QueueArn);
  const sure = await ask({
    title: present ? `Attributes of ${queue}` : "New queue", action: present ? "Save" : "Create",
    text: present ? "" : "A name that ends with .fifo makes a FIFO queue.",
    fields: [
      ...(present ? [] : [{ name: "queue", label: "Name", required: true, maxlength: 80 }]),
      ...NUMBERS.map(([name, label, value, max]) => ({ name, label, type: "number", min: 0, max, required: true, value: present?.[name] ?? value })),
      { name: "dead", label: "Dead letters to the queue (optional)", value: dead?.queue },
      { name: "receives", label: "Receives before a message is a dead letter", type: "number", min: 1, max: 1000, required: true, value: dead?.receives ?? 10 },
    ],
    run: (values) => save(queue, values), done: (name) => `Queue ${name} ${present ? "saved" : "created"}`,
  });
  if (sure) await then();
}

async function save(present, values) {
  const attributes = Object.fromEntries(NUMBERS.map(([name]) => [name, values[name]]));
  const policy = values.dead && JSON.stringify({ deadLetterTargetArn: await arnOf(values.dead), maxReceiveCount: Number(values.receives) });
  const queue = present ?? values.queue;
  if (present) await act("SetQueueAttributes", { QueueUrl: queue, Attributes: { ...attributes, RedrivePolicy: policy } });
  else {
    const fifo = queue.endsWith(FIFO) ? { FifoQueue: "true" } : {};
    await act("CreateQueue", { QueueName: queue, Attributes: { ...attributes, ...fifo, ...(policy ? { RedrivePolicy: policy } : {}) } });
  }
  return queue;
}

export async function remove(queue, then) {
  const sure = await ask({
    title: "Delete this queue?", text: `This deletes ${queue} with all its messages. It cannot be undone.`, action: "Delete queue", type: queue,
    run: () => act("DeleteQueue", { QueueUrl: queue }), done: `Queue ${queue} deleted`,
  });
  if (sure) await then();
}

export async function purge(queue, then) {
  const sure = await ask({
    title: "Purge this queue?", text: `This deletes all messages of ${queue}, also those in flight. It cannot be undone.`, action: "Purge", type: queue,
    run: () => act("PurgeQueue", { QueueUrl: queue }), done: `Queue ${queue} purged`,
  });
  if (sure) await then();
}

export async function send(queue, then) {
  const fifo = queue.endsWith(FIFO);
  const sure = await ask({
    title: "Send a message", action: "Send",
    fields: [
      { name: "body", label: "Body", type: "textarea", required: true },
      ...(fifo ? [{ name: "group", label: "Message group", required: true }, { name: "deduplication", label: "Deduplication id (optional)" }]
        : [{ name: "delay", label: "Delay in seconds (optional)", type: "number", min: 0, max: 900 }]),
    ],
    run: ({ body, group, deduplication, delay }) => act("SendMessage", {
      QueueUrl: queue, MessageBody: body,
      ...(fifo ? { MessageGroupId: group, MessageDeduplicationId: deduplication || `${Date.now()}-${Math.random()}` } : {}),
      ...(delay ? { DelaySeconds: Number(delay) } : {}),
    }),
    done: "Message sent",
  });
  if (sure) await then();
}

export async function redrive(queue, then) {
  const sure = await ask({
    title: "Move the dead letters?", text: "Each goes back to the queue that it comes from, or all of them to the queue that you name.", action: "Start",
    fields: [
      { name: "to", label: "To the queue (optional)" },
      { name: "perSecond", label: "Messages per second at most (optional)", type: "number", min: 1, max: 500 },
    ],
    run: async ({ to, perSecond }) => act("StartMessageMoveTask", {
      SourceArn: await arnOf(queue), ...(to ? { DestinationArn: await arnOf(to) } : {}),
      ...(perSecond ? { MaxNumberOfMessagesPerSecond: Number(perSecond) } : {}),
    }),
    done: "The move has started",
  });
  if (sure) await then();
}

export async function cancel(task, then) {
  const sure = await ask({
    title: "Cancel this move?", text: "What was moved stays where it is.", action: "Cancel move", danger: true,
    run: () => act("CancelMessageMoveTask", { TaskHandle: task.TaskHandle }),
    done: (result) => `Cancelled after ${count(result.ApproximateNumberOfMessagesMoved)} messages`,
  });
  if (sure) await then();
}
