// The timers and cron schedules of a queue, on its page; nothing where there are none.

import { call } from "./api.js";
import { ask } from "./dialogs.js";
import { button, card } from "./dom.js";
import { glimpse, moment } from "./format.js";
import { perform } from "./notices.js";
import { operations } from "./operations.js";
import { session } from "./session.js";
import { Table } from "./tables.js";

const LIMIT = 50;

export class Timers {
  constructor(queue, then) {
    this.queue = queue;
    const changes = session.may(operations.changeTimers);
    this.timers = new Table(`Timers, the first ${LIMIT} by key`, [
      { name: "Key", long: true, by: (row) => row.timerKey, value: (row) => row.timerKey },
      { name: "Due", by: (row) => Date.parse(row.deliverAt), value: (row) => moment(row.deliverAt) },
      { name: "Partition", wide: true, by: (row) => row.partition, value: (row) => row.partition },
      { name: "", value: (row) => (changes ? [
        button("Fire", () => fire(row, then), { "aria-label": `Fire ${row.timerKey}`, "data-key": `fire ${row.timerKey}` }),
        button("Cancel", () => cancel(row, then), { class: "danger", "aria-label": `Cancel ${row.timerKey}`, "data-key": `cancel ${row.timerKey}` }),
      ] : "") },
    ]);
    this.schedules = new Table("Cron schedules", [
      { name: "Name", long: true, by: (row) => row.name, value: (row) => row.name },
      { name: "Cron", value: (row) => `${row.cron} (${row.timeZone})` },
      { name: "Next", by: (row) => Date.parse(row.nextAt), value: (row) => moment(row.nextAt) },
      { name: "Payload", wide: true, long: true, value: (row) => glimpse(row.payload) },
      { name: "", value: (row) => (changes ? button("Delete", () => remove(row, then), { class: "danger", "aria-label": `Delete ${row.name}`, "data-key": `delete ${row.name}` }) : "") },
    ]);
    this.elements = [card("Timers", this.timers.element), card("Cron schedules", this.schedules.element)];
    for (const element of this.elements) element.hidden = true;
  }

  async refresh() {
    const { queue } = this;
    const [{ rows }, { schedules }] = await Promise.all([
      call(operations.listTimers, { queue, limit: LIMIT }), call(operations.listSchedules, { queue }),
    ]);
    [rows, schedules].forEach((each, n) => { this.elements[n].hidden = each.length === 0; });
    this.timers.show(rows);
    this.schedules.show(schedules);
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
