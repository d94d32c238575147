// One queue: its messages, options, partitions and consumer groups.

import { call } from "../api.js";
import { Chart } from "../charts.js";
import { badge, button, card, facts, field, fill, h, link, tile, tiles } from "../dom.js";
import { ask } from "../dialogs.js";
import { ago, count, duration, moment, rate } from "../format.js";
import { perform } from "../notices.js";
import { operations } from "../operations.js";
import { pausedBadge, pauseSwitch } from "../pausing.js";
import { configure, described } from "../queue_options.js";
import { remove } from "./queues.js";
import { to } from "../router.js";
import { lines, since } from "../series.js";
import { session } from "../session.js";
import { Pager, Table } from "../tables.js";
import { Timers } from "../timers.js";

const HOURS = 1;
const PARTITIONS = 50;

export const title = ({ names }) => names[0];

export function open(view, { names: [queue] }, refreshNow) {
  let offset = 0;
  let known = null;
  const figures = h("div");
  const options = h("div");
  const delivery = h("span");
  const chart = new Chart("Messages per second", [
    { label: "Pushed", colour: "--one" }, { label: "Popped", colour: "--three" }, { label: "Acknowledged", colour: "--two" },
  ], rate);
  const wanted = h("input", { type: "search", placeholder: "Exact name", onchange: () => page(0) });
  const pager = new Pager(PARTITIONS, page);
  const partitions = new Table("Partitions", [
    { name: "Partition", by: (row) => row.name, value: (row) => link(row.name, to("messages", [], { queue, partition: row.name })) },
    { name: "Messages", number: true, wide: true, by: (row) => row.stats.total, value: (row) => count(row.stats.total) },
    { name: "Pending", number: true, by: (row) => row.stats.pending, value: (row) => count(row.stats.pending) },
    { name: "In flight", number: true, by: (row) => row.stats.processing, value: (row) => count(row.stats.processing) },
    { name: "Dead letters", number: true, wide: true, by: (row) => row.stats.deadLetter, value: (row) => count(row.stats.deadLetter) },
    { name: "Last push", number: true, by: (row) => Date.parse(row.lastActivity) || 0, value: (row) => ago(row.lastActivity) },
  ], { empty: "No partitions" });
  const groups = new Table("Consumer groups", [
    { name: "Group", value: (row) => link(row.name, to("groups", [row.name])) },
    { name: "Lag", number: true, value: (row) => count(row.totalLag) },
    { name: "Oldest", number: true, value: (row) => duration(row.maxTimeLag) },
    { name: "State", value: (row) => [badge(row.state, row.state === "Stable" ? "good" : "warn"), " ", pausedBadge(row.paused)] },
  ], { empty: "No consumer group has read this queue yet" });
  const change = session.may(operations.configureQueue) ? button("Change options", () => known && configure(known, refreshNow)) : null;
  const timers = new Timers(queue, refreshNow);
  view.append(
    h("div", { class: "actions" },
      link("Messages", to("messages", [], { queue })), link("Dead letters", to("dead-letters", [], { queue })),
      session.may(operations.push) ? button("Push a message", () => push(queue, refreshNow)) : null,
      delivery,
      session.may(operations.deleteQueue) ? button("Delete queue", () => remove(queue, leave), { class: "danger" }) : null),
    figures,
    h("div", { class: "columns" }, chart.element, card("Consumer groups", groups.element)),
    card("", h("div", { class: "head" }, h("h2", {}, "Options"), change), options),
    card("", h("div", { class: "head" }, h("h2", {}, "Partitions"), field("Find", wanted)), partitions.element, pager.element),
    ...timers.elements);

  function leave() {
    location.hash = to("queues");
  }

  function page(next) {
    offset = next;
    return refreshNow();
  }

  async function refresh() {
    const [status, configuration, work, itsGroups] = await Promise.all([
      call(operations.getQueueStatus, { queue, limit: PARTITIONS, offset, partition: wanted.value }),
      call(operations.getConfiguration, { queue }),
      call(operations.getQueueOperations, { queue, from: since(HOURS) }),
      call(operations.listConsumerGroups, { queue, order: "lag" }),
      timers.refresh(),
    ]);
    fill(figures, summary(status.totals));
    fill(delivery, pauseSwitch(operations.pauseQueue, { queue }, queue, status.queue.paused, refreshNow));
    known = configuration;
    fill(options, facts([...described(configuration), ["Created", moment(status.queue.createdAt)]]));
    const each = (name) => (point, seconds) => (point ? point[name] / seconds : 0);
    chart.show(...lines(work.series, work.bucketMinutes, HOURS, (point) => point.bucket, ["pushMessages", "popMessages", "ackSuccess"].map(each)));
    partitions.show(status.partitions);
    pager.show(offset, status.partitions.length);
    groups.show(itsGroups);
  }

  return { refresh, close: () => chart.close() };
}

function summary(totals) {
  return tiles(
    tile("Messages", count(totals.total), "stored"), tile("Pending", count(totals.pending)), tile("In flight", count(totals.processing)),
    tile("Acknowledged", count(totals.completed), "by every group"), tile("Dead letters", count(totals.deadLetter), "", totals.deadLetter ? "bad" : ""));
}

async function push(queue, then) {
  const values = await ask({
    title: "Push a message", action: "Push",
    fields: [
      { name: "partition", label: "Partition", value: "Default", required: true },
      { name: "transactionId", label: "Transaction id (optional)" },
      { name: "payload", label: "Payload (JSON)", type: "textarea", value: "{}", required: true },
    ],
  });
  if (!values) return;
  const send = () => {
    JSON.parse(values.payload);
    const item = JSON.stringify({ queue, partition: values.partition, transactionId: values.transactionId || undefined });
    // The payload is sent as typed: JavaScript would round numbers with many digits.
    return call(operations.push, {}, `{"items":[${item.slice(0, -1)},"payload":${values.payload}}]}`);
  };
  if (await perform(send, ([pushed]) => (pushed.status === "duplicate" ? "Duplicate: this transaction id is already stored" : "Message pushed"))) await then();
}
