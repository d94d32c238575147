// All traces with one name, as a timeline over all messages.

import { call } from "../api.js";
import { card, fill, h } from "../dom.js";
import { operations } from "../operations.js";
import { Place } from "../place.js";
import { Pager } from "../tables.js";
import { timeline } from "../timeline.js";

const LIMIT = 50;

export const title = ({ names }) => `Trace ${names[0]}`;

export function open(view, { names: [traceName], query }, refreshNow) {
  const place = new Place(query);
  const shown = h("div");
  const pager = new Pager(LIMIT, (offset) => {
    place.set({ offset });
    return refreshNow();
  });
  view.append(card("", shown, pager.element));

  async function refresh() {
    const offset = Number(place.get("offset"));
    const { traces, total } = await call(operations.listTracesByName, { traceName, limit: LIMIT, offset });
    fill(shown, traces.length ? timeline(traces) : h("p", { class: "empty" }, "No traces with this name"));
    pager.show(offset, traces.length, total);
  }

  return { refresh };
}
