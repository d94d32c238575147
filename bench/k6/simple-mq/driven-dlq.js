// dlq.js as `queen bench load` runs it: its summary goes as JSON to the file that SUMMARY names.
export { default, options } from './dlq.js';

export const handleSummary = (data) => ({ [__ENV.SUMMARY]: JSON.stringify(data) });
