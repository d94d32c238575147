// Throughput, lag and health of the whole installation.

import { call } from "../api.js";
import { Chart } from "../charts.js";
import { badge, card, fill, h, link, select, tile, tiles } from "../dom.js";
import { count, duration, milliseconds, rate } from "../format.js";
import { operations } from "../operations.js";
import { to } from "../router.js";
import { lines, RANGES, since } from "../series.js";
import { Table } from "../tables.js";

const BUSIEST = 8;

export const title = () => "Overview";

export function open(view, _args, refreshNow) {
  const figures = h("div");
  const range = select(RANGES, "1", { "aria-label": "Time", onchange: refreshNow });
  const throughput = new Chart("Messages a second", [
    { label: "Pushed", colour: "--one" }, { label: "Popped", colour: "--three" }, { label: "Done", colour: "--two" },
  ], rate);
  const lag = new Chart("Age of messages when they are popped", [
    { label: "Mean", colour: "--one" }, { label: "Most", colour: "--three" },
  ], milliseconds);
  const queues = new Table("Queues with the longest backlog", [
    { name: "Queue", value: (queue) => link(queue.name, to("queues", [queue.name])) },
    { name: "Pending", number: true, value: (queue) => count(queue.messages.pending) },
    { name: "In work", number: true, value: (queue) => count(queue.messages.processing) },
  ], { empty: "No queues yet: the first push makes one" });
  const groups = new Table("Consumer groups that are behind", [
    { name: "Group", value: (group) => link(group.name, to("groups", [group.name])) },
    { name: "Queue", value: (group) => group.queueName },
    { name: "Messages", number: true, value: (group) => count(group.totalLag) },
    { name: "Oldest", number: true, value: (group) => duration(group.maxTimeLag) },
  ], { empty: "Nobody is behind" });
  const errors = h("div");
  view.append(
    figures,
    h("div", { class: "filters" }, range),
    h("div", { class: "columns" }, throughput.element, lag.element),
    h("div", { class: "columns" }, card("Longest backlog", queues.element), card("Furthest behind", groups.element)),
    errors);

  async function refresh() {
    const hours = Number(range.value);
    const [overview, status, list, slowest] = await Promise.all([
      call(operations.getOverview), call(operations.getStatus, { from: since(hours), limit: 1 }),
      call(operations.listQueues, { order: "pending", limit: BUSIEST }), call(operations.listConsumerGroups, { order: "lag", limit: BUSIEST }),
    ]);
    fill(figures, summary(overview, status));
    const each = (field) => (point, seconds) => (point ? point[field] / seconds : 0);
    throughput.show(...lines(status.throughput, status.bucketMinutes, hours, (point) => point.timestamp, ["ingested", "popMessages", "processed"].map(each)));
    const age = (field) => (point) => (point?.popMessages ? point[field] : null);
    lag.show(...lines(status.throughput, status.bucketMinutes, hours, (point) => point.timestamp, ["avgLagMs", "maxLagMs"].map(age)));
    queues.show(list.queues);
    groups.show(slowest.filter((group) => group.totalLag));
    fill(errors, card("Errors", wrong(status)));
  }

  return { refresh, close: () => [throughput, lag].forEach((chart) => chart.close()) };
}

function summary({ queues, partitions, messages, throughput, lag }, { deadLetterQueue: dead, leases }) {
  return tiles(
    tile("Pushed", rate(throughput.ingestedPerSecond), "over five minutes"),
    tile("Done", rate(throughput.processedPerSecond), "over five minutes"),
    tile("Pending", count(messages.pending), `of ${count(messages.total)} kept`),
    tile("In work", count(messages.processing), `${count(leases.active)} leases`),
    tile("Oldest waiting", duration(lag.time.max), "over all queues", lag.time.max > 300 ? "warn" : ""),
    tile("Dead letters", count(dead.totalMessages), "", dead.totalMessages ? "bad" : ""),
    tile("Queues", count(queues), `${count(partitions)} partitions`));
}

function wrong({ errors, deadLetterQueue: dead }) {
  const kinds = [["Errors of the database", errors.dbErrors], ["Failed acks", errors.ackFailed], ["New dead letters", errors.dlqMessages]];
  const texts = dead.topErrors.map(({ error, count: times }) => h("li", {}, error || "(no text)", " ", badge(`${count(times)}×`)));
  return [
    h("div", { class: "actions" }, kinds.map(([name, number]) => badge(`${name}: ${count(number)}`, number ? "warn" : "good"))),
    texts.length ? h("div", {}, h("h3", {}, "What the newest ", link("dead letters", to("dead-letters")), " say"), h("ul", {}, texts)) : null,
  ];
}
