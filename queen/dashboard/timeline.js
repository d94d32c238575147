// Traces over time: a picture with one row per message, and the same as a list, newest first, errors in red.

import { button, h, link } from "./dom.js";
import { duration, groupName, json, moment } from "./format.js";
import { to } from "./router.js";

const ONE_LINE = 120;

// `traces` are sorted, oldest first. Traces of a single message have no message name.
export function timeline(traces) {
  const times = traces.map((trace) => Date.parse(trace.created_at));
  const begin = times[0];
  const length = Math.max(times.at(-1) - begin, 1);
  const entries = traces.map((trace, n) => entry(trace, (times[n] - begin) / 1000)).reverse();
  const dot = (trace) => {
    const n = traces.indexOf(trace);
    const label = `${trace.event_type} after ${duration((times[n] - begin) / 1000)}`;
    return button("", () => reveal(trace), { class: wrong(trace) ? "dot bad" : "dot", style: { left: `${(100 * (times[n] - begin)) / length}%` }, "aria-label": label, title: label, "data-key": `dot ${trace.id}` });
  };
  const lanes = [...grouped(traces)].map(([name, own]) => h("div", { class: "lane" }, h("code", { title: name }, name || "This message"), h("div", { class: "track" }, own.map(dot))));
  return [
    h("div", { class: "lanes", role: "group", "aria-label": "Traces over time" }, lanes),
    h("p", {}, h("small", {}, `${traces.length} traces over ${duration(length / 1000)}, from ${moment(traces[0].created_at)}`)),
    h("ol", { class: "events" }, entries),
  ];
}

function grouped(traces) {
  const lanes = new Map();
  for (const trace of traces) {
    const name = trace.transaction_id ?? "";
    lanes.set(name, [...(lanes.get(name) ?? []), trace]);
  }
  return lanes;
}

function entry(trace, seconds) {
  const message = trace.transaction_id ? link(trace.transaction_id, to("messages", [trace.partition_id, trace.transaction_id])) : null;
  return h("li", { tabindex: "-1", id: place(trace), "data-key": place(trace), class: wrong(trace) ? "bad" : null },
    h("strong", {}, trace.event_type), ` +${duration(seconds)} `,
    h("small", {}, moment(trace.created_at), ` · ${groupName(trace.consumer_group)} · worker ${trace.worker_id}`),
    message ? h("div", {}, message, h("small", {}, ` ${trace.queue_name} / ${trace.partition_name}`)) : null,
    recorded(trace.data));
}

// On one line if it fits.
function recorded(data) {
  const short = JSON.stringify(data);
  return short.length <= ONE_LINE ? h("div", {}, h("code", {}, short)) : h("pre", { tabindex: "0", role: "group", "aria-label": "Trace data" }, json(data));
}

const place = (trace) => `trace-${trace.id}`;

// Whether a trace tells of an error, by its event or its data.
function wrong({ event_type: event, data }) {
  return /error|fail|exception|dead/i.test(event) || Boolean(data && typeof data === "object" && (data.error || data.exception));
}

function reveal(trace) {
  const element = document.getElementById(place(trace));
  element.scrollIntoView({ block: "nearest" });
  element.focus();
}
