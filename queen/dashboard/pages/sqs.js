// All queues of SQS.

import { button, card, field, h, link } from "../dom.js";
import { count, duration } from "../format.js";
import { Place } from "../place.js";
import { to } from "../router.js";
import { act, configure, mayAct, remove } from "../sqs.js";
import { After, Table } from "../tables.js";

const LIMIT = 50;

export const title = () => "SQS queues";

export function open(view, { query }, refreshNow) {
  const place = new Place(query);
  const number = (name, value, attributes = {}) => ({ name, number: true, value: (queue) => count(queue[value]), ...attributes });
  const table = new Table("SQS queues", [
    { name: "Queue", value: (queue) => link(queue.QueueName, to("sqs", [queue.QueueName])) },
    number("Visible", "Visible"), number("In flight", "InFlight"), number("Delayed", "Delayed", { wide: true }),
    { name: "Oldest", number: true, wide: true, value: (queue) => duration(queue.OldestSeconds) },
    number("Sent", "Sent", { wide: true }), number("Deleted", "Deleted", { wide: true }), number("Dead letters", "DeadLettered", { wide: true }),
    { name: "Dead letters to", wide: true, value: (queue) => (queue.DeadLetterQueue ? link(queue.DeadLetterQueue, to("sqs", [queue.DeadLetterQueue])) : "–") },
    ...(mayAct("DeleteQueue") ? [{ name: "", value: (queue) => button("Delete", () => remove(queue.QueueName, refreshNow), { class: "danger", "aria-label": `Delete ${queue.QueueName}`, "data-key": `delete ${queue.QueueName}` }) }] : []),
  ], { key: (queue) => queue.QueueName, empty: "No queues of SQS found" });
  const pages = new After(place, refreshNow, "SQS queues");
  const search = h("input", { type: "search", placeholder: "Part of the name", oninput: () => {
    place.set({ search: search.value, after: "" });
    refreshNow();
  } });
  search.value = place.get("search");
  const create = mayAct("CreateQueue") ? button("New queue", () => configure(null, refreshNow), { class: "primary" }) : null;
  view.append(card("", h("div", { class: "head" }, field("Search", search), create), table.element, pages.element));

  async function refresh() {
    const found = await act("Queen.ListQueues", { MaxResults: LIMIT, Search: search.value || undefined, NextToken: pages.token });
    table.show(found.Queues);
    pages.show(found.NextToken);
  }

  return { refresh };
}
