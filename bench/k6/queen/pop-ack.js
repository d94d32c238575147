// Consumers that pop BATCH messages and ack them, over a BACKLOG that is pushed first. Where it is done before the time is, that is the end
// of the load.
import { DURATION, PREFIX, ack, configure, grace, messages, number, pop, push, remove, summary, limits, within, workedOff } from './lib.js';

const BATCH = number('BATCH', 1);
const CONSUMERS = number('VUS', 8, 2);
const BACKLOG = number('BACKLOG', 100000, 500);
const STEP = Math.min(1000, BACKLOG);
const QUEUE = `${PREFIX}-pop`;

export const options = {
  setupTimeout: '300s',
  scenarios: { consumers: { executor: 'constant-vus', vus: CONSUMERS, duration: DURATION, gracefulStop: grace('30s') } },
  ...limits({ 'http_req_duration{op:pop}': within(4000), 'http_req_duration{op:ack}': within(2000) }),
};

export function setup() {
  configure(QUEUE, { leaseTime: 60 });
  for (let sent = 0; sent < BACKLOG; sent += STEP) {
    const items = messages(QUEUE, STEP, 1);
    for (const item of items) item.partition = `p${(sent / STEP) % (2 * CONSUMERS)}`;
    push(items);
  }
}

export default function consumers() {
  const popped = pop(QUEUE, { batch: BATCH, wait: false });
  if (!workedOff(popped)) ack(popped);
}

export function teardown() {
  if (__ENV.KEEP !== '1') remove(QUEUE);
}

export const handleSummary = summary;
