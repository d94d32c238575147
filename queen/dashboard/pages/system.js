// Workers, the engine, and PostgreSQL.

import { call } from "../api.js";
import { Chart } from "../charts.js";
import { Databases } from "../databases.js";
import { badge, card, facts, field, fill, h, link, select, tile, tiles } from "../dom.js";
import { findings, METRICS } from "../findings.js";
import { ago, bytes, count, milliseconds, percent } from "../format.js";
import { healthOrProblem } from "../health.js";
import { operations } from "../operations.js";
import { samples } from "../prometheus.js";
import { lines, RANGES, since } from "../series.js";
import { Table } from "../tables.js";

const MEBIBYTE = 2 ** 20;
const LANE = "queen_engine_";
// Not those of queues and groups, of which there may be thousands, and no buckets of histograms.
const SHOWN = [
  ...METRICS, "queen_workers", "queen_connections", "queen_waiters", "queen_websockets",
  ...["jobs_", "calls_", "call_seconds_sum", "call_seconds_count", "batch_jobs_sum", "batch_jobs_count"].map((name) => LANE + name),
];
const TABLES = 8;

export const title = () => "System";

export function open(view, _args, refreshNow) {
  const range = select(RANGES, "1", { "aria-label": "Time", onchange: refreshNow });
  const wrong = h("div", { role: "status" });
  const databases = new Databases();
  const figures = h("div");
  const cpu = new Chart("CPU of all workers, percent of one core", [{ label: "User", colour: "--one" }, { label: "System", colour: "--two" }], percent);
  const memory = new Chart("Memory of all workers", [{ label: "Resident", colour: "--one" }], bytes);
  const loop = new Chart("Event loop lag", [{ label: "Avg", colour: "--one" }, { label: "Max", colour: "--three" }], milliseconds);
  const polls = new Chart("Waiting long polls", [{ label: "Waiting", colour: "--one" }]);
  const workers = new Table("Workers seen in the last 5 minutes", [
    { name: "Worker", by: (row) => row.workerId, value: (row) => [String(row.workerId), h("br"), h("small", {}, row.hostname)] },
    { name: "Messages", number: true, by: (row) => row.messagesProcessed, value: (row) => count(row.messagesProcessed) },
    { name: "Max loop lag", number: true, by: (row) => row.maxEventLoopLagMs, value: (row) => milliseconds(row.maxEventLoopLagMs) },
    { name: "Free connections", number: true, wide: true, by: (row) => row.freeSlots, value: (row) => `${count(row.freeSlots)} of ${count(row.dbConnections)}` },
    { name: "Waiting jobs", number: true, wide: true, by: (row) => row.jobQueueSize, value: (row) => count(row.jobQueueSize) },
    { name: "Last seen", number: true, wide: true, by: (row) => Date.parse(row.lastSeen), value: (row) => ago(row.lastSeen) },
  ], { empty: "No worker has reported yet. Workers report every 10 seconds.", sort: "Worker", key: (row) => `${row.hostname} ${row.workerId}` });
  const lanes = new Table("Jobs of the engine by type", [
    { name: "Type", by: (row) => row.kind, value: (row) => row.kind.replaceAll("_", " ") },
    { name: "Finished jobs", number: true, by: (row) => row.jobs_total, value: (row) => count(row.jobs_total) },
    { name: "Waiting", number: true, wide: true, by: (row) => row.jobs_waiting, value: (row) => count(row.jobs_waiting) },
    { name: "Calls in flight", number: true, wide: true, by: (row) => row.calls_in_flight, value: (row) => `${count(row.calls_in_flight)} of ${count(row.calls_limit)}` },
    { name: "Jobs per call", number: true, wide: true, by: (row) => row.jobs_a_call, value: (row) => row.jobs_a_call.toFixed(1) },
    { name: "Avg call time", number: true, by: (row) => row.call_ms, value: (row) => milliseconds(row.call_ms) },
    { name: "Failed", number: true, by: (row) => row.jobs_failed_total, value: (row) => count(row.jobs_failed_total) },
    { name: "Refused", number: true, wide: true, by: (row) => row.jobs_refused_total, value: (row) => count(row.jobs_refused_total) },
  ], { sort: "Finished jobs", descending: true, key: (row) => row.kind, empty: "No job has run since the start" });
  const postgres = h("div");
  const tables = new Table("Tables", [
    { name: "Table", by: (row) => row.table, value: (row) => row.table },
    { name: "Size", number: true, by: (row) => row.totalSizeBytes, value: (row) => bytes(row.totalSizeBytes) },
    { name: "Indexes", number: true, wide: true, by: (row) => row.indexSizeBytes, value: (row) => bytes(row.indexSizeBytes) },
    { name: "Dead rows", number: true, by: (row) => row.deadPercentage ?? 0, value: (row) => (row.deadTuples === undefined ? "0" : `${count(row.deadTuples)} (${percent(row.deadPercentage)})`) },
    { name: "Vacuumed", number: true, wide: true, by: (row) => Date.parse(row.lastAutovacuum) || 0, value: (row) => ago(row.lastAutovacuum) },
  ], { sort: "Size", descending: true, key: (row) => row.table });
  const whole = h("input", { type: "checkbox", oninput: refreshNow });
  const active = new Table("Active queries", [
    { name: "Process", number: true, value: (row) => String(row.pid) },
    { name: "State", value: (row) => row.state ?? "" },
    { name: "Duration", number: true, value: (row) => milliseconds(1000 * row.duration) },
    { name: "Query", long: true, value: (row) => h("code", {}, String(row.query ?? "")) },
  ], { empty: "None", key: (row) => String(row.pid) });
  view.append(
    wrong, databases.element, figures, h("div", { class: "filters" }, range),
    h("div", { class: "columns" }, cpu.element, memory.element, loop.element, polls.element),
    card("Workers", workers.element),
    card("Engine", h("p", {}, h("small", {}, "All workers of this instance since its start; types without a job are left out.")), lanes.element),
    card("PostgreSQL", postgres, h("h3", {}, "Active queries"), active.element, h("div", { class: "head" }, h("h3", {}, "Largest tables"), field("All tables", whole)), tables.element));
  let refusedBefore = null;

  async function refresh() {
    const hours = Number(range.value);
    const from = since(hours);
    // Sums over all workers come from the server: there may be many workers.
    const rest = Promise.allSettled([
      call(operations.getStatus, { from, limit: 1 }), call(operations.getWorkerMetrics, { from, limit: 1 }), call(operations.getPostgresStatistics),
    ]);
    const [health, text] = await Promise.all([healthOrProblem(), call(operations.getPrometheusMetrics, { name: SHOWN }), databases.refresh()]);
    const known = samples(text);
    const metric = (name) => Math.max(0, ...known.filter((each) => each.name === name).map((each) => each.value));
    const refused = sum(known, "queen_engine_jobs_refused_total") + sum(known, "queen_waiters_refused_total");
    refusedBefore = Math.min(refusedBefore ?? refused, refused);
    const answers = await rest;
    const [status, work, statistics] = answers.map((each) => each.value ?? null);
    fill(wrong, state(findings({ metric, health, refused: refused - refusedBefore, statistics, workers: work?.workers ?? null })));
    fill(figures, summary(known, metric, status, statistics));
    lanes.show(lanesOf(known).filter((lane) => lane.jobs_total || lane.jobs_waiting || lane.jobs_refused_total));
    const failed = answers.find((each) => each.status === "rejected");
    // What is wrong is shown all the same.
    if (failed) throw failed.reason;
    const show = (chart, from, ...reads) => chart.show(...lines(from, work.bucketMinutes, hours, (point) => point.timestamp, reads.map((read) => (point) => (point ? read(point) : null))));
    show(cpu, status.throughput, (point) => point.queenCpuUserPct, (point) => point.queenCpuSysPct);
    show(memory, status.throughput, (point) => point.queenRssMb * MEBIBYTE);
    show(polls, work.timeSeries, (point) => point.backoffSize);
    show(loop, work.timeSeries, (point) => point.avgEventLoopLagMs, (point) => point.maxEventLoopLagMs);
    workers.show(work.workers);
    fill(postgres, facts(described(statistics)));
    const dead = new Map(statistics.deadTuples.map((row) => [row.table, row]));
    const all = statistics.tableSizes.map((row) => ({ ...row, ...dead.get(row.table) }));
    tables.show(whole.checked ? all : all.toSorted((a, b) => b.totalSizeBytes - a.totalSizeBytes).slice(0, TABLES));
    active.show(statistics.activeQueries);
  }

  return { refresh, close: () => [cpu, memory, loop, polls].forEach((chart) => chart.close()) };
}

// What is wrong, the worst first; or that nothing is.
function state(found) {
  if (!found.length) return h("section", { class: "card state good" }, h("h2", {}, "Nothing is wrong"), h("p", {}, h("small", {}, "PostgreSQL answers, pushes are stored at once, no request is refused, no query runs for minutes, and no event loop stands still.")));
  const worst = found[0].tone;
  const points = found.map(({ tone, what, advice, href }) => h("li", { "data-key": what },
    badge(tone === "bad" ? "critical" : "warning", tone), h("div", {}, h("strong", {}, what), h("p", {}, h("small", {}, advice, href ? [" ", link("Maintenance", href)] : null)))));
  return h("section", { class: `card state ${worst}` }, h("h2", {}, found.length === 1 ? "One thing needs attention" : `${found.length} things need attention`), h("ul", {}, points));
}

function sum(known, name) {
  return known.filter((each) => each.name === name).reduce((total, each) => total + each.value, 0);
}

function summary(known, metric, status, statistics) {
  const hot = (name) => known.find((each) => each.name === name && each.labels.pool === "hot")?.value ?? 0;
  // Nobody has reported in a minute that has just begun.
  const latest = status?.throughput.find((point) => point.queenRssMb);
  const up = metric("queen_database_up");
  const waiting = sum(known, "queen_engine_jobs_waiting");
  return tiles(
    tile("PostgreSQL", up ? "available" : "unavailable", statistics ? `${percent(statistics.databaseCache.cacheHitRatio ?? 0)} found in memory` : "", up ? "" : "bad"),
    tile("Workers", count(metric("queen_workers")), "of this instance"),
    tile("CPU", latest ? percent(latest.queenCpuUserPct + latest.queenCpuSysPct) : "–", "of one core, all workers"),
    tile("Memory", latest ? bytes(latest.queenRssMb * MEBIBYTE) : "–", "all workers"),
    tile("Connections", `${count(hot("queen_connections") - hot("queen_connections_free"))} of ${count(hot("queen_connections"))}`, "in use by the engine"),
    tile("Waiting jobs", count(waiting), "for a call", waiting > 1000 ? "warn" : ""),
    tile("Long polls", count(metric("queen_waiters")), `and ${count(metric("queen_websockets"))} WebSockets`));
}

function lanesOf(known) {
  const lanes = new Map();
  for (const { name, labels, value } of known) {
    if (!name.startsWith(LANE) || !labels.kind || labels.le) continue;
    lanes.set(labels.kind, { ...lanes.get(labels.kind), kind: labels.kind, [name.slice(LANE.length)]: value });
  }
  return [...lanes.values()].map((lane) => ({
    ...lane,
    jobs_a_call: lane.batch_jobs_count ? lane.batch_jobs_sum / lane.batch_jobs_count : 0,
    call_ms: lane.call_seconds_count ? (1000 * lane.call_seconds_sum) / lane.call_seconds_count : 0,
  }));
}

function described({ database, cacheSummary, bufferConfig, tableSizes }) {
  return [
    ["Database", database], ["Shared buffers", bufferConfig.sharedBuffersSize ?? "–"],
    ["Total table size", bytes(tableSizes.reduce((sum, row) => sum + row.totalSizeBytes, 0))],
    ["Cache hit ratio, tables", percent(cacheSummary.tables.hitRatio)], ["Cache hit ratio, indexes", percent(cacheSummary.indexes.hitRatio)],
  ];
}
