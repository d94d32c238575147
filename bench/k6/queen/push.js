// Producers that push BATCH messages a request, as fast as they are answered, to one queue of PARTITIONS partitions.
import { DURATION, PREFIX, configure, grace, messages, number, push, remove, summary, limits, within } from './lib.js';

const BATCH = number('BATCH', 1);
const PARTITIONS = number('PARTITIONS', 1);
const QUEUE = `${PREFIX}-push`;

export const options = {
  scenarios: { producers: { executor: 'constant-vus', vus: number('VUS', 50, 4), duration: DURATION, gracefulStop: grace('30s') } },
  ...limits({ 'http_req_duration{op:push}': within(2000) }),
};

export function setup() {
  configure(QUEUE);
}

export default function producers() {
  // With many partitions each producer has its own where there is one, so that not all of them queue for one head.
  const items = messages(QUEUE, BATCH, PARTITIONS);
  if (PARTITIONS === 1) for (const item of items) item.partition = `p${__VU}`;
  push(items);
}

export function teardown() {
  if (__ENV.KEEP !== '1') remove(QUEUE);
}

export const handleSummary = summary;
