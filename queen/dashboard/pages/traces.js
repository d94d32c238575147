// Trace names.

import { call } from "../api.js";
import { card, field, fill, h, link } from "../dom.js";
import { ago, count } from "../format.js";
import { operations } from "../operations.js";
import { Place } from "../place.js";
import { to } from "../router.js";
import { List } from "../tables.js";

const LIMIT = 50;

export const title = () => "Traces";

export function open(view, { query }, refreshNow) {
  const list = new List("Trace names, latest first", [
    { name: "Name", value: (row) => link(row.trace_name, to("traces", [row.trace_name])) },
    { name: "Traces", number: true, value: (row) => count(row.trace_count) },
    { name: "Messages", number: true, wide: true, value: (row) => count(row.message_count) },
    { name: "Last seen", number: true, value: (row) => ago(row.last_seen) },
  ], { place: new Place(query), limit: LIMIT, refresh: refreshNow, key: (row) => row.trace_name, empty: "No trace names found" });
  const search = list.search(h("input", { type: "search", placeholder: "Part of the name" }));
  const exact = h("p");
  view.append(card("", h("div", { class: "filters" }, field("Search", search)), exact, list.elements));

  async function refresh() {
    const wanted = search.value;
    const { trace_names: names, total } = await call(operations.listTraceNames, { search: wanted, limit: LIMIT, offset: list.wanted().offset });
    // The list has the names of the newest traces only; a name that is typed in full is found whatever its age.
    fill(exact, wanted ? h("small", {}, "Searched are the newest 100,000 traces. Of any age: ", link(`the trace named ${wanted}`, to("traces", [wanted]))) : null);
    exact.hidden = !wanted;
    list.show(names, total);
  }

  return { refresh };
}
