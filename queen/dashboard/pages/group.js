// One consumer group: its cursors, per queue.

import { call } from "../api.js";
import { Consumers } from "../consumers.js";
import { badge, button, card, field, fill, h, keep, link, tile, tiles } from "../dom.js";
import { count, duration, groupName, moment } from "../format.js";
import { removeGroup, seek } from "../group_actions.js";
import { operations } from "../operations.js";
import { pauseSwitch } from "../pausing.js";
import { Place } from "../place.js";
import { to } from "../router.js";
import { session } from "../session.js";
import { List } from "../tables.js";

const LIMIT = 50;
// The most queues of a group that are shown.
const QUEUES = 100;

export const title = ({ names }) => `Group ${groupName(names[0])}`;

export function open(view, { names: [consumerGroup], query }, refreshNow) {
  const parts = new Map();
  // Not the view itself: a refresh that ends late would overwrite the next page.
  const shownQueues = h("div", { class: "view" });
  view.append(shownQueues);
  const empty = h("p", { class: "empty" }, "There is no such consumer group");

  function partOf(queue, only) {
    const place = new Place(query, `${queue} `);
    const moving = session.may(operations.seekPartition)
      ? [{ name: "", value: (row) => button("Seek", () => seek(consumerGroup, queue, row.partition, refreshNow), { "aria-label": `Seek partition ${row.partition}`, "data-key": `seek ${row.partition}` }) }] : [];
    const list = new List(`Partitions of ${queue}`, [
      { name: "Partition", order: "name", value: (row) => link(row.partition, to("messages", [], { queue, partition: row.partition })) },
      { name: "Lag", number: true, order: "lag", value: (row) => count(row.offsetLag) },
      { name: "Oldest", number: true, wide: true, order: "age", value: (row) => duration(row.timeLagSeconds) },
      { name: "Acknowledged", number: true, wide: true, order: "acknowledged", value: (row) => count(row.totalConsumed) },
      { name: "Acknowledged up to", wide: true, value: (row) => moment(row.lastConsumedAt) },
      { name: "Lease", value: (row) => (row.leaseActive ? badge("leased", "warn") : badge("free")) },
      ...moving,
    ], { place, limit: LIMIT, refresh: refreshNow, order: "lag", key: (row) => row.partition, empty: "No partitions found" });
    const search = list.search(h("input", { type: "search", placeholder: "Part of the name" }));
    const behind = list.search(h("input", { type: "checkbox" }), "behind");
    const figures = h("div");
    const delivery = h("span");
    const whole = session.may(operations.seekConsumerGroup) ? button("Seek all partitions", () => seek(consumerGroup, queue, null, refreshNow), { "data-key": `seek all ${queue}` }) : null;
    const remove = session.may(operations.deleteConsumerGroupOfQueue) ? button("Delete group", () => removeGroup(consumerGroup, queue, refreshNow), { class: "danger", "data-key": `delete ${queue}` }) : null;
    const consumers = new Consumers(consumerGroup, queue, new Place(query, `${queue} consumers `), refreshNow, only);
    const element = keep(card("",
      h("div", { class: "head" }, h("h2", {}, "Queue ", link(queue, to("queues", [queue]))), h("div", { class: "actions" }, delivery, whole, remove)),
      figures, consumers.element, h("div", { class: "filters" }, field("Search", search), field("Only partitions with a lag", behind)), list.elements));
    const asked = () => call(operations.getConsumerGroup, { consumerGroup, queue, search: search.value, behind: behind.checked, ...list.wanted() });
    return { list, element, delivery, figures, asked, consumers };
  }

  async function refresh() {
    const found = await call(operations.listConsumerGroups, { search: consumerGroup, limit: QUEUES });
    const groups = found.filter((group) => group.name === consumerGroup);
    for (const { queueName } of groups) if (!parts.has(queueName)) parts.set(queueName, partOf(queueName, groups.length === 1));
    fill(shownQueues, groups.length ? groups.map(({ queueName }) => parts.get(queueName).element) : empty);
    await Promise.all(groups.map(async (group) => {
      const { list, delivery, figures, asked, consumers } = parts.get(group.queueName);
      fill(delivery, pauseSwitch(operations.pauseConsumerGroup, { consumerGroup, queue: group.queueName }, `${groupName(consumerGroup)} on ${group.queueName}`, group.paused, refreshNow));
      fill(figures, tiles(
        tile("Lag", count(group.totalLag), "messages", group.totalLag ? "warn" : ""), tile("Oldest", duration(group.maxTimeLag), "waiting"),
        tile("Partitions behind", count(group.partitionsWithLag), `of ${count(group.members)}`)));
      const [answer] = await Promise.all([asked(), consumers.refresh()]);
      const { partitions, total } = answer[group.queueName] ?? { partitions: [], total: 0 };
      list.show(partitions, total);
    }));
  }

  return { refresh, close: () => parts.forEach(({ consumers }) => consumers.close()) };
}
