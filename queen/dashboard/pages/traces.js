// Trace names.

import { call } from "../api.js";
import { card, field, h, link } from "../dom.js";
import { ago, count } from "../format.js";
import { operations } from "../operations.js";
import { Place } from "../place.js";
import { to } from "../router.js";
import { List } from "../tables.js";

const LIMIT = 50;

export const title = () => "Traces";

export function open(view, { query }, refreshNow) {
  const name = h("input", { type: "search", required: true, autocomplete: "off" });
  const go = (event) => {
    event.preventDefault();
    location.hash = to("traces", [name.value]);
  };
  const list = new List("Trace names, latest first", [
    { name: "Name", value: (row) => link(row.trace_name, to("traces", [row.trace_name])) },
    { name: "Traces", number: true, value: (row) => count(row.trace_count) },
    { name: "Messages", number: true, wide: true, value: (row) => count(row.message_count) },
    { name: "Last seen", number: true, value: (row) => ago(row.last_seen) },
  ], { place: new Place(query), limit: LIMIT, refresh: refreshNow, key: (row) => row.trace_name, empty: "No consumer has recorded a trace with a name" });
  view.append(card("", h("form", { class: "filters", onsubmit: go }, field("Exact name", name), h("button", { type: "submit" }, "Show")), list.elements));

  async function refresh() {
    const { trace_names: names, total } = await call(operations.listTraceNames, { limit: LIMIT, offset: list.wanted().offset });
    list.show(names, total);
  }

  return { refresh };
}
