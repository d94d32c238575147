// Filters above a list. Their values are in the URL, so that a list can be shared.

import { field, h } from "./dom.js";
import { to } from "./router.js";

// `fields`: name, label, and the input. A selection applies at once, typed text when the form is submitted. `kept`: the
// values of the address that stay beside them.
export function filters(page, query, fields, kept = []) {
  for (const { name, input } of fields) input.value = query.get(name) ?? "";
  const values = () => Object.fromEntries([...fields.map(({ name, input }) => [name, input.value]), ...kept.map((name) => [name, query.get(name)])]);
  const go = (event) => {
    event.preventDefault();
    location.hash = to(page, [], values());
  };
  return h("form", { class: "filters", onsubmit: go, onchange: (event) => event.target instanceof HTMLSelectElement && go(event) },
    fields.map(({ label, input }) => field(label, input)), h("button", { type: "submit" }, "Search"));
}

export function textInput(list = null) {
  return h("input", { type: "search", autocomplete: "off", list });
}
