// What is wrong with the installation now, and what to do. The conditions are those of the alerts of deploy/prometheus,
// and what only PostgreSQL and the workers can tell.

import { unavailable } from "./databases.js";
import { bytes, count, duration, milliseconds, percent } from "./format.js";
import { to } from "./router.js";

const OLDEST_S = 60;
const STALE_S = 600;
const SLOW_QUERY_S = 60;
const LOOP_LAG_MS = 500;
const FULL = 0.8;
const HIT_RATIO = 90;
// Fewer reads say nothing about the cache.
const READS = 100_000;
// PostgreSQL's own, which may run for long.
const SERVICES = /^(autovacuum:|START_REPLICATION)/;
const DEAD = 50;
const DEAD_ROWS = 100_000;

const MAINTENANCE = to("maintenance");

// The metrics that are looked at, by the beginnings of their names.
export const METRICS = ["queen_database_up", "queen_spool_", "queen_outbox_", "queen_timers_", "queen_clock_steps", "queen_statistics_age_seconds", "queen_engine_jobs_refused_total", "queen_waiters_refused_total"];

// Each with `tone` (bad: something is not served; warn), `what`, `advice`, and `href`, where there is more. `metric(name)` is
// the largest value of a metric, `health` the answer of /health, `refused` how many requests were refused since the page was
// opened. The others are null while PostgreSQL is unavailable.
export function findings({ metric, health, refused, statistics, workers }) {
  return [...ofServer(metric, health, refused), ...(statistics ? ofPostgres(statistics) : []), ...(workers ? ofWorkers(workers) : [])]
    .toSorted((a, b) => (b.tone === "bad") - (a.tone === "bad"));
}

function ofServer(metric, health, refused) {
  const { maintenance_mode: pushesOff, pop_maintenance_mode: popsOff } = health.shared_state;
  const up = metric("queen_database_up");
  const down = up ? unavailable(health) : [];
  const spooling = metric("queen_spool_active") && !pushesOff && !down.length;
  return [
    down.length && bad(`Database ${down.join(", ")} does not answer`, "Pushes to its partitions go to the spool, their pops wait, and lists and figures of all databases are refused (503). The others go on."),
    !up && bad("PostgreSQL does not answer", "Pushes go to the spool, pops wait, acks are refused (503). Check PostgreSQL, the network to it, and max_connections."),
    up && spooling && bad("Pushes go to the spool, although PostgreSQL answers", "Commits may block: is a synchronous standby down? Run queen doctor.", MAINTENANCE),
    metric("queen_spool_bytes") > FULL * metric("queen_spool_bytes_max") && bad(`The spool is full up to ${percent(Math.round(100 * metric("queen_spool_bytes") / metric("queen_spool_bytes_max")))}`, "When it is full, pushes are refused. Bring PostgreSQL back, or raise FILE_BUFFER_MAX_BYTES.", MAINTENANCE),
    metric("queen_spool_failed_files") && bad(`Files of the spool are set aside: ${count(metric("queen_spool_failed_files"))}`, "Their messages are safe, and not delivered. queen spool list says why; then retry or discard them.", MAINTENANCE),
    metric("queen_spool_held_partitions") && bad(`Pushes to ${count(metric("queen_spool_held_partitions"))} partitions are held back`, "A lock or a missing key is in the way. queen spool list says which. The server tries again by itself.", MAINTENANCE),
    metric("queen_outbox_held_partitions") && bad(`Messages pushed with SQL to ${count(metric("queen_outbox_held_partitions"))} partitions are held back`, "queen.outbox_held_partitions says why.", MAINTENANCE),
    metric("queen_outbox_oldest_age_seconds") > OLDEST_S && warn(`A message pushed with SQL has waited for ${duration(metric("queen_outbox_oldest_age_seconds"))}`, "No worker moves the outbox, or not fast enough. See the log of the servers.", MAINTENANCE),
    metric("queen_timers_oldest_overdue_seconds") > OLDEST_S && warn(`A timer has been due for ${duration(metric("queen_timers_oldest_overdue_seconds"))}`, "The log of the servers names the lock or the missing key."),
    refused && bad(`${count(refused)} requests were refused since this page is open`, "Too many are waiting (503). If the CPU is used up, add workers; otherwise PostgreSQL is slow, or open files are too few. Run queen doctor."),
    pushesOff && warn("Pushes go to the spool, because somebody switched that on", "Consumers get no new messages until it is switched off.", MAINTENANCE),
    popsOff && warn("Pops are paused, because somebody switched that on", "Consumers get no messages until it is switched off.", MAINTENANCE),
    metric("queen_clock_steps") && warn("PostgreSQL's clock stepped", "Leases may have ended early, so messages may have come twice. Run NTP there; if the clock is right, queen doctor --accept-clock."),
    metric("queen_statistics_age_seconds") > STALE_S && warn(`Lag and depth are ${duration(metric("queen_statistics_age_seconds"))} old`, "No worker could refresh the statistics of queues. Run queen doctor."),
  ].filter(Boolean);
}

function ofPostgres({ activeQueries, databaseCache, tableSizes, deadTuples }) {
  const slow = activeQueries.filter((row) => row.duration > SLOW_QUERY_S && !SERVICES.test(row.query));
  const bloated = deadTuples.filter((row) => row.deadTuples > DEAD_ROWS && row.deadPercentage > DEAD);
  const sizes = new Map(tableSizes.map((row) => [row.table, row.totalSizeBytes]));
  return [
    ...slow.map((row) => warn(`A ${row.state === "active" ? "query" : "transaction"} of process ${row.pid} runs for ${duration(row.duration)}`, "A long transaction keeps dead rows from being removed, for everybody. Is it stuck? See Active queries.")),
    databaseCache.cacheHitRatio < HIT_RATIO && databaseCache.diskReads > READS && warn(`PostgreSQL finds only ${percent(databaseCache.cacheHitRatio)} of its pages in memory`, "More memory (shared_buffers) makes every call faster."),
    ...bloated.map((row) => warn(`${row.table} is ${percent(row.deadPercentage)} dead rows (${bytes(sizes.get(row.table) ?? 0)})`, "Autovacuum is behind: a long transaction holds it up, or it is throttled.")),
  ].filter(Boolean);
}

function ofWorkers(workers) {
  const lagging = workers.filter((row) => row.maxEventLoopLagMs > LOOP_LAG_MS);
  const waiting = workers.filter((row) => row.jobQueueSize && !row.freeSlots);
  return [
    lagging.length && warn(`Event loop of ${number(lagging, "worker")} stood still, up to ${milliseconds(Math.max(...lagging.map((row) => row.maxEventLoopLagMs)))}`, "In the last five minutes. The CPU is used up, or requests are very large: add workers or instances."),
    waiting.length && warn(`All connections of ${number(waiting, "worker")} are in use, and jobs wait`, "PostgreSQL is the bottleneck: see Active queries and the times of calls."),
  ].filter(Boolean);
}

const number = (rows, what) => `${count(rows.length)} ${what}${rows.length === 1 ? "" : "s"}`;
const bad = (what, advice, href = null) => ({ tone: "bad", what, advice, href });
const warn = (what, advice, href = null) => ({ tone: "warn", what, advice, href });
