// One consumer group: its cursors, per queue.

import { call } from "../api.js";
import { badge, button, card, fill, h, link } from "../dom.js";
import { count, duration, moment } from "../format.js";
import { removeGroup, seek } from "../group_actions.js";
import { operations } from "../operations.js";
import { pauseSwitch } from "../pausing.js";
import { to } from "../router.js";
import { session } from "../session.js";
import { Table } from "../tables.js";

export const title = ({ names }) => `Group ${names[0]}`;

export function open(view, { names: [consumerGroup] }, refreshNow) {
  const tables = new Map();
  // Not the view itself: a refresh that ends late would overwrite the next page.
  const shownQueues = h("div", { class: "view" });
  view.append(shownQueues);
  const empty = h("p", { class: "empty" }, "There is no such consumer group");

  function tableOf(queue) {
    const moving = session.may(operations.seekPartition)
      ? [{ name: "", value: (row) => button("Seek", () => seek(consumerGroup, queue, row.partition, refreshNow), { "aria-label": `Seek partition ${row.partition}`, "data-key": `seek ${row.partition}` }) }] : [];
    const table = new Table(`Partitions of ${queue}`, [
      { name: "Partition", by: (row) => row.partition, value: (row) => link(row.partition, to("messages", [], { queue, partition: row.partition })) },
      { name: "Lag", number: true, by: (row) => row.offsetLag, value: (row) => count(row.offsetLag) },
      { name: "Oldest", number: true, wide: true, by: (row) => row.timeLagSeconds, value: (row) => duration(row.timeLagSeconds) },
      { name: "Acknowledged", number: true, wide: true, by: (row) => row.totalConsumed, value: (row) => count(row.totalConsumed) },
      { name: "Acknowledged up to", wide: true, by: (row) => Date.parse(row.lastConsumedAt) || 0, value: (row) => moment(row.lastConsumedAt) },
      { name: "Lease", value: (row) => (row.leaseActive ? badge("leased", "warn") : badge("free")) },
      ...moving,
    ], { empty: "No partitions", sort: "Lag", descending: true });
    const delivery = h("span");
    const whole = session.may(operations.seekConsumerGroup) ? button("Seek all partitions", () => seek(consumerGroup, queue, null, refreshNow), { "data-key": `seek all ${queue}` }) : null;
    const remove = session.may(operations.deleteConsumerGroupOfQueue) ? button("Delete group", () => removeGroup(consumerGroup, queue, refreshNow), { class: "danger", "data-key": `delete ${queue}` }) : null;
    const element = card("", h("div", { class: "head" }, h("h2", {}, "Queue ", link(queue, to("queues", [queue]))), h("div", { class: "actions" }, delivery, whole, remove)), table.element);
    return { table, element, delivery };
  }

  async function refresh() {
    const cursors = await call(operations.getConsumerGroup, { consumerGroup });
    const queues = Object.entries(cursors);
    for (const [queue] of queues) if (!tables.has(queue)) tables.set(queue, tableOf(queue));
    const shown = queues.map(([queue]) => tables.get(queue).element);
    if (!shown.length) fill(shownQueues, empty);
    else if (shown.length !== shownQueues.children.length || shown.some((element, n) => shownQueues.children[n] !== element)) fill(shownQueues, shown);
    for (const [queue, { partitions, paused }] of queues) {
      const { table, delivery } = tables.get(queue);
      table.show(partitions);
      fill(delivery, pauseSwitch(operations.pauseConsumerGroup, { consumerGroup, queue }, `${consumerGroup} on ${queue}`, paused, refreshNow));
    }
  }

  return { refresh };
}
