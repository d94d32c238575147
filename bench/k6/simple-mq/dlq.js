// Probe: one delivery, no ack, and the message is a dead letter. Once, or with -e EVERY=15m on a schedule.
import { check, sleep } from 'k6';
import { cleanUp, createQueue, dequeue, describeQueue, enqueue, isUuid, schedule, told } from './common.js';

export const options = schedule();

export default function () {
  const created = createQueue(`synthetic-dlq-${Date.now()}`, 100, 1, 1);
  const queue = told(created).queue_id;
  const made = check(created, {
    'create queue: 201': (response) => response.status === 201,
    'create queue: queue_id': () => Boolean(queue),
  });
  if (!made) return;
  try {
    use(queue);
  } finally {
    // The dead-letter queue can only go after its parent.
    const dlq = told(describeQueue(queue)).dlq_id;
    cleanUp(queue);
    cleanUp(dlq);
  }
}

function use(queue) {
  check(describeQueue(queue), { 'before: dlq_id is null': (response) => told(response).dlq_id === null });
  check(enqueue(queue, 'synthetic-dlq-test-message'), { 'enqueue: 201': (response) => response.status === 201 });
  check(dequeue(queue), {
    'first poll: 200': (response) => response.status === 200,
    'first poll: a message': (response) => Boolean(told(response).message),
  });
  sleep(2);
  check(dequeue(queue), {
    'second poll: 200': (response) => response.status === 200,
    'second poll: null': (response) => told(response).message === null,
  });
  const dlq = told(describeQueue(queue)).dlq_id;
  check(dlq, { 'after: dlq_id is a UUID': () => isUuid(dlq) });
  check(describeQueue(dlq), {
    'dead-letter queue: 200': (response) => response.status === 200,
    'dead-letter queue: count > 0': (response) => told(response).current_message_count > 0,
  });
}
