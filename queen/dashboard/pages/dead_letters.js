// Dead letters.

import { call } from "../api.js";
import { button, card, h, link, why } from "../dom.js";
import { confirm } from "../dialogs.js";
import { filters, textInput } from "../filters.js";
import { ago, count, glimpse } from "../format.js";
import { replayDeadLetter } from "../message_actions.js";
import { address } from "./messages.js";
import { perform } from "../notices.js";
import { operations } from "../operations.js";
import { session } from "../session.js";
import { Pager, Table } from "../tables.js";

const LIMIT = 25;

export const title = () => "Dead letters";

export function open(view, { query }, refreshNow) {
  let offset = 0;
  const queue = query.get("queue") || "";
  const consumerGroup = query.get("consumerGroup") || "";
  const form = filters("dead-letters", query, [
    { name: "queue", label: "Queue", input: textInput() },
    { name: "consumerGroup", label: "Consumer group", input: textInput() },
    { name: "partition", label: "Partition", input: textInput() },
  ]);
  const table = new Table("Dead letters, newest failure first", [
    { name: "Message", value: (row) => [link(row.transactionId, address(row)), h("br"), h("small", {}, `${row.queue} / ${row.partition}`)] },
    { name: "Group", wide: true, long: true, value: (row) => (row.consumerGroup === "__QUEUE_MODE__" ? "–" : row.consumerGroup) },
    { name: "Error", long: true, value: (row) => row.errorMessage || "–" },
    { name: "Payload", wide: true, long: true, value: (row) => (row.error ? why(row.error) : h("code", {}, glimpse(row.data, 60))) },
    { name: "Failed", number: true, wide: true, value: (row) => ago(row.failedAt) },
    ...(session.may(operations.replayDeadLetter) ? [{ name: "", value: (row) => actions(row, refreshNow) }] : []),
  ], { empty: "No dead letters" });
  const pager = new Pager(LIMIT, (next) => {
    offset = next;
    return refreshNow();
  });
  const purge = queue && session.may(operations.purgeDeadLetters)
    ? button("Delete all of this queue", () => deleteAll(queue, consumerGroup, refreshNow), { class: "danger" }) : null;
  view.append(card("", h("div", { class: "head" }, form, purge), table.element, pager.element));

  async function refresh() {
    const wanted = { queue, consumerGroup, partition: query.get("partition") };
    const { messages, total } = await call(operations.listDeadLetters, { ...wanted, limit: LIMIT, offset });
    table.show(messages);
    pager.show(offset, messages.length, total);
  }

  return { refresh };
}

function actions(row, then) {
  return [
    button("Replay", () => replayDeadLetter(row, then), { "aria-label": `Replay ${row.transactionId}`, "data-key": `replay ${row.id}` }),
    button("Delete", () => remove(row, then), { class: "danger", "aria-label": `Delete ${row.transactionId}`, "data-key": `delete ${row.id}` }),
  ];
}

async function remove(row, then) {
  const sure = await confirm({ title: "Delete this dead letter?", text: `${row.transactionId} can then not be replayed. The message itself stays acknowledged.`, action: "Delete dead letter" });
  if (sure && (await perform(() => call(operations.deleteDeadLetter, { deadLetterId: row.id }), "Dead letter deleted"))) await then();
}

async function deleteAll(queue, consumerGroup, then) {
  const whose = consumerGroup ? `group ${consumerGroup} in ` : "";
  const sure = await confirm({ title: "Delete all dead letters?", text: `This deletes all dead letters of ${whose}${queue}. It cannot be undone.`, action: "Delete all", type: queue });
  const work = () => call(operations.purgeDeadLetters, { queue, consumerGroup });
  if (sure && (await perform(work, ({ deleted }) => `${count(deleted)} dead letters deleted`))) await then();
}
