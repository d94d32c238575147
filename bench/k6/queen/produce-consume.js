// Producers and consumers together. Messages come at a fixed rate whatever the server does (an open model), so that a server that
// falls behind shows as latency and is not spared the requests that it would have delayed. SHAPE=spike triples the rate in the
// middle; SHAPE=max has PRODUCERS that push as fast as they are answered; RETENTION_S removes messages of that age; GROUPS sets how many consumer groups get every message; PAUSE_S is the longest gap that a failover may leave.
import { Rate, Trend } from 'k6/metrics';
import {
  DURATION, PREFIX, SECONDS, SMOKE, ack, configure, drain, grace, messages, number, oneOf, pop, push, remove, slowest, summary, limits,
  waitForSpool,
} from './lib.js';
import { JOURNAL } from '../journal.js';

const RATE = number('RATE', 1000, 50);
const BATCH = number('BATCH', 1);
const POP = number('POP', 100);
const GROUPS = number('GROUPS', 1);
const PARTITIONS = number('PARTITIONS', 20);
const QUEUE = `${PREFIX}-flow`;
const LEASE = 10;
const RETENTION = number('RETENTION_S', 0, undefined, 0);
const SHAPE = oneOf('SHAPE', ['steady', 'spike', 'max']);
const CALLS = Math.max(1, Math.round(RATE / BATCH));
const third = (n) => `${Math.max(1, Math.round(n / 3))}s`;

const shapes = {
  max: { executor: 'constant-vus', vus: number('PRODUCERS', 8, 2), duration: DURATION },
  steady: { executor: 'constant-arrival-rate', rate: CALLS, timeUnit: '1s', duration: DURATION },
  spike: {
    executor: 'ramping-arrival-rate', startRate: CALLS, timeUnit: '1s',
    stages: [
      { target: CALLS, duration: third(SECONDS) }, { target: 3 * CALLS, duration: '1s' },
      { target: 3 * CALLS, duration: third(SECONDS) }, { target: CALLS, duration: '1s' },
      { target: CALLS, duration: third(SECONDS) },
    ],
  },
};

const endToEnd = new Trend('end_to_end_ms', true);
const IN_TIME_MS = slowest(SHAPE === 'max' || __ENV.TOLERATE === '1' ? 1000 * number('PAUSE_S', 30) : 2000);
// The threshold of the slowest one in a hundred. On the trend itself, k6 would sort it every two seconds: millions of messages in a soak.
const inTime = new Rate('end_to_end_in_time');

export const options = {
  teardownTimeout: '600s',
  scenarios: {
    producers: Object.assign(
      { exec: 'produce', gracefulStop: grace('30s') }, SHAPE === 'max' ? {} : { preAllocatedVUs: SMOKE ? 4 : 50, maxVUs: 300 }, shapes[SHAPE],
    ),
    consumers: {
      executor: 'constant-vus', exec: 'consume', vus: number('VUS', 8, 2) * GROUPS, gracefulStop: grace('3s'),
      // Longer than the producers, to take what is left.
      duration: `${SECONDS + (SHAPE === 'spike' ? 6 : 3)}s`,
    },
  },
  ...limits({
    ...(SMOKE || SHAPE === 'max' || __ENV.TOLERATE === '1' ? {} : { dropped_iterations: ['count==0'] }),
    end_to_end_in_time: ['rate>=0.99'],
  }),
};

export function setup() {
  const kept = { retentionEnabled: true, retentionSeconds: RETENTION, completedRetentionSeconds: RETENTION };
  configure(QUEUE, { leaseTime: LEASE, ...(RETENTION ? kept : {}) });
  // A group begins with its first pop: before the first message.
  for (let n = 0; n < GROUPS; n += 1) pop(QUEUE, { consumerGroup: `g${n}`, wait: false });
}

export function produce() {
  push(messages(QUEUE, BATCH, PARTITIONS));
}

export function consume() {
  const group = `g${__VU % GROUPS}`;
  const popped = pop(QUEUE, { batch: POP, partitions: 10, consumerGroup: group, data: true });
  if (!popped) return;
  const now = Date.now();
  for (const data of popped.data) {
    endToEnd.add(now - data.at);
    inTime.add(now - data.at < IN_TIME_MS);
  }
  ack(popped, group);
}

export function teardown() {
  if (JOURNAL) waitForSpool();
  for (let n = 0; n < GROUPS && !RETENTION; n += 1) drain(QUEUE, `g${n}`, LEASE);
  if (__ENV.KEEP !== '1') remove(QUEUE);
}

export const handleSummary = summary;
