// What the scripts of simple-mq share. The server: -e BASE_URL=http://127.0.0.1:6632 (the default), -e TOKEN=… if it wants one.
import http from 'k6/http';
import { check } from 'k6';

export const BASE_URL = `${__ENV.BASE_URL || 'http://127.0.0.1:6632'}/api/queues`;
const UUID = /^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$/;

export const isUuid = (text) => UUID.test(text);

function parameters(name) {
  const headers = { 'Content-Type': 'application/json' };
  if (__ENV.TOKEN) headers.Authorization = `Bearer ${__ENV.TOKEN}`;
  return { headers, tags: { name } };
}

/** Runs once, or with -e EVERY=5m (and -e FOR=24h) again and again. */
export function schedule(every = __ENV.EVERY, duration = __ENV.FOR || '24h') {
  const scenario = every
    ? { executor: 'constant-arrival-rate', rate: 1, timeUnit: every, duration, preAllocatedVUs: 1, maxVUs: 2 }
    : { executor: 'shared-iterations', vus: 1, iterations: 1 };
  return {
    scenarios: { probe: scenario },
    // One failed check is a failed probe.
    thresholds: { checks: ['rate==1'], http_req_failed: ['rate==0'] },
  };
}

export const createQueue = (name, size, visibilityTimeout, maxDeliveries) =>
  http.post(
    BASE_URL,
    JSON.stringify({ queueName: name, queueSize: size, visibilityTimeout, maxDeliveries }),
    parameters('create_queue'),
  );
export const describeQueue = (queue) => http.get(`${BASE_URL}/${queue}`, parameters('get_queue'));
export const deleteQueue = (queue) => http.del(`${BASE_URL}/${queue}`, null, parameters('delete_queue'));
export const enqueue = (queue, data) =>
  http.post(`${BASE_URL}/${queue}/messages`, JSON.stringify({ data }), parameters('enqueue'));
export const dequeue = (queue) => http.get(`${BASE_URL}/${queue}/messages`, parameters('dequeue'));
export const ack = (queue, message) => http.del(`${BASE_URL}/${queue}/messages/${message}`, null, parameters('ack'));

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
