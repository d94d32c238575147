// Workers, the engine, and PostgreSQL.

import { call } from "../api.js";
import { Chart } from "../charts.js";
import { Databases } from "../databases.js";
import { card, facts, fill, h, select, tile, tiles } from "../dom.js";
import { ago, bytes, count, duration, milliseconds, percent } from "../format.js";
import { operations } from "../operations.js";
import { samples } from "../prometheus.js";
import { lines, RANGES, since } from "../series.js";
import { Table } from "../tables.js";

const MEBIBYTE = 2 ** 20;
const LANE = "queen_engine_";
// Not those of queues and groups, of which there may be thousands.
const SHOWN = [LANE, "queen_workers", "queen_connections", "queen_waiters", "queen_websockets", "queen_database_up"];

export const title = () => "System";

export function open(view, _args, refreshNow) {
  const range = select(RANGES, "1", { "aria-label": "Time", onchange: refreshNow });
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
  ], { empty: "No worker has reported yet. Workers report every 10 seconds.", sort: "Worker" });
  const lanes = new Table("Jobs of the engine by type", [
    { name: "Type", by: (row) => row.kind, value: (row) => row.kind.replace("_", " ") },
    { name: "Finished jobs", number: true, by: (row) => row.jobs_total, value: (row) => count(row.jobs_total) },
    { name: "Waiting", number: true, wide: true, by: (row) => row.jobs_waiting, value: (row) => count(row.jobs_waiting) },
    { name: "Calls in flight", number: true, wide: true, by: (row) => row.calls_in_flight, value: (row) => `${count(row.calls_in_flight)} of ${count(row.calls_limit)}` },
    { name: "Jobs per call", number: true, wide: true, by: (row) => row.jobs_a_call, value: (row) => row.jobs_a_call.toFixed(1) },
    { name: "Avg call time", number: true, by: (row) => row.call_ms, value: (row) => milliseconds(row.call_ms) },
    { name: "Failed", number: true, wide: true, by: (row) => row.jobs_failed_total, value: (row) => count(row.jobs_failed_total) },
  ], { sort: "Finished jobs", descending: true });
  const postgres = h("div");
  const tables = new Table("Tables", [
    { name: "Table", by: (row) => row.table, value: (row) => row.table },
    { name: "Size", number: true, by: (row) => row.totalSizeBytes, value: (row) => bytes(row.totalSizeBytes) },
    { name: "Indexes", number: true, wide: true, by: (row) => row.indexSizeBytes, value: (row) => bytes(row.indexSizeBytes) },
    { name: "Dead rows", number: true, by: (row) => row.deadPercentage ?? 0, value: (row) => (row.deadTuples === undefined ? "0" : `${count(row.deadTuples)} (${percent(row.deadPercentage)})`) },
    { name: "Vacuumed", number: true, wide: true, by: (row) => Date.parse(row.lastAutovacuum) || 0, value: (row) => ago(row.lastAutovacuum) },
  ], { sort: "Size", descending: true });
  const active = new Table("Active queries", [
    { name: "Process", number: true, value: (row) => String(row.pid) },
    { name: "State", value: (row) => row.state ?? "" },
    { name: "Duration", number: true, value: (row) => duration(row.duration) },
    { name: "Query", long: true, value: (row) => h("code", {}, String(row.query ?? "")) },
  ], { empty: "None" });
  view.append(
    databases.element, figures, h("div", { class: "filters" }, range),
    h("div", { class: "columns" }, cpu.element, memory.element, loop.element, polls.element),
    card("Workers", workers.element), card("Engine", h("p", {}, h("small", {}, "All workers of this instance, since its start.")), lanes.element),
    card("PostgreSQL", postgres, tables.element, h("h3", {}, "Active queries"), active.element));

  async function refresh() {
    // The rest needs all of them.
    await databases.refresh();
    const hours = Number(range.value);
    const from = since(hours);
    // Sums over all workers come from the server: there may be many workers.
    const [status, work, statistics, text] = await Promise.all([
      call(operations.getStatus, { from, limit: 1 }), call(operations.getWorkerMetrics, { from, limit: 1 }),
      call(operations.getPostgresStatistics), call(operations.getPrometheusMetrics, { name: SHOWN }),
    ]);
    const known = samples(text);
    fill(figures, summary(known, statistics));
    const show = (chart, from, ...reads) => chart.show(...lines(from, work.bucketMinutes, hours, (point) => point.timestamp, reads.map((read) => (point) => (point ? read(point) : null))));
    show(cpu, status.throughput, (point) => point.queenCpuUserPct, (point) => point.queenCpuSysPct);
    show(memory, status.throughput, (point) => point.queenRssMb * MEBIBYTE);
    show(polls, work.timeSeries, (point) => point.backoffSize);
    show(loop, work.timeSeries, (point) => point.avgEventLoopLagMs, (point) => point.maxEventLoopLagMs);
    workers.show(work.workers);
    lanes.show(lanesOf(known));
    fill(postgres, facts(described(statistics)));
    const dead = new Map(statistics.deadTuples.map((row) => [row.table, row]));
    tables.show(statistics.tableSizes.map((row) => ({ ...row, ...dead.get(row.table) })));
    active.show(statistics.activeQueries);
  }

  return { refresh, close: () => [cpu, memory, loop, polls].forEach((chart) => chart.close()) };
}

function summary(known, statistics) {
  const value = (name, pool) => known.find((each) => each.name === name && (!pool || each.labels.pool === pool))?.value ?? 0;
  return tiles(
    tile("Workers", count(value("queen_workers")), "of this instance"),
    tile("Connections", `${count(value("queen_connections", "hot") - value("queen_connections_free", "hot"))} of ${count(value("queen_connections", "hot"))}`, "in use by the engine"),
    tile("Long polls", count(value("queen_waiters")), `of at most ${count(value("queen_waiters_max"))}`),
    tile("WebSockets", count(value("queen_websockets"))),
    tile("Cache hit ratio", percent(statistics.databaseCache.cacheHitRatio ?? 0), "of PostgreSQL"),
    tile("PostgreSQL", value("queen_database_up") ? "available" : "unavailable", "", value("queen_database_up") ? "" : "bad"));
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
