// Consume, transform, produce: each message is acked and its result pushed in one transaction.
import { check } from 'k6';
import { DURATION, PREFIX, configure, drain, grace, messages, number, payload, pop, push, remove, summary, limits, transact, within, workedOff } from './lib.js';

const CONSUMERS = number('VUS', 8, 2);
const BACKLOG = number('BACKLOG', 100000, 200);
const STEP = Math.min(1000, BACKLOG);
const LEASE = 10;
const INPUT = `${PREFIX}-in`;
const OUTPUT = `${PREFIX}-out`;

export const options = {
  setupTimeout: '300s',
  teardownTimeout: '600s',
  scenarios: { pipelines: { executor: 'constant-vus', vus: CONSUMERS, duration: DURATION, gracefulStop: grace('30s') } },
  ...limits({ 'http_req_duration{op:transaction}': within(2000) }),
};

export function setup() {
  configure(INPUT, { leaseTime: LEASE });
  configure(OUTPUT, { leaseTime: LEASE });
  for (let sent = 0; sent < BACKLOG; sent += STEP) {
    const items = messages(INPUT, STEP, 1);
    for (const item of items) item.partition = `p${(sent / STEP) % (2 * CONSUMERS)}`;
    push(items);
  }
}

export default function pipelines() {
  const popped = pop(INPUT, { batch: 50, wait: false });
  if (workedOff(popped)) return;
  popped.ids.forEach((transactionId, n) => {
    const operations = [
      { type: 'ack', transactionId, partitionId: popped.partitions[n], leaseId: popped.lease, status: 'completed' },
      { type: 'push', items: [{ queue: OUTPUT, partition: `p${__VU}`, payload: payload(n) }] },
    ];
    const answer = transact(operations, popped.lease);
    if (answer) check(answer, { 'transaction happened': (r) => r.json('success') === true });
  });
}

export function teardown() {
  drain(INPUT, null, LEASE);
  drain(OUTPUT, null, LEASE);
  if (__ENV.KEEP === '1') return;
  remove(INPUT);
  remove(OUTPUT);
}

export const handleSummary = summary;
