// Consumer groups: their lag, seek and delete.

import { call } from "../api.js";
import { badge, button, card, field, h, link } from "../dom.js";
import { count, duration } from "../format.js";
import { removeGroup, seek } from "../group_actions.js";
import { operations } from "../operations.js";
import { pausedBadge } from "../pausing.js";
import { to } from "../router.js";
import { session } from "../session.js";
import { Pager, Table } from "../tables.js";

const LIMIT = 100;

export const title = () => "Consumer groups";

export function open(view, _args, refreshNow) {
  let known = [];
  let offset = 0;
  const search = h("input", { type: "search", placeholder: "Group or queue", oninput: () => page(0) });
  const pager = new Pager(LIMIT, page);
  const lagging = h("input", { type: "checkbox", onchange: () => show() });
  const table = new Table("Consumer groups", [
    { name: "Group", by: (row) => row.name, value: (row) => link(text(row), to("groups", [row.name])) },
    { name: "Queue", long: true, by: (row) => row.queueName, value: (row) => link(row.queueName, to("queues", [row.queueName])) },
    { name: "State", wide: true, by: (row) => row.state, value: (row) => [badge(row.state, { Stable: "good", Dead: "bad" }[row.state] ?? "warn"), " ", pausedBadge(row.paused)] },
    { name: "Lag", number: true, by: (row) => row.totalLag, value: (row) => count(row.totalLag) },
    { name: "Oldest", number: true, wide: true, by: (row) => row.maxTimeLag, value: (row) => duration(row.maxTimeLag) },
    { name: "Partitions with lag", number: true, wide: true, by: (row) => row.partitionsWithLag, value: (row) => `${count(row.partitionsWithLag)} of ${count(row.members)}` },
    ...(session.may(operations.seekConsumerGroup) ? [{ name: "", value: (row) => actions(row, refreshNow) }] : []),
  ], { empty: "No consumer groups found", sort: "Lag", descending: true });
  view.append(card("", h("div", { class: "filters" }, field("Search", search), field("Only groups with a lag", lagging)), table.element, pager.element));

  function page(next) {
    offset = next;
    return refreshNow();
  }

  // The list is sorted by lag, so groups without a lag are on the last pages.
  function show() {
    table.show(known.filter((row) => !lagging.checked || row.totalLag));
  }

  async function refresh() {
    known = await call(operations.listConsumerGroups, { search: search.value, order: "lag", limit: LIMIT, offset });
    show();
    pager.show(offset, known.length);
  }

  return { refresh };
}

function text({ name }) {
  return name === "__QUEUE_MODE__" ? "(consumers without a group)" : name;
}

function actions(row, then) {
  return [
    button("Seek", () => seek(row.name, row.queueName, null, then), { "aria-label": `Seek ${row.name} in ${row.queueName}`, "data-key": `seek ${row.name} ${row.queueName}` }),
    session.may(operations.deleteConsumerGroupOfQueue)
      ? button("Delete", () => removeGroup(row.name, row.queueName, then), { class: "danger", "aria-label": `Delete ${row.name} of ${row.queueName}`, "data-key": `delete ${row.name} ${row.queueName}` }) : null,
  ];
}
