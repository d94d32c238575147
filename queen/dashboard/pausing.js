// Pause and resume queues and consumer groups.

import { call } from "./api.js";
import { badge, button } from "./dom.js";
import { ask } from "./dialogs.js";
import { perform } from "./notices.js";
import { session } from "./session.js";

export const pausedBadge = (paused) => (paused ? badge("paused", "warn") : null);

// What is shown while the queue or group with these names is paused, and the button, if the level allows it.
export function pauseSwitch(operation, names, what, paused, then) {
  const turn = async () => {
    const run = () => call(operation, names, { paused: !paused });
    const ended = paused
      ? await perform(run, `${what} is resumed`)
      : await ask({ title: `Pause ${what}?`, text: "Its consumers get no messages until you resume it. Pushes and acks continue.", action: "Pause", danger: true, run, done: `${what} is paused` });
    if (ended) await then();
  };
  const label = paused ? "Resume" : "Pause";
  return [
    pausedBadge(paused), " ",
    session.may(operation) ? button(label, turn, { class: paused ? "primary" : "", "aria-label": `${label} ${what}`, "data-key": `pause ${what}` }) : null,
  ];
}
