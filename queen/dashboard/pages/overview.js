// Throughput, lag and health of the whole installation.

import { call } from "../api.js";
import { Chart } from "../charts.js";
import { badge, card, errorText, fill, h, link, select, tile, tiles } from "../dom.js";
import { count, duration, groupName, milliseconds, rate } from "../format.js";
import { operations } from "../operations.js";
import { to } from "../router.js";
import { lines, RANGES, since } from "../series.js";
import { Table } from "../tables.js";

const BUSIEST = 8;

export const title = () => "Overview";

export function open(view, _args, refreshNow) {
  const figures = h("div");
  const range = select(RANGES, "1", { "aria-label": "Time", onchange: refreshNow });
  const throughput = new Chart("Messages per second", [
    { label: "Pushed", colour: "--one" }, { label: "Popped", colour: "--three" }, { label: "Acknowledged", colour: "--two" },
  ], rate);
  const lag = new Chart("Age of messages at delivery", [
    { label: "Avg", colour: "--one" }, { label: "Max", colour: "--three" },
  ], milliseconds);
  const queues = new Table("Queues with the largest backlog", [
    { name: "Queue", value: (queue) => link(queue.name, to("queues", [queue.name])) },
    { name: "Pending", number: true, value: (queue) => count(queue.messages.pending) },
    { name: "In flight", number: true, value: (queue) => count(queue.messages.processing) },
  ], { empty: "No queues yet. The first push creates one.", key: (queue) => queue.name });
  const groups = new Table("Consumer groups with the highest lag", [
    { name: "Group", value: (group) => link(groupName(group.name), to("groups", [group.name], { queue: group.queueName })) },
    { name: "Queue", value: (group) => group.queueName },
    { name: "Lag", number: true, value: (group) => count(group.totalLag) },
    { name: "Oldest", number: true, value: (group) => duration(group.maxTimeLag) },
  ], { empty: "No consumer group has a lag" });
  const errors = h("div");
  view.append(
    figures,
    h("div", { class: "filters" }, range),
    h("div", { class: "columns" }, throughput.element, lag.element),
    h("div", { class: "columns" }, card("Largest backlog", queues.element), card("Highest lag", groups.element)),
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
    tile("Pushed", rate(throughput.ingestedPerSecond), "5-minute average", "", to("queues")),
    tile("Acknowledged", rate(throughput.processedPerSecond), "5-minute average, without autoAck", "", to("groups")),
    tile("Pending", count(messages.pending), `of ${count(messages.total)} stored`, "", to("queues", [], { order: "pending" })),
    tile("In flight", count(messages.processing), `${count(leases.active)} leases`, "", to("queues", [], { order: "processing" })),
    tile("Oldest pending", duration(lag.time.max), "in all queues", lag.time.max > 300 ? "warn" : "", to("groups", [], { order: "age" })),
    tile("Dead letters", count(dead.totalMessages), "", dead.totalMessages ? "bad" : "", to("dead-letters")),
    tile("Queues", count(queues), `${count(partitions)} partitions`, "", to("queues")));
}

function wrong({ errors, deadLetterQueue: dead }) {
  const kinds = [["Database errors", errors.dbErrors], ["Failed acks", errors.ackFailed], ["New dead letters", errors.dlqMessages]];
  const texts = dead.topErrors.map(({ error, count: times }) => h("li", { "data-key": error }, errorText(error || "(no error text)"), " ", badge(`${count(times)}×`)));
  return [
    h("div", { class: "actions" }, kinds.map(([name, number]) => badge(`${name}: ${count(number)}`, number ? "warn" : "good"))),
    texts.length ? h("div", {}, h("h3", {}, "Errors of the newest ", link("dead letters", to("dead-letters"))), h("ul", {}, texts)) : null,
  ];
}
