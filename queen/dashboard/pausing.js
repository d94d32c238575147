// Pause and resume queues and consumer groups.

import { call } from "./api.js";
import { badge, button } from "./dom.js";
import { confirm } from "./dialogs.js";
import { perform } from "./notices.js";
import { session } from "./session.js";

export const pausedBadge = (paused) => (paused ? badge("paused", "warn") : null);

// What is shown while the queue or group with these names is paused, and the button, if the level allows it.
export function pauseSwitch(operation, names, what, paused, then) {
  const turn = async () => {
    const sure = paused || (await confirm({ title: `Pause ${what}?`, text: "Its consumers get no messages until you resume it. Pushes and acks continue.", action: "Pause" }));
    const done = paused ? `${what} is resumed` : `${what} is paused`;
    if (sure && (await perform(() => call(operation, names, { paused: !paused }), done))) await then();
  };
  const label = paused ? "Resume" : "Pause";
  return [
    pausedBadge(paused), " ",
    session.may(operation) ? button(label, turn, { class: paused ? "primary" : "", "aria-label": `${label} ${what}`, "data-key": `pause ${what}` }) : null,
  ];
}
