// What a group does on a queue besides its cursors: its lag over time, and who is connected. Asked for while it is unfolded.

import { call } from "./api.js";
import { Chart } from "./charts.js";
import { badge, card, h, select } from "./dom.js";
import { ago, count } from "./format.js";
import { operations } from "./operations.js";
import { lines, RANGES, since } from "./series.js";
import { List } from "./tables.js";

const LIMIT = 20;
const KINDS = { longPoll: "long poll", webSocket: "WebSocket" };

export class Consumers {
  constructor(consumerGroup, queue, place, refresh) {
    this.names = { consumerGroup, queue };
    this.range = select(RANGES, "1", { "aria-label": `Time of the lag on ${queue}`, onchange: refresh });
    this.chart = new Chart(`Lag on ${queue}`, [{ label: "Messages", colour: "--three" }], count);
    this.list = new List(`Connected consumers of ${queue}`, [
      { name: "Kind", value: (row) => badge(KINDS[row.kind] ?? row.kind) },
      { name: "Address", value: (row) => [row.address || "unknown", h("br"), h("small", {}, label(row))] },
      { name: "Since", value: (row) => ago(row.since) },
      { name: "In flight", number: true, wide: true, value: (row) => (row.inFlight === null ? "–" : count(row.inFlight)) },
    ], { place, limit: LIMIT, refresh, key: (row) => `${row.hostname} ${row.workerId} ${row.address} ${row.since}`, empty: "No long poll waits, and no WebSocket is open" });
    this.element = h("details", { class: "more", open: true, ontoggle: refresh }, h("summary", {}, "Lag over time, connected consumers"),
      h("div", { class: "filters" }, this.range),
      h("div", { class: "columns" }, this.chart.element, card("Connected consumers", this.list.elements)));
  }

  // `begun`: when the group was created.
  async refresh(begun) {
    if (!this.element.open) return;
    const hours = Number(this.range.value);
    const [lag, { consumers, total }] = await Promise.all([
      call(operations.getGroupLag, { ...this.names, from: since(hours) }),
      call(operations.listConsumers, { ...this.names, limit: LIMIT, offset: this.list.wanted().offset }),
    ]);
    this.chart.show(...lines(lag.series, lag.bucketMinutes, hours, (point) => point.bucket, [(point) => point?.lag ?? 0], begun));
    this.list.show(consumers, total);
  }

  close() {
    this.chart.close();
  }
}

function label({ namespace, task, hostname, workerId }) {
  return [namespace && `namespace ${namespace}`, task && `task ${task}`, `worker ${hostname}:${workerId}`].filter(Boolean).join(", ");
}
