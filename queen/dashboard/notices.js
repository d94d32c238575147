// Short notices at the bottom of the page, announced by screen readers.

import { button, h } from "./dom.js";

const SHOWN_MS = 8000;
const region = h("div", { class: "notices", role: "status", "aria-live": "polite" });
let carried = false;

export function noticeRegion() {
  return region;
}

export function notify(text, tone = "good") {
  const notice = h("div", { class: `notice ${tone}` }, h("span", {}, text), button("Dismiss", () => notice.remove(), { class: "quiet" }));
  region.append(notice);
  setTimeout(() => notice.remove(), SHOWN_MS);
}

// Goes to another page; the notices go along, because the action that they tell of has led there.
export function leadTo(address) {
  carried = true;
  location.hash = address;
}

// A new page is open: what belongs to the last one goes.
export function clearNotices() {
  if (!carried) region.replaceChildren();
  carried = false;
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
