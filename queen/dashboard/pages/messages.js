// Messages of all queues: search and actions.

import { call } from "../api.js";
import { badge, button, card, h, link, select, why } from "../dom.js";
import { filters, textInput } from "../filters.js";
import { ago, glimpse } from "../format.js";
import { giveUp, remove, retry } from "../message_actions.js";
import { operations } from "../operations.js";
import { to } from "../router.js";
import { since } from "../series.js";
import { session } from "../session.js";
import { Pager, Table } from "../tables.js";

const LIMIT = 25;
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
  let offset = 0;
  const names = h("datalist", { id: "queue-names" });
  const form = filters("messages", query, [
    { name: "queue", label: "Queue", input: textInput("queue-names") },
    { name: "partition", label: "Partition", input: textInput() },
    { name: "status", label: "State", input: select(STATES, "") },
    { name: "hours", label: "Pushed within", input: select(TIMES, "") },
    { name: "text", label: "Payload or id contains", input: textInput() },
  ]);
  const table = new Table("Messages, newest first", [
    { name: "Message", value: (row) => [link(row.transactionId, address(row)), h("br"), h("small", {}, `${row.queue} / ${row.partition}`)] },
    { name: "Payload", wide: true, long: true, value: (row) => (row.error ? why(row.error) : h("code", {}, glimpse(row.payload))) },
    { name: "State", value: (row) => state(row.status) },
    { name: "Pushed", number: true, value: (row) => ago(row.createdAt) },
    ...(session.may(operations.deleteMessage) ? [{ name: "", wide: true, value: (row) => actions(row, refreshNow) }] : []),
  ], { empty: "No messages found" });
  const pager = new Pager(LIMIT, (next) => {
    offset = next;
    return refreshNow();
  });
  const note = h("p", { hidden: true }, h("small", {}, `The text search covers the ${LIMIT} messages of this page only.`));
  view.append(card("", names, form, note, table.element, pager.element));

  async function refresh() {
    const hours = query.get("hours") || "24";
    const wanted = { queue: query.get("queue"), partition: query.get("partition"), status: query.get("status"), limit: LIMIT, offset };
    const from = hours === "all" ? "1970-01-01T00:00:00Z" : since(Number(hours));
    const [{ messages }, { queues }] = await Promise.all([call(operations.listMessages, { ...wanted, from }), call(operations.listQueues)]);
    names.replaceChildren(...queues.map((queue) => h("option", { value: queue.name })));
    const text = (query.get("text") || "").toLowerCase();
    note.hidden = !text;
    table.show(messages.filter((row) => `${row.transactionId} ${row.id} ${JSON.stringify(row.payload)}`.toLowerCase().includes(text)));
    pager.show(offset, messages.length);
  }

  return { refresh };
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
