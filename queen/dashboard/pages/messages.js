// Messages of all queues: search and actions.

import { call } from "../api.js";
import { badge, button, card, fill, h, link, select, why } from "../dom.js";
import { filters, textInput } from "../filters.js";
import { ago, glimpse } from "../format.js";
import { giveUp, remove, retry } from "../message_actions.js";
import { operations } from "../operations.js";
import { Place } from "../place.js";
import { to } from "../router.js";
import { since } from "../series.js";
import { session } from "../session.js";
import { List } from "../tables.js";

const LIMIT = 25;
// Queues that are suggested for what is typed.
const SUGGESTED = 20;
const STATES = [["", "Any"], ["pending", "Pending"], ["processing", "In flight"], ["completed", "Acknowledged"], ["dead_letter", "Dead letter"]];
const TIMES = [["", "24 hours"], ["1", "1 hour"], ["168", "7 days"], ["720", "30 days"], ["all", "Any time"]];
const TONES = { completed: "good", processing: "warn", dead_letter: "bad" };

export const title = () => "Messages";

export function state(status) {
  return badge(STATES.find(([name]) => name === status)?.[1] ?? status, TONES[status]);
}

export function address({ partitionId, transactionId }) {
  return to("messages", [partitionId, transactionId]);
}

export function open(view, { query }, refreshNow) {
  const names = h("datalist", { id: "queue-names" });
  const queueInput = textInput("queue-names");
  queueInput.oninput = async () => {
    const { queues } = await call(operations.listQueues, { search: queueInput.value, order: "name", limit: SUGGESTED }).catch(() => ({ queues: [] }));
    fill(names, queues.map((queue) => h("option", { value: queue.name })));
  };
  const form = filters("messages", query, [
    { name: "queue", label: "Queue", input: queueInput },
    { name: "partition", label: "Partition", input: textInput() },
    { name: "status", label: "State", input: select(STATES, "") },
    { name: "hours", label: "Pushed within", input: select(TIMES, "") },
    { name: "text", label: "Payload or id contains", input: textInput() },
  ]);
  const list = new List("Messages, newest first", [
    { name: "Message", value: (row) => [link(row.transactionId, address(row)), h("br"), h("small", {}, `${row.queue} / ${row.partition}`)] },
    { name: "Payload", wide: true, long: true, value: (row) => (row.error ? why(row.error) : h("code", {}, glimpse(row.payload))) },
    { name: "State", value: (row) => state(row.status) },
    { name: "Pushed", number: true, value: (row) => ago(row.createdAt) },
    ...(session.may(operations.deleteMessage) ? [{ name: "", wide: true, value: (row) => actions(row, refreshNow) }] : []),
  ], { place: new Place(query), limit: LIMIT, refresh: refreshNow, key: (row) => row.id, empty: "No messages found" });
  view.append(card("", names, form, list.elements));

  async function refresh() {
    const hours = query.get("hours") || "24";
    const wanted = { queue: query.get("queue"), partition: query.get("partition"), status: query.get("status"), limit: LIMIT, offset: list.wanted().offset };
    const from = hours === "all" ? "1970-01-01T00:00:00Z" : since(Number(hours));
    const { messages, searched, next } = await call(operations.listMessages, { ...wanted, from, search: query.get("text") });
    if (searched === undefined) list.show(messages);
    else list.showFound(messages, searched, next);
  }

  // A search reads payloads until it has found a page: not every few seconds.
  return { refresh, live: !query.get("text") };
}

// The actions that the user may take; `gone` runs after a deletion, `then` after any other.
export function actions(row, then, gone = then) {
  const named = (text, action, attributes = {}) => button(text, () => action(row, action === remove ? gone : then), { "aria-label": `${text} ${row.transactionId}`, "data-key": `${text} ${row.partitionId} ${row.transactionId}`, ...attributes });
  return [
    row.status === "dead_letter" ? named("Replay", retry) : null,
    row.status === "pending" || row.status === "processing" ? named("Dead-letter", giveUp) : null,
    named("Delete", remove, { class: "danger" }),
  ];
}
