// load-test.js as `queen bench load simple-mq` runs it: its summary goes as JSON to the file that SUMMARY names.
export { default, options, setup, teardown } from './load-test.js';

export const handleSummary = (data) => ({ [__ENV.SUMMARY]: JSON.stringify(data) });
