// All queues.

import { call } from "../api.js";
import { badge, button, card, field, h, link } from "../dom.js";
import { ask } from "../dialogs.js";
import { count, rate } from "../format.js";
import { operations } from "../operations.js";
import { pausedBadge } from "../pausing.js";
import { Place } from "../place.js";
import { configure } from "../queue_options.js";
import { to } from "../router.js";
import { since } from "../series.js";
import { session } from "../session.js";
import { List } from "../tables.js";

// Rates are averages over this time.
const RECENT_HOURS = 1 / 12;
const LIMIT = 50;
// The server accepts longer URLs than this.
const QUERY_BYTES = 8000;

export const title = () => "Queues";

export function open(view, { query }, refreshNow) {
  let rates = new Map();
  const place = new Place(query);
  const speed = (name, which) => rate(rates.get(name)?.[which] ?? 0);
  const list = new List("Queues", [
    { name: "Queue", order: "name", value: (queue) => [link(queue.name, to("queues", [queue.name])), " ", pausedBadge(queue.paused)] },
    { name: "Labels", wide: true, value: (queue) => [queue.namespace, queue.task].filter(Boolean).map((label) => [badge(label), " "]) },
    { name: "Partitions", number: true, wide: true, order: "partitions", value: (queue) => count(queue.partitions) },
    { name: "Messages", number: true, wide: true, order: "total", value: (queue) => count(queue.messages.total) },
    { name: "Pending", number: true, order: "pending", value: (queue) => count(queue.messages.pending) },
    { name: "In flight", number: true, order: "processing", value: (queue) => count(queue.messages.processing) },
    { name: "Push rate", number: true, wide: true, value: (queue) => speed(queue.name, "push") },
    { name: "Ack rate", number: true, wide: true, value: (queue) => speed(queue.name, "done") },
    ...(session.may(operations.deleteQueue) ? [{ name: "", value: (queue) => button("Delete", () => remove(queue.name, refreshNow), { class: "danger", "aria-label": `Delete ${queue.name}`, "data-key": `delete ${queue.name}` }) }] : []),
  ], { place, limit: LIMIT, refresh: refreshNow, order: "name", key: (queue) => queue.name, empty: "No queues found" });
  const search = list.search(h("input", { type: "search", placeholder: "Name, namespace or task" }));
  const create = session.may(operations.configureQueue)
    ? button("New queue", () => configure(null, refreshNow), { class: "primary" }) : null;
  view.append(card("", h("div", { class: "head" }, field("Search", search), create), list.elements));

  async function refresh() {
    const { queues, total } = await call(operations.listQueues, { search: search.value, ...list.wanted() });
    rates = perSecond(await work(queues.map((queue) => queue.name)));
    list.show(queues, total);
  }

  return { refresh };
}

// Recent activity of these queues. Long names are spread over several requests.
async function work(names) {
  const portions = [[]];
  for (const name of names) {
    if (portions.at(-1).length && encodeURIComponent([...portions.at(-1), name].join("")).length > QUERY_BYTES) portions.push([]);
    portions.at(-1).push(name);
  }
  const asked = portions.filter((queue) => queue.length).map((queue) => call(operations.getQueueOperations, { queue, from: since(RECENT_HOURS), limit: LIMIT }));
  return (await Promise.all(asked)).flatMap((answer) => answer.series);
}

function perSecond(series) {
  const rates = new Map();
  for (const point of series) {
    const rate = rates.get(point.queueName) || { push: 0, done: 0 };
    rate.push += point.pushMessages / (RECENT_HOURS * 3600);
    rate.done += point.ackSuccess / (RECENT_HOURS * 3600);
    rates.set(point.queueName, rate);
  }
  return rates;
}

export async function remove(queue, then) {
  const sure = await ask({
    title: "Delete this queue?", text: `This deletes all messages, consumer groups and dead letters of ${queue}. It cannot be undone.`, action: "Delete queue", type: queue,
    run: () => call(operations.deleteQueue, { queue }), done: `Queue ${queue} deleted`,
  });
  if (sure) await then();
}
