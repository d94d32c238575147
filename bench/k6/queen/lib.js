// What all scripts share: settings, the operations of Queen's interface, and the journal.
//
// Settings come by environment (k6 run -e NAME=value), so that a script runs without the driver too:
//   QUEEN_URL, QUEEN_TOKEN   the server, and a token where it wants one
//   PREFIX                   begins the names of all queues of this run
//   DURATION, VUS            how long, and how many at once
//   JOURNAL=1                one line a call on the console: see docs/journal.md
//   SMOKE=1                  seconds instead of minutes
//   SUMMARY                  file for the summary, as JSON
//   SCENARIO, SERVER         tags of all figures, for who sends them elsewhere (k6 run --out)
//   IDS=chosen               producers choose the transaction id of each message; else the server makes it
//   TOLERATE=1               refusals and lost answers are part of the scenario (failover)

import http from 'k6/http';
import { check, sleep } from 'k6';
import exec from 'k6/execution';
import { Counter, Gauge } from 'k6/metrics';
import { JOURNAL, journal } from '../journal.js';

export const SMOKE = __ENV.SMOKE === '1';
export const PREFIX = __ENV.PREFIX || 'k6';
export const DURATION = SMOKE ? '2s' : __ENV.DURATION || '30s';
export const SECONDS = seconds(DURATION);
const TOLERATE = __ENV.TOLERATE === '1';
const CHOSEN = oneOf('IDS', ['server', 'chosen']) === 'chosen';
const BASE = `${__ENV.QUEEN_URL || 'http://127.0.0.1:6632'}/api/v1`;
const HEADERS = { 'Content-Type': 'application/json' };
if (__ENV.QUEEN_TOKEN) HEADERS.Authorization = `Bearer ${__ENV.QUEEN_TOKEN}`;

const pushed = new Counter('messages_pushed');
const prepared = new Counter('messages_prepared');
const delivered = new Counter('messages_delivered');
const acked = new Counter('messages_acked');
const moment = new Gauge('moment_ms');

// A whole number that is set, of `least` or more.
export function number(name, usual, smoke, least = 1) {
  if (SMOKE && smoke !== undefined) return smoke;
  const found = Number(__ENV[name] || usual);
  if (!Number.isInteger(found) || found < least) throw new Error(`${name}=${__ENV[name]}: expected is a whole number of ${least} or more`);
  return found;
}

// One of some words, the first of them if nothing is set.
export function oneOf(name, words) {
  const found = __ENV[name] || words[0];
  const listed = `${words.slice(0, -1).join(', ')} or ${words[words.length - 1]}`;
  if (!words.includes(found)) throw new Error(`${name}=${found}: expected is ${listed}`);
  return found;
}

function seconds(text) {
  const parts = [...text.matchAll(/(\d+)(h|m|s)/g)];
  if (!parts.length || parts.map(([part]) => part).join('') !== text) throw new Error(`DURATION=${text}: expected is a time as 90s or 1h30m`);
  return parts.reduce((sum, [, n, unit]) => sum + Number(n) * { h: 3600, m: 60, s: 1 }[unit], 0);
}

// When the load itself, without setup and teardown (VU 0), began and ended: with the first and the last call that carried messages.
function carried(counter, messages) {
  counter.add(messages);
  if (__VU > 0) moment.add(Date.now());
}

const EMPTY_IN_A_ROW = 10;
let empty = 0;

// Of a backlog that is worked off before the time is, that is the end of the load: to ask on would be measured as pops. What is
// leased for the moment may come again, so a consumer asks a few times.
export function workedOff(popped) {
  empty = popped ? 0 : empty + 1;
  if (popped) return false;
  sleep(empty < EMPTY_IN_A_ROW ? 0.05 : Math.max(0.05, SECONDS - (Date.now() - exec.scenario.startTime) / 1000));
  return true;
}

const STATISTICS = ['count', 'min', 'med', 'p(90)', 'p(95)', 'p(99)', 'p(99.9)', 'max'];
const OPERATIONS = ['push', 'pop', 'ack', 'transaction'];

// Every answer as expected, or the run has failed; a scenario adds thresholds of its own. The thresholds that always hold are there
// because k6 reports the times of an operation only if there is a threshold on it.
export function limits(more) {
  const shown = Object.fromEntries(OPERATIONS.map((op) => [`http_req_duration{op:${op}}`, ['max>=0']]));
  const strict = TOLERATE ? {} : { checks: ['rate==1'], http_req_failed: ['rate==0'] };
  return {
    summaryTrendStats: STATISTICS,
    tags: { interface: 'queen', load: __ENV.SCENARIO || 'by hand', server: __ENV.SERVER || 'queen' },
    thresholds: Object.assign(shown, strict, more),
  };
}

export function summary(data) {
  return __ENV.SUMMARY ? { [__ENV.SUMMARY]: JSON.stringify(data) } : { stdout: JSON.stringify(data.metrics, null, 1) };
}

// A limit of the slowest one in a hundred. Smoke runs show that all works, not how fast, on machines that may be busy.
export const slowest = (ms) => (SMOKE ? 60000 : ms);
export const within = (ms) => [`p(99)<${slowest(ms)}`];

// A call that k6 breaks off at the end has no line, and may have happened: with a journal, iterations come to their end.
export const grace = (usual) => (JOURNAL ? '180s' : usual);

export function call(op, method, path, body, statuses, params, request) {
  const sent = Date.now();
  const response = http.request(method, BASE + path, body, {
    headers: HEADERS,
    tags: { op, name: op },
    responseCallback: http.expectedStatuses(...statuses),
    timeout: '60s',
    ...params,
  });
  if (JOURNAL) journal(op, request || body || 'null', sent, response);
  const fine = statuses.includes(response.status);
  if (!TOLERATE) check(response, { [`${op} answered`]: () => fine });
  else if (!fine) sleep(0.1);
  return fine ? response : null;
}

export function configure(queue, options) {
  compareClocks();
  call('configure', 'POST', '/configure', JSON.stringify({ queue, options: options || {} }), [200]);
}

export function remove(queue) {
  call('delete', 'DELETE', `/resources/queues/${queue}`, null, [200, 204, 404]);
}

// items: [{queue, partition, payload, transactionId}]
export function push(items) {
  const response = call('push', 'POST', '/push', JSON.stringify({ items }), [201, 200]);
  if (response) carried(__VU > 0 ? pushed : prepared, items.length);
  return response;
}

// Only what an ack needs is taken out of the answer: reading all of it would be most of the load.
export function pop(queue, options) {
  const o = Object.assign({ batch: 1, partitions: 1, wait: true, timeout: 2000 }, options);
  const query = Object.entries(o).filter(([name]) => name !== "data").map(([name, value]) => `${name}=${value}`).join('&');
  const request = described(queue, o);
  const response = call('pop', 'GET', `/pop/queue/${queue}?${query}`, null, [200, 204], {}, request);
  if (!response || response.status === 204) return null;
  const ids = response.json('messages.#.transactionId');
  carried(delivered, ids.length);
  return {
    ids,
    partitions: response.json('messages.#.partitionId'),
    data: o.data ? response.json('messages.#.data') : null,
    lease: response.json('leaseId'),
  };
}

function described(queue, options) {
  return JOURNAL ? JSON.stringify(Object.assign({ queue }, options)) : null;
}

export function ack(popped, group, status) {
  const acknowledgments = popped.ids.map((transactionId, n) => ({
    transactionId, partitionId: popped.partitions[n], leaseId: popped.lease, status: status ? status(n) : 'completed',
  }));
  const body = { acknowledgments };
  if (group) body.consumerGroup = group;
  const response = call('ack', 'POST', '/ack/batch', JSON.stringify(body), [200]);
  if (response) carried(acked, popped.ids.length);
  return response;
}

export function transact(operations, lease) {
  const response = call('transaction', 'POST', '/transaction', JSON.stringify({ operations, requiredLeases: [lease] }), [200]);
  if (response) carried(acked, operations.filter(({ type }) => type === 'ack').length);
  return response;
}

// For the journal: how far the clock of k6 is from the server's.
function compareClocks() {
  for (let n = 0; JOURNAL && n < 5; n += 1) call('clock', 'GET', '/resources/overview', null, [200]);
}

// For the journal: takes and acks what is left for a group, until the queue is empty and no lease of `lease` seconds can be live.
export function drain(queue, group, lease) {
  if (!JOURNAL) return;
  const options = { batch: 1000, partitions: 1000, wait: true, timeout: 1000 * (lease + 2), ...(group ? { consumerGroup: group } : {}) };
  for (let tries = 0; tries < 1000; tries += 1) {
    const sent = Date.now();
    const popped = pop(queue, options);
    if (popped) ack(popped, group);
    // An empty answer took the time of the long poll; a refused pop is answered sooner.
    else if (Date.now() - sent >= 1000 * (lease + 1)) {
      journal('drained', JSON.stringify({ queue, ...(group ? { consumerGroup: group } : {}) }), sent, { status: 200, body: '' });
      return;
    }
  }
}

// Waits until pushes that were answered as buffered are stored.
export function waitForSpool() {
  for (let tries = 0; tries < 600; tries += 1) {
    const response = call('buffers', 'GET', '/status/buffers', null, [200]);
    if (response && response.json('pending') === 0) return;
    sleep(0.1);
  }
}

const PAD = 'x'.repeat(60);

// About 100 bytes; `at` is what end-to-end times are measured from.
export function payload(id) {
  return { at: Date.now(), id, pad: PAD };
}

let prepared_ids = 0;

// Where answers may be lost, or say no more than "buffered", only an id of its own tells afterwards what became of a message.
export function name() {
  prepared_ids += 1;
  return CHOSEN || (JOURNAL && TOLERATE) ? { transactionId: `${PREFIX}-${__VU}-${prepared_ids}` } : {};
}

export function messages(queue, count, partitions) {
  return Array.from({ length: count }, (_, n) => ({
    queue,
    partition: `p${partitions > 1 ? Math.floor(Math.random() * partitions) : 0}`,
    payload: payload(n),
    ...name(),
  }));
}
