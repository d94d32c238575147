// The switches for maintenance, the spool, and what retention removes.

import { call } from "../api.js";
import { Chart } from "../charts.js";
import { badge, button, card, fill, h, tile, tiles } from "../dom.js";
import { confirm } from "../dialogs.js";
import { bytes, count, duration, rate } from "../format.js";
import { perform } from "../notices.js";
import { operations } from "../operations.js";
import { lines, since } from "../series.js";
import { session } from "../session.js";

const HOURS = 24;
const SWITCHES = [
  {
    mode: "maintenance_mode", operation: operations.setMaintenance, name: "Pushes to the spool",
    about: "Pushes are answered and wait in files, not in PostgreSQL, until the mode is off: for work on the database.",
    on: "All pushes of the installation wait in files of their server until you switch the mode off. Consumers get nothing new.",
  },
  {
    mode: "pop_maintenance_mode", operation: operations.setPopMaintenance, name: "Pops get nothing",
    about: "Consumers get no messages until the mode is off. Pushes and acks go on.",
    on: "No consumer of the installation gets a message until you switch the mode off.",
  },
];

export const title = () => "Maintenance";

export function open(view, _args, refreshNow) {
  const modes = h("div");
  const spool = h("div");
  const chart = new Chart("Messages removed in the last 24 hours", [
    { label: "Retention", colour: "--one" }, { label: "After completion", colour: "--two" }, { label: "Waited too long", colour: "--three" },
  ]);
  const rights = session.may(operations.setMaintenance) ? null : h("p", {}, h("small", {}, "Only an administrator may change these."));
  view.append(card("Modes", rights, modes), card("Spool of the instance that answers", spool), chart.element);

  async function refresh() {
    const [health, buffers, removed] = await Promise.all([healthOrProblem(), call(operations.getBuffers), call(operations.getRetention, { from: since(HOURS) })]);
    fill(modes, SWITCHES.map((each) => row(each, health.shared_state[each.mode], refreshNow)));
    fill(spool, spooled(buffers));
    const each = (field) => (point) => point?.[field] ?? 0;
    chart.show(...lines(removed.series, removed.bucketMinutes, HOURS, (point) => point.bucket, ["retentionMsgs", "completedRetentionMsgs", "evictionMsgs"].map(each)));
  }

  return { refresh, close: () => chart.close() };
}

// What /health says, also while PostgreSQL is away.
async function healthOrProblem() {
  try {
    return await call(operations.getHealth);
  } catch (error) {
    if (error.problem?.shared_state) return error.problem;
    throw error;
  }
}

function row({ name, about, on, operation }, enabled, then) {
  const turn = async () => {
    const sure = enabled || (await confirm({ title: `${name}?`, text: on, action: "Switch on" }));
    if (sure && (await perform(() => call(operation, {}, { enabled: !enabled }), `${name}: ${enabled ? "off" : "on"}`))) await then();
  };
  return h("div", { class: "head" },
    h("div", {}, h("strong", {}, name), " ", badge(enabled ? "on" : "off", enabled ? "warn" : "good"), h("p", {}, h("small", {}, about))),
    session.may(operation) ? button(enabled ? "Switch off" : "Switch on", turn, { class: enabled ? "primary" : "danger", "aria-label": `${enabled ? "Switch off" : "Switch on"}: ${name}`, "data-key": operation.path }) : null);
}

function spooled(buffers) {
  return [
    tiles(
      tile("Waiting", count(buffers.pending), "messages", buffers.pending ? "warn" : ""),
      tile("Size", bytes(buffers.bytes), `of ${bytes(buffers.bytesMax)}`),
      tile("Oldest", buffers.pending ? duration(buffers.oldestAgeSeconds) : "–"),
      tile("Being stored", rate(buffers.replayRate)),
      tile("Set aside", count(buffers.failed), "files that could not be stored", buffers.failed ? "bad" : ""),
      tile("Held back", count(buffers.heldPartitions), "partitions that cannot be stored yet", buffers.heldPartitions ? "bad" : ""),
      tile("PostgreSQL", buffers.dbHealthy ? "answers" : "away", "", buffers.dbHealthy ? "" : "bad")),
  ];
}
