// All traces with one name, as a timeline over all messages.

import { call } from "../api.js";
import { card, fill, h } from "../dom.js";
import { operations } from "../operations.js";
import { Pager } from "../tables.js";
import { timeline } from "../timeline.js";

const LIMIT = 50;

export const title = ({ names }) => `Trace ${names[0]}`;

export function open(view, { names: [traceName] }, refreshNow) {
  let offset = 0;
  let shown = "";
  const place = h("div");
  const pager = new Pager(LIMIT, (next) => {
    offset = next;
    return refreshNow();
  });
  view.append(card("", place, pager.element));

  async function refresh() {
    const { traces, total } = await call(operations.listTracesByName, { traceName, limit: LIMIT, offset });
    const now = traces.map((trace) => trace.id).join();
    if (now === shown && now) return;
    shown = now;
    fill(place, traces.length ? timeline(traces) : h("p", { class: "empty" }, "No traces with this name"));
    pager.show(offset, traces.length, total);
  }

  return { refresh };
}
