// Dead letters: by error, and one by one. What is replayed or deleted together is what the filters show, or what is
// selected.

import { call } from "../api.js";
import { sparkline } from "../sparkline.js";
import { button, card, errorText, fill, h, link, why } from "../dom.js";
import { ask } from "../dialogs.js";
import { filters, textInput } from "../filters.js";
import { ago, count, glimpse, groupName, moment } from "../format.js";
import { replayDeadLetter } from "../message_actions.js";
import { address } from "./messages.js";
import { operations } from "../operations.js";
import { Place } from "../place.js";
import { to } from "../router.js";
import { session } from "../session.js";
import { List, Table } from "../tables.js";

const LIMIT = 25;

export const title = () => "Dead letters";

export function open(view, { query }, refreshNow) {
  const chosen = new Map();
  let page = [];
  let matching = 0;
  const picked = (row) => pick([row], `Select ${row.transactionId}`, `select ${row.id}`);
  const allPicked = () => pick(page, "Select all of this page", "select all");
  const wanted = { queue: query.get("queue") || "", consumerGroup: query.get("consumerGroup") || "", partition: query.get("partition") || "", error: query.get("error") || "" };
  const form = filters("dead-letters", query, [
    { name: "queue", label: "Queue", input: textInput() },
    { name: "consumerGroup", label: "Consumer group", input: textInput() },
    { name: "partition", label: "Partition", input: textInput() },
  ], ["error"]);
  const changes = session.may(operations.replayDeadLetter);
  const errors = new Table("Errors, commonest first", [
    { name: "Error", long: true, value: (row) => [link(row.error.trimEnd().split("\n").at(-1) || "(no error text)", to("dead-letters", [], { ...wanted, error: row.error }))] },
    { name: "Number", number: true, value: (row) => count(row.count) },
    { name: "Over time", wide: true, value: (row) => sparkline(row.counts, `${count(row.count)} since ${moment(row.firstFailedAt)}`) },
    { name: "Last", number: true, value: (row) => ago(row.lastFailedAt) },
  ], { empty: "No dead letters", key: (row) => row.error });
  const list = new List("Dead letters, newest failure first", [
    ...(changes ? [{ name: "Selected", head: allPicked, value: picked }] : []),
    { name: "Message", value: (row) => [link(row.transactionId, address(row)), h("br"), h("small", {}, `${row.queue} / ${row.partition}`)] },
    { name: "Group", wide: true, long: true, value: (row) => groupName(row.consumerGroup) },
    { name: "Error", long: true, value: (row) => errorText(row.errorMessage) },
    { name: "Payload", wide: true, long: true, value: (row) => (row.error ? why(row.error) : h("code", {}, glimpse(row.data, 60))) },
    { name: "Failed", number: true, wide: true, value: (row) => ago(row.failedAt) },
    ...(changes ? [{ name: "", value: (row) => actions(row, refreshNow) }] : []),
  ], { place: new Place(query), limit: LIMIT, refresh: refreshNow, key: (row) => row.id, empty: "No dead letters" });
  const together = h("div", { class: "actions" });
  const only = wanted.error ? h("p", { class: "actions" }, "Only the error ", h("code", {}, wanted.error.trimEnd().split("\n").at(-1)), " ", link("All errors", to("dead-letters", [], { ...wanted, error: "" }))) : null;
  view.append(
    card("", form, only),
    wanted.error ? null : card("By error", errors.element), card("", together, list.elements));

  function pick(rows, label, key) {
    const turn = ({ target }) => {
      for (const row of rows) {
        if (target.checked) chosen.set(row.id, row);
        else chosen.delete(row.id);
      }
      list.show(page, matching);
      showTogether();
    };
    const box = h("input", { type: "checkbox", "aria-label": label, "data-key": key, onchange: turn });
    box.checked = rows.length > 0 && rows.every((row) => chosen.has(row.id));
    return box;
  }

  function showTogether() {
    const some = chosen.size > 0;
    const which = some ? `${count(chosen.size)} selected` : matches(wanted, matching);
    const may = changes && (some || (wanted.queue && matching));
    fill(together,
      may ? button(`Replay ${which}`, () => (some ? replayChosen(chosen, then) : replayAll(wanted, matching, then)), { "data-key": "replay together" }) : null,
      may && (some || session.may(operations.purgeDeadLetters)) ? button(`Delete ${which}`, () => (some ? deleteChosen(chosen, then) : deleteAll(wanted, matching, then)), { class: "danger", "data-key": "delete together" }) : null,
      changes && !may && matching ? h("small", {}, "Choose a queue to replay or delete all that are shown, or select some.") : null);
  }

  function then() {
    chosen.clear();
    return refreshNow();
  }

  async function refresh() {
    const { limit, offset } = list.wanted();
    const [{ messages, total }, counted] = await Promise.all([
      call(operations.listDeadLetters, { ...wanted, limit, offset }), wanted.error ? { errors: [] } : call(operations.listDeadLetterErrors, { ...wanted, limit: 10 }),
    ]);
    errors.show(counted.errors);
    [page, matching] = [messages, total];
    list.show(messages, total);
    showTogether();
  }

  return { refresh };
}

// The names of what the filters show.
function matches({ consumerGroup, partition, error }, number) {
  const of = [consumerGroup && `of ${groupName(consumerGroup)}`, partition && `of partition ${partition}`, error && "with this error"].filter(Boolean);
  return `all ${count(number)}${of.length ? ` ${of.join(" ")}` : " of this queue"}`;
}

function actions(row, then) {
  return [
    button("Replay", () => replayDeadLetter(row, then), { "aria-label": `Replay ${row.transactionId}`, "data-key": `replay ${row.id}` }),
    button("Delete", () => remove(row, then), { class: "danger", "aria-label": `Delete ${row.transactionId}`, "data-key": `delete ${row.id}` }),
  ];
}

async function remove(row, then) {
  const sure = await ask({
    title: "Delete this dead letter?", text: `${row.transactionId} can then not be replayed. The message itself stays acknowledged.`, action: "Delete dead letter", danger: true,
    run: () => call(operations.deleteDeadLetter, { deadLetterId: row.id }), done: "Dead letter deleted",
  });
  if (sure) await then();
}

async function replayAll(wanted, number, then) {
  const sure = await ask({
    title: "Replay these dead letters?", text: `Pushes ${matches(wanted, number)} of ${wanted.queue} to the ends of their partitions as new messages. Every consumer group of the queue gets them.`, action: "Replay all",
    run: () => replayPages(wanted), done: replayed,
  });
  if (sure) await then();
}

// Page by page, so that no request takes long.
async function replayPages({ queue, consumerGroup, partition, error }) {
  const body = { queue, consumerGroup: consumerGroup || null, partition: partition || null, error: error || null };
  const sum = { replayed: 0, duplicates: 0, failed: 0, problem: null };
  let after = null;
  do {
    const page = await call(operations.replayDeadLetters, {}, { ...body, after });
    for (const name of ["replayed", "duplicates", "failed"]) sum[name] += page[name];
    sum.problem ??= page.problem;
    after = page.next;
  } while (after);
  return sum;
}

function replayed({ replayed: done, duplicates, failed, problem }) {
  return [
    `${count(done)} dead letters replayed`, duplicates ? `${count(duplicates)} were replayed before` : "", failed ? `${count(failed)} could not be: ${problem}` : "",
  ].filter(Boolean).join(". ");
}

async function replayChosen(chosen, then) {
  const sure = await ask({
    title: `Replay ${count(chosen.size)} dead letters?`, text: "Pushes them to the ends of their partitions as new messages. Every consumer group of their queues gets them.", action: "Replay",
    run: () => each(chosen, operations.replayDeadLetter), done: (number) => `${count(number)} dead letters replayed`,
  });
  if (sure) await then();
}

async function deleteChosen(chosen, then) {
  const sure = await ask({
    title: `Delete ${count(chosen.size)} dead letters?`, text: "They can then not be replayed. The messages stay acknowledged.", action: "Delete", danger: true,
    run: () => each(chosen, operations.deleteDeadLetter), done: (number) => `${count(number)} dead letters deleted`,
  });
  if (sure) await then();
}

// One after the other, in the order of their failures. What is done is not chosen any more, so that a repetition after
// an error goes on with the rest; one that is gone already is done.
async function each(chosen, operation) {
  let number = 0;
  for (const { id } of [...chosen.values()].toSorted((a, b) => a.failedAt.localeCompare(b.failedAt))) {
    try {
      await call(operation, { deadLetterId: id });
      number++;
    } catch (error) {
      if (error.status !== 404) throw error;
    }
    chosen.delete(id);
  }
  return number;
}

async function deleteAll(wanted, number, then) {
  const sure = await ask({
    title: "Delete these dead letters?", text: `This deletes ${matches(wanted, number)} of ${wanted.queue}. It cannot be undone.`, action: "Delete all", type: wanted.queue,
    run: () => call(operations.purgeDeadLetters, wanted), done: ({ deleted }) => `${count(deleted)} dead letters deleted`,
  });
  if (sure) await then();
}
