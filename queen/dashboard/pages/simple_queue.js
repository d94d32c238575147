// One queue of simple-mq: its messages and settings.

import { call } from "../api.js";
import { badge, button, card, facts, fill, h, link, tile, tiles } from "../dom.js";
import { ask } from "../dialogs.js";
import { ago, count, duration } from "../format.js";
import { leadTo } from "../notices.js";
import { operations } from "../operations.js";
import { Place } from "../place.js";
import { to } from "../router.js";
import { session } from "../session.js";
import { After, Table } from "../tables.js";

const LIMIT = 20;
const AT_ONCE = 100;
const GLIMPSE = 90;

export const title = ({ names }) => names[0];

export function open(view, { names: [queue], query }, refreshNow) {
  let known = null;
  const pages = new After(new Place(query), refreshNow, "Messages");
  const figures = h("div");
  const about = h("div");
  const utc = (time) => new Date(`${time}Z`).toISOString();
  const messages = new Table("Messages, oldest first", [
    { name: "Message", long: true, value: (row) => [contents(row.data), row.message_group ? badge(row.message_group) : null] },
    { name: "Deliveries", number: true, value: (row) => count(row.delivery_count) },
    { name: "Hidden", wide: true, value: (row) => (new Date(utc(row.invisible_until)) > new Date() ? badge("hidden", "warn") : "–") },
    { name: "Id", wide: true, value: (row) => h("small", {}, row.message_id) },
    { name: "Enqueued", number: true, wide: true, value: (row) => ago(utc(row.created_at)) },
  ], { key: (row) => row.message_id, empty: "No messages" });
  const may = (operation, text, does) => (session.may(operation) ? button(text, does, { class: "danger" }) : null);
  const missing = h("p", { class: "empty", hidden: true }, "There is no queue of simple-mq with this id. ", link("All queues of simple-mq", to("simple")));
  const there = h("div", { class: "view", hidden: true },
    h("div", { class: "actions" },
      may(operations.acknowledgeMessages, "Purge", () => known && purge(known, refreshNow)),
      may(operations.deleteSimpleMqQueue, "Delete queue", () => known && remove(known))),
    figures, card("Messages, oldest first", messages.element, pages.element), card("Settings", about));
  view.append(missing, there);

  async function refresh() {
    const [createdAt, id] = (pages.token ?? "").split(" ");
    const asked = Promise.all([
      call(operations.getSimpleMqQueue, { queue_id: queue }),
      call(operations.peek, { queue_id: queue, limit: LIMIT, cursorCreatedAt: createdAt || undefined, cursorMessageId: id }),
    ]);
    const answers = await asked.catch((error) => {
      if (error.status !== 404 && error.status !== 400) throw error;
    });
    missing.hidden = Boolean(answers);
    there.hidden = !answers;
    if (!answers) return;
    const [found, page] = answers;
    known = found;
    fill(figures, tiles(tile("Messages", count(found.current_message_count), `of ${count(found.queue_size)}`)));
    fill(about, facts([
      ["Name", found.queue_name], ["Visibility timeout", duration(found.visibility_timeout)],
      ["Deliveries before a message is a dead letter", count(found.max_deliveries)],
      ["Largest message", found.max_message_bytes ? `${count(found.max_message_bytes)} bytes` : "that of the server"],
      ["Dead letters to", found.dlq_id ? link(found.dlq_id, to("simple", [found.dlq_id])) : "–"],
    ]));
    messages.show(page.messages);
    pages.show(page.next_cursor_created_at ? `${page.next_cursor_created_at} ${page.next_cursor_message_id}` : undefined);
  }

  return { refresh };
}

function contents(data) {
  if (data.length <= GLIMPSE) return h("div", {}, h("code", {}, data));
  return h("details", { class: "error" }, h("summary", {}, h("code", {}, `${data.slice(0, GLIMPSE - 1)}…`)),
    h("pre", { tabindex: "0", role: "group", "aria-label": "Message" }, data));
}

async function purge(queue, then) {
  const sure = await ask({
    title: "Purge this queue?", text: `This deletes the ${count(queue.current_message_count)} messages of ${queue.queue_name}, hidden ones too. It cannot be undone.`,
    action: "Purge", type: queue.queue_name, run: () => empty(queue), done: `Queue ${queue.queue_name} purged`,
  });
  if (sure) await then();
}

// No more than there were: what comes meanwhile stays.
async function empty(queue) {
  for (let left = queue.current_message_count; left > 0;) {
    const { messages } = await call(operations.peek, { queue_id: queue.queue_id, limit: Math.min(AT_ONCE, left) });
    if (!messages.length) return;
    await call(operations.acknowledgeMessages, { queue_id: queue.queue_id }, { message_ids: messages.map((each) => each.message_id) });
    left -= messages.length;
  }
}

async function remove(queue) {
  const sure = await ask({
    title: "Delete this queue?", text: `This deletes ${queue.queue_name} with all its messages; its dead letters stay. It cannot be undone.`,
    action: "Delete queue", type: queue.queue_name,
    run: () => call(operations.deleteSimpleMqQueue, { queue_id: queue.queue_id }), done: `Queue ${queue.queue_name} deleted`,
  });
  if (sure) await leadTo(to("simple"));
}
