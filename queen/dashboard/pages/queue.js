// One queue: its messages, options, partitions and consumer groups.

import { call, callList } from "../api.js";
import { Chart } from "../charts.js";
import { homesOf } from "../databases.js";
import { badge, button, card, facts, field, fill, h, link, tile, tiles } from "../dom.js";
import { ask } from "../dialogs.js";
import { ago, count, duration, groupName, moment, rate } from "../format.js";
import { leadTo } from "../notices.js";
import { operations } from "../operations.js";
import { pausedBadge, pauseSwitch } from "../pausing.js";
import { Place } from "../place.js";
import { configure, described } from "../queue_options.js";
import { remove } from "./queues.js";
import { to } from "../router.js";
import { lines, since } from "../series.js";
import { session } from "../session.js";
import { List } from "../tables.js";
import { Timers } from "../timers.js";

const HOURS = 1;
const PARTITIONS = 50;
const GROUPS = 10;

export const title = ({ names }) => names[0];

export function open(view, { names: [queue], query }, refreshNow) {
  let known = null;
  const figures = h("div");
  const options = h("div");
  const delivery = h("span");
  const chart = new Chart("Messages per second", [
    { label: "Pushed", colour: "--one" }, { label: "Popped", colour: "--three" }, { label: "Acknowledged", colour: "--two" },
  ], rate);
  const partitions = new List("Partitions", [
    { name: "Partition", order: "name", value: (row) => [link(row.name, to("messages", [], { queue, partition: row.name })), row.home ? [h("br"), h("small", {}, `in ${row.home}`)] : null] },
    { name: "Messages", number: true, wide: true, order: "total", value: (row) => count(row.stats.total) },
    { name: "Pending", number: true, order: "pending", value: (row) => count(row.stats.pending) },
    { name: "In flight", number: true, order: "processing", value: (row) => count(row.stats.processing) },
    { name: "Dead letters", number: true, wide: true, order: "dead_letter", value: (row) => count(row.stats.deadLetter) },
    { name: "Last push", number: true, order: "newest", value: (row) => ago(row.lastActivity) },
  ], { place: new Place(query), limit: PARTITIONS, refresh: refreshNow, order: "name", key: (row) => row.name, empty: "No partitions found" });
  const search = partitions.search(h("input", { type: "search", placeholder: "Part of the name" }));
  const groups = new List("Consumer groups", [
    { name: "Group", order: "name", value: (row) => link(groupName(row.name), to("groups", [row.name], { queue })) },
    { name: "Lag", number: true, order: "lag", value: (row) => count(row.totalLag) },
    { name: "Oldest", number: true, order: "age", value: (row) => duration(row.maxTimeLag) },
    { name: "State", value: (row) => [badge(row.state, row.state === "Stable" ? "good" : "warn"), " ", pausedBadge(row.paused)] },
  ], { place: new Place(query, "groups "), limit: GROUPS, refresh: refreshNow, order: "lag", key: (row) => row.name, empty: "No consumer group has read this queue yet" });
  const change = session.may(operations.configureQueue) ? button("Change options", () => known && configure(known, refreshNow)) : null;
  const timers = new Timers(queue, query, refreshNow);
  const missing = h("p", { class: "empty", hidden: true }, "There is no queue of this name. ", link("All queues", to("queues")));
  const there = h("div", { class: "view", hidden: true },
    h("div", { class: "actions" },
      link("Messages", to("messages", [], { queue })), link("Dead letters", to("dead-letters", [], { queue })),
      session.may(operations.push) ? button("Push a message", () => push(queue, refreshNow)) : null,
      delivery,
      session.may(operations.deleteQueue) ? button("Delete queue", () => remove(queue, () => leadTo(to("queues"))), { class: "danger" }) : null),
    figures,
    h("div", { class: "columns" }, chart.element, card("Consumer groups", groups.elements)),
    card("", h("div", { class: "head" }, h("h2", {}, "Options"), change), options),
    card("", h("div", { class: "head" }, h("h2", {}, "Partitions"), field("Search", search)), partitions.elements),
    ...timers.elements);
  view.append(missing, there);

  async function refresh() {
    const asked = Promise.all([
      call(operations.getQueueStatus, { queue, search: search.value, ...partitions.wanted() }),
      call(operations.getConfiguration, { queue }),
      call(operations.getQueueOperations, { queue, from: since(HOURS) }),
      callList(operations.listConsumerGroups, { queue, ...groups.wanted() }),
      timers.refresh(),
    ]);
    const answers = await asked.catch((error) => {
      if (error.status !== 404) throw error;
    });
    missing.hidden = Boolean(answers);
    there.hidden = !answers;
    if (!answers) return;
    const home = await homesOf(answers[0].partitions.map((row) => row.id));
    for (const row of answers[0].partitions) row.home = home(row.id);
    show(...answers);
  }

  function show(status, configuration, work, itsGroups) {
    fill(figures, summary(queue, status.totals));
    fill(delivery, pauseSwitch(operations.pauseQueue, { queue }, queue, status.queue.paused, refreshNow));
    known = configuration;
    fill(options, facts([...described(configuration), ["Created", moment(status.queue.createdAt)]]));
    const each = (name) => (point, seconds) => (point ? point[name] / seconds : 0);
    chart.show(...lines(work.series, work.bucketMinutes, HOURS, (point) => point.bucket, ["pushMessages", "popMessages", "ackSuccess"].map(each)));
    partitions.show(status.partitions, status.partitionsTotal);
    groups.show(...itsGroups);
  }

  return { refresh, close: () => chart.close() };
}

function summary(queue, totals) {
  const messages = (status) => to("messages", [], { queue, status, hours: "all" });
  return tiles(
    tile("Messages", count(totals.total), "stored", "", messages("")), tile("Pending", count(totals.pending), "", "", messages("pending")),
    tile("In flight", count(totals.processing), "", "", messages("processing")),
    tile("Acknowledged", count(totals.completed), "by every group", "", messages("completed")),
    tile("Dead letters", count(totals.deadLetter), "", totals.deadLetter ? "bad" : "", to("dead-letters", [], { queue })));
}

async function push(queue, then) {
  const sure = await ask({
    title: "Push a message", action: "Push",
    fields: [
      { name: "partition", label: "Partition", value: "Default", required: true },
      { name: "transactionId", label: "Transaction id (optional)" },
      { name: "payload", label: "Payload (JSON)", type: "textarea", value: "{}", required: true },
    ],
    run: ({ partition, transactionId, payload }) => {
      JSON.parse(payload);
      const item = JSON.stringify({ queue, partition, transactionId: transactionId || undefined });
      // The payload is sent as typed: JavaScript would round numbers with many digits.
      return call(operations.push, {}, `{"items":[${item.slice(0, -1)},"payload":${payload}}]}`);
    },
    done: ([pushed]) => (pushed.status === "duplicate" ? "Duplicate: this transaction id is already stored" : "Message pushed"),
  });
  if (sure) await then();
}
