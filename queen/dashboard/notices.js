// Short notices at the bottom of the page, announced by screen readers.

import { button, h } from "./dom.js";

const SHOWN_MS = 8000;
const region = h("div", { class: "notices", role: "status", "aria-live": "polite" });

export function noticeRegion() {
  return region;
}

export function notify(text, tone = "good") {
  const notice = h("div", { class: `notice ${tone}` }, h("span", {}, text), button("Dismiss", () => notice.remove(), { class: "quiet" }));
  region.append(notice);
  setTimeout(() => notice.remove(), SHOWN_MS);
}

// Runs an action of the user and reports its outcome.
export async function perform(action, done) {
  try {
    const result = await action();
    notify(typeof done === "function" ? done(result) : done);
    return true;
  } catch (error) {
    notify(error.message, "bad");
    return false;
  }
}
