// Maintenance modes, the spool, the outbox, and messages removed by retention.

import { call } from "../api.js";
import { Chart } from "../charts.js";
import { badge, button, card, fill, h, tile, tiles } from "../dom.js";
import { ask } from "../dialogs.js";
import { bytes, count, duration, rate } from "../format.js";
import { healthOrProblem } from "../health.js";
import { perform } from "../notices.js";
import { operations } from "../operations.js";
import { samples } from "../prometheus.js";
import { lines, since } from "../series.js";
import { session } from "../session.js";

const HOURS = 24;
const SWITCHES = [
  {
    mode: "maintenance_mode", operation: operations.setMaintenance, name: "Spool pushes",
    about: "For work on the database: pushes are accepted and written to the spool, not to PostgreSQL, until you switch this off.",
    on: "All servers write pushes to their spools until you switch this off. Consumers get no new messages.",
  },
  {
    mode: "pop_maintenance_mode", operation: operations.setPopMaintenance, name: "Pause pops",
    about: "Consumers get no messages until you switch this off. Pushes and acks continue.",
    on: "No consumer of any server gets messages until you switch this off.",
  },
];

export const title = () => "Maintenance";

export function open(view, _args, refreshNow) {
  const modes = h("div");
  const spool = h("div");
  const outbox = h("div");
  const chart = new Chart("Messages removed in the last 24 hours", [
    { label: "Retention", colour: "--one" }, { label: "Acknowledged", colour: "--two" }, { label: "Evicted", colour: "--three" },
  ]);
  const rights = session.may(operations.setMaintenance) ? null : h("p", {}, h("small", {}, "Only an admin can change these."));
  view.append(card("Modes", rights, modes), card("Spool of this instance", spool), card("Outbox", outbox), chart.element);

  async function refresh() {
    const [health, buffers, removed, metrics] = await Promise.all([
      healthOrProblem(), call(operations.getBuffers), call(operations.getRetention, { from: since(HOURS) }), call(operations.getPrometheusMetrics, { name: "queen_outbox_" }),
    ]);
    fill(modes, SWITCHES.map((each) => row(each, health.shared_state[each.mode], refreshNow)));
    fill(spool, spooled(buffers));
    fill(outbox, pushedWithSql(samples(metrics)));
    const each = (field) => (point) => point?.[field] ?? 0;
    chart.show(...lines(removed.series, removed.bucketMinutes, HOURS, (point) => point.bucket, ["retentionMsgs", "completedRetentionMsgs", "evictionMsgs"].map(each)));
  }

  return { refresh, close: () => chart.close() };
}

function row({ name, about, on, operation }, enabled, then) {
  const turn = async () => {
    const run = () => call(operation, {}, { enabled: !enabled });
    const ended = enabled
      ? await perform(run, `${name}: off`)
      : await ask({ title: `${name}?`, text: on, action: "Switch on", danger: true, run, done: `${name}: on` });
    if (ended) await then();
  };
  return h("div", { class: "head" },
    h("div", {}, h("strong", {}, name), " ", badge(enabled ? "on" : "off", enabled ? "warn" : "good"), h("p", {}, h("small", {}, about))),
    session.may(operation) ? button(enabled ? "Switch off" : "Switch on", turn, { class: enabled ? "primary" : "danger", "aria-label": `${enabled ? "Switch off" : "Switch on"}: ${name}`, "data-key": operation.path }) : null);
}

function spooled(buffers) {
  return [
    tiles(
      tile("Spooled", count(buffers.pending), "messages", buffers.pending ? "warn" : ""),
      tile("Size", bytes(buffers.bytes), `of ${bytes(buffers.bytesMax)}`),
      tile("Oldest", buffers.pending ? duration(buffers.oldestAgeSeconds) : "–"),
      tile("Replay rate", rate(buffers.replayRate)),
      tile("Set aside", count(buffers.failed), "files that could not be replayed", buffers.failed ? "bad" : ""),
      tile("Held back", count(buffers.heldPartitions), "partitions that cannot be replayed yet", buffers.heldPartitions ? "bad" : ""),
      tile("PostgreSQL", buffers.dbHealthy ? "available" : "unavailable", "", buffers.dbHealthy ? "" : "bad")),
  ];
}

// What was pushed with SQL and is not in the log yet.
function pushedWithSql(known) {
  const value = (name) => known.find((each) => each.name === `queen_outbox_${name}`)?.value ?? 0;
  const [messages, held] = [value("messages"), value("held_partitions")];
  return tiles(
    tile("Waiting", count(messages), "messages pushed with SQL"),
    tile("Oldest", messages ? duration(value("oldest_age_seconds")) : "–"),
    tile("Held back", count(held), "partitions that cannot be moved yet", held ? "bad" : ""));
}
