// Consumer groups: their lag, seek and delete.

import { callList } from "../api.js";
import { badge, button, card, field, h, link } from "../dom.js";
import { count, duration, groupName } from "../format.js";
import { removeGroup, seek } from "../group_actions.js";
import { operations } from "../operations.js";
import { pausedBadge } from "../pausing.js";
import { Place } from "../place.js";
import { to } from "../router.js";
import { session } from "../session.js";
import { List } from "../tables.js";

const LIMIT = 100;

export const title = () => "Consumer groups";

export function open(view, { query }, refreshNow) {
  const list = new List("Consumer groups", [
    { name: "Group", order: "name", value: (row) => link(groupName(row.name), to("groups", [row.name], { queue: row.queueName })) },
    { name: "Queue", long: true, value: (row) => link(row.queueName, to("queues", [row.queueName])) },
    { name: "State", wide: true, value: (row) => [badge(row.state, { Stable: "good", Dead: "bad" }[row.state] ?? "warn"), " ", pausedBadge(row.paused)] },
    { name: "Lag", number: true, order: "lag", value: (row) => count(row.totalLag) },
    { name: "Oldest", number: true, wide: true, order: "age", value: (row) => duration(row.maxTimeLag) },
    { name: "Partitions with lag", number: true, wide: true, value: (row) => `${count(row.partitionsWithLag)} of ${count(row.members)}` },
    ...(session.may(operations.seekConsumerGroup) ? [{ name: "", value: (row) => actions(row, refreshNow) }] : []),
  ], { place: new Place(query), limit: LIMIT, refresh: refreshNow, order: "lag", key: (row) => JSON.stringify([row.name, row.queueName]), empty: "No consumer groups found" });
  const search = list.search(h("input", { type: "search", placeholder: "Group or queue" }));
  const behind = list.search(h("input", { type: "checkbox" }), "behind");
  view.append(card("", h("div", { class: "filters" }, field("Search", search), field("Only groups with a lag", behind)), list.elements));

  async function refresh() {
    list.show(...(await callList(operations.listConsumerGroups, { search: search.value, behind: behind.checked, ...list.wanted() })));
  }

  return { refresh };
}

function actions(row, then) {
  return [
    button("Seek", () => seek(row.name, row.queueName, null, then), { "aria-label": `Seek ${row.name} in ${row.queueName}`, "data-key": `seek ${row.name} ${row.queueName}` }),
    session.may(operations.deleteConsumerGroupOfQueue)
      ? button("Delete", () => removeGroup(row.name, row.queueName, then), { class: "danger", "aria-label": `Delete ${row.name} of ${row.queueName}`, "data-key": `delete ${row.name} ${row.queueName}` }) : null,
  ];
}
