// Everything that an audit judges: messages that are pushed twice, pushes that are refused, acks of all kinds, dead letters, transactions,
// two groups, and, as the driver kills PostgreSQL in the middle, answers that are lost and pushes that are buffered. At the end every
// group has taken all, so that what is then missing is lost. Slow on purpose: it is there for the audit, not for figures.
import { sleep } from 'k6';
import {
  DURATION, PREFIX, SECONDS, ack, call, configure, drain, grace, messages, number, payload, pop, push, remove, summary, limits, transact,
  waitForSpool,
} from './lib.js';

const RATE = number('RATE', 100, 20);
const LEASE = 3;
const INPUT = `${PREFIX}-in`;
const OUTPUT = `${PREFIX}-out`;
const GROUP = 'group';

export const options = {
  teardownTimeout: '180s',
  scenarios: {
    producers: {
      executor: 'constant-arrival-rate', exec: 'produce', rate: RATE, timeUnit: '1s', duration: DURATION, preAllocatedVUs: 20, maxVUs: 100,
      gracefulStop: grace('30s'),
    },
    consumers: { executor: 'constant-vus', exec: 'consume', vus: number('VUS', 6, 3), duration: `${SECONDS + 3}s`, gracefulStop: grace('30s') },
  },
  ...limits({}),
};

export function setup() {
  configure(INPUT, { leaseTime: LEASE, retryLimit: 1 });
  configure(OUTPUT, { leaseTime: LEASE, retryLimit: 1 });
  // A group begins with its first pop: before the first message.
  pop(INPUT, { consumerGroup: GROUP, wait: false });
}

const chance = (share) => Math.random() < share;

export function produce() {
  const items = messages(INPUT, 1 + Math.floor(Math.random() * 5), 8);
  push(items);
  if (chance(0.1)) push(items); // duplicates
  if (chance(0.05)) refused();
}

// The server must store nothing of it: the name of its last partition is too long.
function refused() {
  const items = messages(INPUT, 3, 8);
  items[2].partition = 'x'.repeat(300);
  call('push', 'POST', '/push', JSON.stringify({ items }), [400]);
}

export function consume() {
  const group = chance(0.3) ? null : GROUP;
  const popped = pop(INPUT, { batch: 10, partitions: 2, ...(group ? { consumerGroup: group } : {}) });
  if (!popped) return sleep(0.05);
  if (chance(0.3)) return forward(popped, group);
  const first = chance(0.3) ? (chance(0.5) ? 'failed' : 'dlq') : 'completed';
  return ack(popped, group, (n) => (n === 0 ? first : 'completed'));
}

// Consume, transform, produce: once more with the same input, which the server must refuse.
function forward(popped, group) {
  const operations = popped.ids.map((transactionId, n) => ({
    type: 'ack', transactionId, partitionId: popped.partitions[n], leaseId: popped.lease, status: 'completed',
    ...(group ? { consumerGroup: group } : {}),
  }));
  operations.push({ type: 'push', items: [{ queue: OUTPUT, partition: `p${__VU}`, payload: payload(0), transactionId: `${popped.lease}` }] });
  transact(operations, popped.lease);
  if (chance(0.1)) transact(operations, popped.lease);
}

const maintenance = (enabled) => call('maintenance', 'POST', '/system/maintenance', JSON.stringify({ enabled }), [200]);

export function teardown() {
  // A restart of PostgreSQL may be too short for a push to be buffered.
  maintenance(true);
  push(messages(INPUT, 5, 8));
  maintenance(false);
  waitForSpool();
  drain(INPUT, GROUP, LEASE);
  drain(INPUT, null, LEASE);
  drain(OUTPUT, null, LEASE);
  if (__ENV.KEEP === '1') return;
  remove(INPUT);
  remove(OUTPUT);
}

export const handleSummary = summary;
