// Trace names.

import { call } from "../api.js";
import { card, field, h, link } from "../dom.js";
import { ago, count } from "../format.js";
import { operations } from "../operations.js";
import { to } from "../router.js";
import { Pager, Table } from "../tables.js";

const LIMIT = 50;

export const title = () => "Traces";

export function open(view, _args, refreshNow) {
  let offset = 0;
  const name = h("input", { type: "search", required: true, autocomplete: "off" });
  const go = (event) => {
    event.preventDefault();
    location.hash = to("traces", [name.value]);
  };
  const table = new Table("Trace names, latest first", [
    { name: "Name", value: (row) => link(row.trace_name, to("traces", [row.trace_name])) },
    { name: "Traces", number: true, value: (row) => count(row.trace_count) },
    { name: "Messages", number: true, wide: true, value: (row) => count(row.message_count) },
    { name: "Last seen", number: true, value: (row) => ago(row.last_seen) },
  ], { empty: "No consumer has recorded a trace with a name" });
  const pager = new Pager(LIMIT, (next) => {
    offset = next;
    return refreshNow();
  });
  view.append(card("", h("form", { class: "filters", onsubmit: go }, field("Exact name", name), h("button", { type: "submit" }, "Show")), table.element, pager.element));

  async function refresh() {
    const { trace_names: names, total } = await call(operations.listTraceNames, { limit: LIMIT, offset });
    table.show(names);
    pager.show(offset, names.length, total);
  }

  return { refresh };
}
