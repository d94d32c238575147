// One queue of SQS: its messages, attributes, dead letters and their moves.

import { Chart } from "../charts.js";
import { badge, button, card, facts, fill, h, link, tile, tiles, why } from "../dom.js";
import { ago, count, duration, moment, rate } from "../format.js";
import { leadTo } from "../notices.js";
import { Place } from "../place.js";
import { to } from "../router.js";
import { act, attributesOf, cancel, configure, kindOf, mayAct, nameOf, purge, redrive, redriveOf, remove, send } from "../sqs.js";
import { After, Table } from "../tables.js";

const LIMIT = 20;
const GLIMPSE = 90;
// Points of a chart: an hour, while the page is open.
const POINTS = 720;
const STATES = { visible: ["visible", ""], in_flight: ["in flight", "warn"], delayed: ["delayed", "warn"], behind: ["behind another of its group", ""] };
const TASKS = { RUNNING: "warn", COMPLETED: "good", CANCELLED: "", FAILED: "bad" };
const COUNTERS = ["Sent", "Received", "Deleted"];

export const title = ({ names }) => names[0];

export function open(view, { names: [queue], query }, refreshNow) {
  let known = null;
  const pages = new After(new Place(query), refreshNow, "Messages");
  const figures = h("div");
  const about = h("div");
  const speed = new Chart("Messages per second, since this page is open", [
    { label: "Sent", colour: "--one" }, { label: "Received", colour: "--three" }, { label: "Deleted", colour: "--two" },
  ], rate);
  const depth = new Chart("Messages, since this page is open", [{ label: "Visible", colour: "--one" }, { label: "In flight", colour: "--two" }]);
  const seen = [];
  const messages = new Table("Messages, oldest first", [
    { name: "Message", long: true, value: (row) => [contents(row), row.Attributes.MessageGroupId ? badge(row.Attributes.MessageGroupId) : null] },
    { name: "State", value: (row) => badge(...STATES[row.State]) },
    { name: "Id", wide: true, value: (row) => h("small", {}, row.MessageId) },
    { name: "Receives", number: true, wide: true, value: (row) => count(Number(row.Attributes.ApproximateReceiveCount)) },
    { name: "Sent", number: true, wide: true, value: (row) => ago(new Date(Number(row.Attributes.SentTimestamp)).toISOString()) },
  ], { key: (row) => row.MessageId, empty: "No messages" });
  const tasks = new Table("Moves of dead letters", [
    { name: "Started", value: (row) => moment(row.StartedTimestamp) },
    { name: "Status", value: (row) => [badge(row.Status.toLowerCase(), TASKS[row.Status]), row.FailureReason ? why(row.FailureReason) : null] },
    { name: "Moved", number: true, value: (row) => `${count(row.ApproximateNumberOfMessagesMoved)} of ${count(row.ApproximateNumberOfMessagesToMove)}` },
    { name: "To", wide: true, value: (row) => (row.DestinationArn ? nameOf(row.DestinationArn) : "where they came from") },
    { name: "", value: (row) => (row.TaskHandle && mayAct("CancelMessageMoveTask") ? button("Cancel", () => cancel(row, refreshNow), { class: "danger", "data-key": "cancel" }) : "") },
  ], { empty: "No moves yet", key: (row) => String(row.StartedTimestamp) });
  const allowed = (action, text, does, attributes) => (mayAct(action) ? button(text, does, attributes) : null);
  const moves = card("", h("div", { class: "head" }, h("h2", {}, "Moves of dead letters"), allowed("StartMessageMoveTask", "Move dead letters", () => redrive(queue, refreshNow))), tasks.element);
  const missing = h("p", { class: "empty", hidden: true }, "There is no queue of SQS of this name. ", link("All queues of SQS", to("sqs")));
  const there = h("div", { class: "view", hidden: true },
    h("div", { class: "actions" },
      allowed("SendMessage", "Send a message", () => send(queue, refreshNow)),
      allowed("PurgeQueue", "Purge", () => purge(queue, refreshNow), { class: "danger" }),
      allowed("DeleteQueue", "Delete queue", () => remove(queue, () => leadTo(to("sqs"))), { class: "danger" })),
    figures,
    h("div", { class: "columns" }, speed.element, depth.element),
    card("Messages, oldest first", messages.element, pages.element),
    moves,
    card("", h("div", { class: "head" }, h("h2", {}, "Attributes"), allowed("SetQueueAttributes", "Change attributes", () => known && configure(known, refreshNow))), about));
  view.append(missing, there);

  async function refresh() {
    const given = { QueueUrl: queue };
    const asked = Promise.all([
      attributesOf(queue),
      act("Queen.ListQueues", { Search: queue, MaxResults: 100 }),
      act("Queen.PeekMessages", { ...given, MaxResults: LIMIT, NextToken: pages.token }),
      act("ListQueueTags", given),
      act("ListDeadLetterSourceQueues", given),
    ]);
    const answers = await asked.catch((error) => {
      if (kindOf(error) !== "QueueDoesNotExist") throw error;
    });
    missing.hidden = Boolean(answers);
    there.hidden = !answers;
    if (answers) await show(...answers);
  }

  async function show(attributes, { Queues }, found, { Tags = {} }, { queueUrls: sources }) {
    known = attributes;
    const overview = Queues.find((each) => each.QueueName === queue);
    fill(figures, summary(attributes, overview));
    fill(about, facts(described(attributes, Tags, sources)));
    messages.show(found.Messages);
    pages.show(found.Messages.length < LIMIT ? undefined : found.NextToken);
    if (overview) remember(overview);
    moves.hidden = !sources.length;
    if (sources.length) tasks.show((await act("ListMessageMoveTasks", { SourceArn: attributes.QueueArn, MaxResults: 10 })).Results ?? []);
  }

  // The server keeps no figures of the past: the charts begin with the page.
  function remember(overview) {
    seen.push({ at: Date.now() / 1000, ...overview });
    if (seen.length > POINTS) seen.shift();
    if (seen.length === 1) return;
    const times = seen.map((each) => each.at);
    speed.show(times.slice(1), ...COUNTERS.map((name) => seen.slice(1).map((each, n) => (each[name] - seen[n][name]) / Math.max(each.at - seen[n].at, .001))));
    depth.show(times, ...["Visible", "InFlight"].map((name) => seen.map((each) => each[name])));
  }

  return { refresh, close: () => [speed, depth].forEach((chart) => chart.close()) };
}

function contents(row) {
  if (row.Body === null) return why(row.Problem);
  const attributes = Object.entries(row.MessageAttributes);
  if (row.Body.length <= GLIMPSE && !attributes.length) return h("div", {}, h("code", {}, row.Body));
  const short = row.Body.length > GLIMPSE ? `${row.Body.slice(0, GLIMPSE - 1)}…` : row.Body;
  return h("details", { class: "error" }, h("summary", {}, h("code", {}, short)),
    h("pre", { tabindex: "0", role: "group", "aria-label": "Body" }, row.Body),
    attributes.length ? facts(attributes.map(([name, value]) => [`${name} (${value.DataType})`, value.StringValue ?? value.BinaryValue])) : null);
}

function summary(attributes, overview) {
  const number = (name) => Number(attributes[`ApproximateNumberOfMessages${name}`]);
  return tiles(
    tile("Visible", count(number(""))), tile("In flight", count(number("NotVisible"))), tile("Delayed", count(number("Delayed"))),
    tile("Oldest", duration(overview?.OldestSeconds ?? 0)),
    tile("Dead-lettered", count(overview?.DeadLettered ?? 0), "so far", overview?.DeadLettered ? "warn" : ""));
}

const seconds = (attributes, name) => duration(Number(attributes[name]));

function described(attributes, tags, sources) {
  const target = redriveOf(attributes);
  const linked = (name) => link(name, to("sqs", [name]));
  const rest = ["ContentBasedDeduplication", "DeduplicationScope", "FifoThroughputLimit", "KmsMasterKeyId", "Policy", "RedriveAllowPolicy"];
  return [
    ["Type", attributes.FifoQueue === "true" ? "FIFO" : "standard"],
    ["Visibility timeout", seconds(attributes, "VisibilityTimeout")], ["Delay", seconds(attributes, "DelaySeconds")],
    ["Retention", seconds(attributes, "MessageRetentionPeriod")], ["Wait of a receive", seconds(attributes, "ReceiveMessageWaitTimeSeconds")],
    ["Largest message", `${count(Number(attributes.MaximumMessageSize))} bytes`],
    ["Dead letters to", target ? [linked(target.queue), ` after ${count(target.receives)} receives`] : "–"],
    ["Dead letters of", sources.length ? sources.map((url) => [linked(nameOf(url)), " "]) : "–"],
    ...rest.filter((name) => attributes[name]).map((name) => [name, attributes[name]]),
    ...Object.entries(tags).map(([name, value]) => [`Tag ${name}`, value]),
    ["Created", moment(Number(attributes.CreatedTimestamp) * 1000)], ["Changed", moment(Number(attributes.LastModifiedTimestamp) * 1000)],
    ["ARN", h("code", {}, attributes.QueueArn)],
  ];
}
