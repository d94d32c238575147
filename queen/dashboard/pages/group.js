// One consumer group: the queues that it reads; of one queue, or if it is the only one, its cursors.

import { call } from "../api.js";
import { Consumers } from "../consumers.js";
import { badge, button, card, field, fill, h, keep, link, tile, tiles } from "../dom.js";
import { count, duration, groupName, moment } from "../format.js";
import { removeGroup, seek } from "../group_actions.js";
import { operations } from "../operations.js";
import { pausedBadge, pauseSwitch } from "../pausing.js";
import { Place } from "../place.js";
import { to } from "../router.js";
import { session } from "../session.js";
import { List } from "../tables.js";

const LIMIT = 50;

export const title = ({ names }) => `Group ${groupName(names[0])}`;

export function open(view, { names: [consumerGroup], query }, refreshNow) {
  const only = query.get("queue");
  let part = null;
  // Not the view itself: a refresh that ends late would overwrite the next page.
  const shown = h("div", { class: "view" });
  const all = only ? h("p", {}, link("All queues of this group", to("groups", [consumerGroup]))) : null;
  const empty = h("p", { class: "empty" }, "There is no such consumer group");
  const queues = new List("Queues of this group", [
    { name: "Queue", order: "name", value: (row) => [link(row.queueName, to("groups", [consumerGroup], { queue: row.queueName })), " ", pausedBadge(row.paused)] },
    { name: "Lag", number: true, order: "lag", value: (row) => count(row.totalLag) },
    { name: "Oldest", number: true, order: "age", value: (row) => duration(row.maxTimeLag) },
    { name: "Partitions with lag", number: true, wide: true, value: (row) => `${count(row.partitionsWithLag)} of ${count(row.members)}` },
  ], { place: new Place(query, "queues "), limit: LIMIT, refresh: refreshNow, order: "lag", key: (row) => row.queueName, empty: "No queues found" });
  const search = queues.search(h("input", { type: "search", placeholder: "Part of the name" }));
  const behind = queues.search(h("input", { type: "checkbox" }), "behind");
  const several = keep(card("Queues of this group", h("div", { class: "filters" }, field("Search", search), field("Only queues with a lag", behind)), queues.elements));
  view.append(shown);

  async function refresh() {
    const filtered = Boolean(search.value || behind.checked);
    const { queues: found, total } = await call(operations.listQueuesOfGroup, { consumerGroup, queue: only, search: search.value, behind: behind.checked, ...queues.wanted() });
    if (!only && (total > 1 || filtered || queues.wanted().offset)) {
      fill(shown, several);
      return queues.show(found, total);
    }
    if (!total) return fill(shown, all, empty);
    const [group] = found;
    if (part?.queue !== group.queueName) {
      part?.consumers.close();
      part = new Part(consumerGroup, group.queueName, query, refreshNow);
    }
    fill(shown, all, part.element);
    return part.refresh(group);
  }

  return { refresh, close: () => part?.consumers.close() };
}

// What a group does on one queue.
class Part {
  constructor(consumerGroup, queue, query, refreshNow) {
    Object.assign(this, { consumerGroup, queue, refreshNow });
    const moving = session.may(operations.seekPartition)
      ? [{ name: "", value: (row) => button("Seek", () => seek(consumerGroup, queue, row.partition, refreshNow), { "aria-label": `Seek partition ${row.partition}`, "data-key": `seek ${row.partition}` }) }] : [];
    this.list = new List(`Partitions of ${queue}`, [
      { name: "Partition", order: "name", value: (row) => link(row.partition, to("messages", [], { queue, partition: row.partition })) },
      { name: "Lag", number: true, order: "lag", value: (row) => count(row.offsetLag) },
      { name: "Oldest", number: true, wide: true, order: "age", value: (row) => duration(row.timeLagSeconds) },
      { name: "Acknowledged", number: true, wide: true, order: "acknowledged", value: (row) => count(row.totalConsumed) },
      { name: "Acknowledged up to", wide: true, value: (row) => moment(row.lastConsumedAt) },
      { name: "Lease", value: (row) => (row.leaseActive ? badge("leased", "warn") : badge("free")) },
      ...moving,
    ], { place: new Place(query), limit: LIMIT, refresh: refreshNow, order: "lag", key: (row) => row.partition, empty: "No partitions found" });
    this.search = this.list.search(h("input", { type: "search", placeholder: "Part of the name" }));
    this.behind = this.list.search(h("input", { type: "checkbox" }), "behind");
    this.figures = h("div");
    this.delivery = h("span");
    this.consumers = new Consumers(consumerGroup, queue, new Place(query, "consumers "), refreshNow);
    const whole = session.may(operations.seekConsumerGroup) ? button("Seek all partitions", () => seek(consumerGroup, queue, null, refreshNow)) : null;
    const remove = session.may(operations.deleteConsumerGroupOfQueue) ? button("Delete group", () => removeGroup(consumerGroup, queue, refreshNow), { class: "danger" }) : null;
    this.element = keep(card("",
      h("div", { class: "head" }, h("h2", {}, "Queue ", link(queue, to("queues", [queue]))), h("div", { class: "actions" }, this.delivery, whole, remove)),
      this.figures, this.consumers.element, h("div", { class: "filters" }, field("Search", this.search), field("Only partitions with a lag", this.behind)), this.list.elements));
  }

  async refresh(group) {
    const { consumerGroup, queue } = this;
    fill(this.delivery, pauseSwitch(operations.pauseConsumerGroup, { consumerGroup, queue }, `${groupName(consumerGroup)} on ${queue}`, group.paused, this.refreshNow));
    fill(this.figures, tiles(
      tile("Lag", count(group.totalLag), "messages", group.totalLag ? "warn" : ""), tile("Oldest", duration(group.maxTimeLag), "waiting"),
      tile("Partitions behind", count(group.partitionsWithLag), `of ${count(group.members)}`)));
    const [answer] = await Promise.all([
      call(operations.getConsumerGroup, { consumerGroup, queue, search: this.search.value, behind: this.behind.checked, ...this.list.wanted() }),
      this.consumers.refresh(group.subscriptionCreatedAt),
    ]);
    const { partitions, total } = answer[queue] ?? { partitions: [], total: 0 };
    this.list.show(partitions, total);
  }
}
