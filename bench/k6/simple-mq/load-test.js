// Load: 10 users on 15 queues, each enqueue, dequeue, ack on a random one, without a pause, for 3 minutes.
// -e DURATION=30s, -e VUS=10, -e QUEUES=15; -e P95_MS=20 is the limit of the three operations' 95th percentile.
import { check, fail } from 'k6';
import { Counter } from 'k6/metrics';
import { STATISTICS, TAGS, ack, createQueue, deleteQueue, dequeue, enqueue, told } from './common.js';

const QUEUES = Number(__ENV.QUEUES || 15);
// Smoke runs show that all works, not how fast, on machines that may be busy.
const P95 = [`p(95)<${__ENV.P95_MS || (__ENV.SMOKE === '1' ? 60000 : 20)}`];

const pushed = new Counter('messages_pushed');
const delivered = new Counter('messages_delivered');
const acked = new Counter('messages_acked');

export const options = {
  vus: Number(__ENV.VUS || 10),
  duration: __ENV.SMOKE === '1' ? '2s' : __ENV.DURATION || '3m',
  summaryTrendStats: STATISTICS,
  tags: TAGS,
  thresholds: {
    checks: ['rate==1'],
    http_req_failed: ['rate==0'],
    'http_req_duration{op:enqueue}': P95,
    'http_req_duration{op:dequeue}': P95,
    'http_req_duration{op:ack}': P95,
  },
};

const is = (status) => (response) => response.status === status;

export function setup() {
  const queues = [];
  for (let number = 0; number < QUEUES; number += 1) {
    const created = createQueue(`load-test-queue-${number}`, 10000, 30, 3);
    if (!check(created, { 'create queue: 201': is(201) })) fail(`no queue: ${created.status} ${created.body}`);
    queues.push(told(created).queue_id);
  }
  return queues;
}

export default function (queues) {
  const queue = queues[Math.floor(Math.random() * queues.length)];
  if (!check(enqueue(queue, `load-test-message-${Date.now()}`), { 'enqueue: 201': is(201) })) return;
  pushed.add(1);
  const polled = dequeue(queue);
  // Each user has added a message before taking one, so there is one; it may be another user's.
  const { message } = told(polled);
  if (!check(polled, { 'dequeue: 200': is(200), 'dequeue: a message': () => Boolean(message) })) return;
  delivered.add(1);
  if (check(ack(queue, message.message_id), { 'ack: 200': is(200) })) acked.add(1);
}

export function teardown(queues) {
  if (__ENV.KEEP === '1') return;
  for (const queue of queues) check(deleteQueue(queue), { 'delete queue: 200': is(200) });
}
