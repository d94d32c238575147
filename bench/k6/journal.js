// The journal of a run: with JOURNAL=1 a line for each call on the console (docs/journal.md).
//
// A line holds what was sent and answered as it is: `queen bench load` takes it apart after the run, not while it is measured. The
// clock has milliseconds: `answered` is rounded up, so that one call is said to precede another only if it did.
export const JOURNAL = __ENV.JOURNAL === '1';

// What is no JSON does not come from the server: what it did is as unknown as without an answer.
const fromServer = (body) => !body || body[0] === '{' || body[0] === '[';

export function journal(op, request, sent, { status, body }) {
  const known = fromServer(body);
  console.log(
    `{"op":"${op}","vu":${__VU},"sent":${sent},"answered":${Date.now() + 1},"status":${known ? status : 0},` +
      `"request":${request},"response":${(known && body) || 'null'}}`,
  );
}
