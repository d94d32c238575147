// All queues of simple-mq.

import { call } from "../api.js";
import { card, field, h, link } from "../dom.js";
import { count, duration } from "../format.js";
import { operations } from "../operations.js";
import { Place } from "../place.js";
import { to } from "../router.js";
import { After, Table } from "../tables.js";

const LIMIT = 50;

export const title = () => "simple-mq";

export function open(view, { query }, refreshNow) {
  const place = new Place(query);
  const linked = (id, text) => (id ? link(text, to("simple", [id])) : "–");
  const table = new Table("Queues of simple-mq", [
    { name: "Queue", value: (queue) => linked(queue.queue_id, queue.queue_name) },
    { name: "Messages", number: true, value: (queue) => count(queue.current_message_count) },
    { name: "Size", number: true, wide: true, value: (queue) => count(queue.queue_size) },
    { name: "Visibility timeout", number: true, wide: true, value: (queue) => duration(queue.visibility_timeout) },
    { name: "Deliveries", number: true, wide: true, value: (queue) => count(queue.max_deliveries) },
    { name: "Dead letters", value: (queue) => (queue.parent_id ? linked(queue.parent_id, "of its source") : linked(queue.dlq_id, "their queue")) },
    { name: "Id", wide: true, value: (queue) => h("small", {}, queue.queue_id) },
  ], { key: (queue) => queue.queue_id, empty: "No queues of simple-mq found" });
  const pages = new After(place, refreshNow, "queues of simple-mq");
  const search = h("input", { type: "search", placeholder: "Part of the name", oninput: () => {
    place.set({ search: search.value, after: "" });
    refreshNow();
  } });
  search.value = place.get("search");
  view.append(card("", h("div", { class: "head" }, field("Search", search)), table.element, pages.element));

  async function refresh() {
    const found = await call(operations.listSimpleMqQueues, { limit: LIMIT, search: search.value || undefined, cursor: pages.token });
    table.show(found.queues);
    pages.show(found.next_cursor);
  }

  return { refresh };
}
