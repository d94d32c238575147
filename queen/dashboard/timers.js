// The timers and cron schedules of a queue, on its page; nothing where there are none. Timers have an order, that of their
// keys, and are paged by it.

import { call } from "./api.js";
import { ask } from "./dialogs.js";
import { button, card, fill, h } from "./dom.js";
import { glimpse, moment } from "./format.js";
import { perform } from "./notices.js";
import { operations } from "./operations.js";
import { Place } from "./place.js";
import { session } from "./session.js";
import { List, Table } from "./tables.js";

const LIMIT = 50;

export class Timers {
  constructor(queue, query, then) {
    this.queue = queue;
    this.place = new Place(query, "timers ");
    this.then = then;
    const changes = session.may(operations.changeTimers);
    this.timers = new Table("Timers, by key", [
      { name: "Key", long: true, value: (row) => row.timerKey },
      { name: "Due", value: (row) => moment(row.deliverAt) },
      { name: "Partition", wide: true, value: (row) => row.partition },
      { name: "", value: (row) => (changes ? [
        button("Fire", () => fire(row, then), { "aria-label": `Fire ${row.timerKey}`, "data-key": `fire ${row.timerKey}` }),
        button("Cancel", () => cancel(row, then), { class: "danger", "aria-label": `Cancel ${row.timerKey}`, "data-key": `cancel ${row.timerKey}` }),
      ] : "") },
    ], { key: (row) => row.timerKey });
    this.pages = h("nav", { class: "pager", "aria-label": "Pages of timers" });
    this.schedules = new List("Cron schedules, by name", [
      { name: "Name", long: true, value: (row) => row.name },
      { name: "Cron", value: (row) => `${row.cron} (${row.timeZone})` },
      { name: "Next", value: (row) => moment(row.nextAt) },
      { name: "Payload", wide: true, long: true, value: (row) => glimpse(row.payload) },
      { name: "", value: (row) => (changes ? button("Delete", () => remove(row, then), { class: "danger", "aria-label": `Delete ${row.name}`, "data-key": `delete ${row.name}` }) : "") },
    ], { place: new Place(query, "schedules "), limit: LIMIT, refresh: then, key: (row) => row.name, empty: "No schedules found" });
    this.elements = [card("Timers", this.timers.element, this.pages), card("Cron schedules", this.schedules.elements)];
    for (const element of this.elements) element.hidden = true;
  }

  async refresh() {
    const { queue } = this;
    const after = this.place.get("after");
    const { limit, offset } = this.schedules.wanted();
    const [{ rows, nextAfter }, { schedules }] = await Promise.all([
      call(operations.listTimers, { queue, after, limit: LIMIT }), call(operations.listSchedules, { queue, limit, offset }),
    ]);
    this.elements[0].hidden = !rows.length && !after;
    this.elements[1].hidden = !schedules.length && !offset;
    this.timers.show(rows);
    fill(this.pages,
      after ? button("First", () => this.#go(""), { "data-key": "first timers" }) : null,
      nextAfter ? button("Next", () => this.#go(nextAfter), { "data-key": "next timers" }) : null);
    this.schedules.show(schedules);
  }

  #go(after) {
    this.place.set({ after });
    return this.then();
  }
}

async function fire({ queue, timerKey }, then) {
  const body = { operations: [{ op: "fire", queue, timerKey }] };
  const told = ({ results: [result] }) => (result.ok ? "Timer fired" : "The timer is gone: its message may have been delivered");
  if (await perform(() => call(operations.changeTimers, {}, body), told)) await then();
}

async function cancel({ queue, timerKey }, then) {
  const sure = await ask({
    title: "Cancel this timer?", text: `The message of ${timerKey} is not delivered.`, action: "Cancel timer", danger: true,
    run: () => call(operations.cancelTimer, { queue, timerKey }),
    done: (result) => (result.ok ? "Timer cancelled" : "The timer is gone: its message may have been delivered"),
  });
  if (sure) await then();
}

async function remove({ queue, name }, then) {
  const sure = await ask({
    title: "Delete this schedule?", text: `${name} does not fire any more.`, action: "Delete schedule", type: name,
    run: () => call(operations.deleteSchedule, { queue, name }), done: "Schedule deleted",
  });
  if (sure) await then();
}
