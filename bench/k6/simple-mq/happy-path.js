// Probe: create, enqueue, dequeue, ack, delete. Once, or with -e EVERY=5m on a schedule.
import { check } from 'k6';
import { ack, cleanUp, createQueue, dequeue, enqueue, isUuid, schedule, told } from './common.js';

export const options = schedule();
const DATA = 'synthetic-test-message';

export default function () {
  const created = createQueue(`synthetic-happy-${Date.now()}`, 100, 30, 3);
  const queue = told(created).queue_id;
  const made = check(created, {
    'create queue: 201': (response) => response.status === 201,
    'create queue: queue_id is a UUID': () => isUuid(queue),
  });
  if (!made) return;
  try {
    use(queue);
  } finally {
    cleanUp(queue);
  }
}

function use(queue) {
  const stored = enqueue(queue, DATA);
  const id = told(stored).message_id;
  check(stored, {
    'enqueue: 201': (response) => response.status === 201,
    'enqueue: message_id is a UUID': () => isUuid(id),
  });
  const polled = dequeue(queue);
  const message = told(polled).message;
  check(polled, {
    'dequeue: 200': (response) => response.status === 200,
    'dequeue: the message': () => message && message.message_id === id,
    'dequeue: its data': () => message && message.data === DATA,
    'dequeue: hidden from now on': () => message && new Date(`${message.invisible_until}Z`) > new Date(),
  });
  check(ack(queue, id), { 'ack: 200': (response) => response.status === 200 });
}
