// One message: payload, details, consumer groups, traces.

import { call } from "../api.js";
import { homesOf } from "../databases.js";
import { badge, card, errorText, facts, fill, h, link, why } from "../dom.js";
import { groupName, json, moment } from "../format.js";
import { operations } from "../operations.js";
import { actions, state } from "./messages.js";
import { leadTo } from "../notices.js";
import { to } from "../router.js";
import { session } from "../session.js";
import { timeline } from "../timeline.js";

export const title = ({ names }) => `Message ${names[1]}`;

export function open(view, { names: [partitionId, transactionId] }, refreshNow) {
  const what = h("div", { class: "actions" });
  const about = h("div");
  const payload = h("pre", { tabindex: "0", role: "group", "aria-label": "Payload" });
  const sealed = h("p");
  const groups = h("div");
  const traces = h("div");
  view.append(what, card("", about), card("Payload", sealed, payload), card("Consumer groups", groups), card("Traces", traces));

  const leave = (queue) => () => leadTo(to("messages", [], { queue }));

  async function refresh() {
    const key = { partitionId, transactionId };
    const [message, recorded, home] = await Promise.all([call(operations.getMessage, key), call(operations.listTracesOfMessage, key), homesOf([partitionId])]);
    fill(what, state(message.status), session.may(operations.deleteMessage) ? actions(message, refreshNow, leave(message.queue)) : null, link("Messages of this queue", to("messages", [], { queue: message.queue })));
    fill(about, facts(known(message, home(partitionId))));
    fill(sealed, message.error ? why(message.error) : null);
    payload.hidden = Boolean(message.error);
    if (payload.textContent !== json(message.payload)) payload.textContent = json(message.payload);
    fill(groups, message.consumerGroups.length ? h("ul", {}, message.consumerGroups.map((each) => group(each, message.queue))) : h("p", { class: "empty" }, "No consumer group has read this queue yet"));
    fill(traces, recorded.traces.length ? timeline(recorded.traces) : h("p", { class: "empty" }, "No traces"));
  }

  return { refresh };
}

function known(message, database) {
  return [
    ["Queue", link(message.queue, to("queues", [message.queue]))], ["Partition", message.partition], ...(database ? [["Database", database]] : []), ["Message id", h("code", {}, message.id)],
    ["Pushed", moment(message.createdAt)], ["Producer", message.producerSub || "–"], ["Trace id", message.traceId || "–"],
    ["Encrypted", message.isEncrypted ? "yes" : "no"], ["Lease until", moment(message.leaseExpiresAt)],
    ...Object.entries(message.headers ?? {}).map(([name, value]) => [`Header ${name}`, value]),
    ...(message.errorMessage ? [["Error", errorText(message.errorMessage)], ["Failed deliveries", String(message.retryCount)]] : []),
  ];
}

const TONES = { completed: ["acknowledged", "good"], processing: ["in flight", "warn"], dead_letter: ["given up", "bad"], pending: ["pending", ""] };

function group({ name, state, failedAt, errorMessage }, queue) {
  return h("li", { "data-key": name },
    link(groupName(name), to("groups", [name], { queue })), " ", badge(...TONES[state]),
    failedAt ? h("div", {}, h("small", {}, moment(failedAt), ": "), errorText(errorMessage)) : null);
}
