// Thousands of idle consumers, each on a queue of its own, and one producer that wakes one after the other.
import { Trend } from 'k6/metrics';
import { sleep } from 'k6';
import { DURATION, PREFIX, SMOKE, number, payload, pop, push, remove, summary, limits, within } from './lib.js';

const WAITERS = number('VUS', 2000, 20);
const WAKES = number('RATE', 50, 10);

const woken = new Trend('woken_after_ms', true);

export const options = {
  teardownTimeout: '300s',
  scenarios: {
    waiters: { executor: 'constant-vus', exec: 'wait', vus: WAITERS, duration: DURATION, gracefulStop: '10s' },
    producer: {
      executor: 'constant-arrival-rate', exec: 'wake', rate: WAKES, timeUnit: '1s', duration: DURATION,
      startTime: SMOKE ? '0s' : '5s', preAllocatedVUs: 5, maxVUs: 50,
    },
  },
  ...limits({ woken_after_ms: within(500) }),
};

const queue = (n) => `${PREFIX}-idle-${n}`;

export function wait() {
  const popped = pop(queue(__VU % WAITERS), { timeout: SMOKE ? 1000 : 30000, autoAck: true, data: true });
  if (popped) woken.add(Date.now() - popped.data[0].at);
  else sleep(0.01);
}

export function wake() {
  push([{ queue: queue(Math.floor(Math.random() * WAITERS)), payload: payload(0) }]);
}

export function teardown() {
  if (__ENV.KEEP === '1') return;
  for (let n = 0; n < WAITERS; n += 1) remove(queue(n));
}

export const handleSummary = summary;
