// What the scripts of simple-mq share. The server: -e BASE_URL=http://127.0.0.1:6632 (the default), -e TOKEN=… if it wants one.
// Under `queen bench load`, settings come as for Queen's scripts: QUEEN_URL, QUEEN_TOKEN, JOURNAL=1 (one line a call on the console), KEEP=1
// (queues stay for the audit), SMOKE=1, SUMMARY (file for the summary).
import http from 'k6/http';
import { check } from 'k6';
import { Gauge } from 'k6/metrics';
import { JOURNAL, journal } from '../journal.js';

export const BASE_URL = `${__ENV.BASE_URL || __ENV.QUEEN_URL || 'http://127.0.0.1:6632'}/api/queues`;
const UUID = /^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$/;
const HEADERS = { 'Content-Type': 'application/json' };
const TOKEN = __ENV.TOKEN || __ENV.QUEEN_TOKEN;
if (TOKEN) HEADERS.Authorization = `Bearer ${TOKEN}`;

// Of all figures, for who sends them elsewhere (k6 run --out).
export const TAGS = { interface: 'simple-mq', load: __ENV.SCENARIO || 'by hand', server: __ENV.SERVER || 'queen' };

export const STATISTICS = ['count', 'min', 'avg', 'med', 'p(90)', 'p(95)', 'p(99)', 'p(99.9)', 'max'];
// They always hold: k6 reports the times of an operation only if there is a threshold on it.
const SHOWN = Object.fromEntries(['enqueue', 'dequeue', 'ack'].map((op) => [`http_req_duration{op:${op}}`, ['max>=0']]));

const moment = new Gauge('moment_ms');

export const isUuid = (text) => UUID.test(text);

// `request` is what the journal needs to know beside the body.
function call(op, method, path, body, request) {
  const sent = Date.now();
  const response = http.request(method, BASE_URL + path, body && JSON.stringify(body), {
    headers: HEADERS,
    tags: { name: op, op },
  });
  // When the load itself, without setup and teardown (VU 0), began and ended.
  if (__VU > 0) moment.add(Date.now());
  if (JOURNAL) journal(`simple_mq_${op}`, JSON.stringify({ ...request, ...body }), sent, response);
  return response;
}

/** Runs once, or with -e EVERY=5m (and -e FOR=24h) again and again. */
export function schedule(every = __ENV.EVERY, duration = __ENV.FOR || '24h') {
  const scenario = every
    ? { executor: 'constant-arrival-rate', rate: 1, timeUnit: every, duration, preAllocatedVUs: 1, maxVUs: 2 }
    : { executor: 'shared-iterations', vus: 1, iterations: 1 };
  return {
    scenarios: { probe: scenario },
    tags: TAGS,
    summaryTrendStats: STATISTICS,
    // One failed check is a failed probe.
    thresholds: { checks: ['rate==1'], http_req_failed: ['rate==0'], ...SHOWN },
  };
}

export const createQueue = (name, size, visibilityTimeout, maxDeliveries) =>
  call('create_queue', 'POST', '', { queueName: name, queueSize: size, visibilityTimeout, maxDeliveries });
export const describeQueue = (queue) => call('get_queue', 'GET', `/${queue}`, null, { queue });
export const deleteQueue = (queue) => call('delete_queue', 'DELETE', `/${queue}`, null, { queue });
export const enqueue = (queue, data) => call('enqueue', 'POST', `/${queue}/messages`, { data }, { queue });
export const dequeue = (queue) => call('dequeue', 'GET', `/${queue}/messages`, null, { queue });
export const ack = (queue, message) => call('ack', 'DELETE', `/${queue}/messages/${message}`, null, { queue, message });

/** The body of an answer as an object; an empty one if there is none. */
export function told(response) {
  try {
    return response.json() || {};
  } catch (_) {
    return {};
  }
}

/** Checks the deletion of a queue that was made; does nothing without one. */
export function cleanUp(queue) {
  if (queue) check(deleteQueue(queue), { 'delete queue: 200': (response) => response.status === 200 });
}
