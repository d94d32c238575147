// The frame around all pages: session, menu, current page, refresh.

import { ApiError, call } from "./api.js";
import { explained, unavailable } from "./databases.js";
import { button, fill, h, select } from "./dom.js";
import { clearNotices, noticeRegion } from "./notices.js";
import { operations } from "./operations.js";
import { page } from "./router.js";
import { session } from "./session.js";
import { signIn } from "./sign_in.js";
import { theme } from "./theme.js";

const REFRESH_MS = 5000;
const PAGES = [
  ["overview", "Overview"], ["queues", "Queues"], ["messages", "Messages"], ["dead-letters", "Dead letters"],
  ["groups", "Consumer groups"], ["traces", "Traces"], ["sqs", "SQS queues"], ["simple", "simple-mq"], ["system", "System"], ["maintenance", "Maintenance"],
];

const root = h("div", { class: "app" });
const health = h("span", { class: "badge", "aria-live": "polite" }, "…");
const problem = h("div", { class: "problem", role: "alert", hidden: true });
const view = h("div", { class: "view", id: "view", tabindex: "-1" });
const loading = h("div", { class: "loading", role: "status", hidden: true }, "Loading…");
const heading = h("h1", { tabindex: "-1" });
const menu = h("nav", { class: "menu", id: "menu", "aria-label": "Pages" });
const user = h("div", { class: "user" });

let current = null;
let busy = false;
let again = false;
let live = true;

async function start() {
  try {
    session.identity = await call(operations.getIdentity);
  } catch (error) {
    if (error.status !== 401) askForToken(error.status === 403 ? "This token has no role that the server knows" : error.message);
    return;
  }
  root.replaceChildren(...frame());
  showUser();
  await open();
}

function frame() {
  const toggle = button("Menu", () => {
    const shown = menu.classList.toggle("shown");
    toggle.setAttribute("aria-expanded", String(shown));
  }, { class: "menu-button", "aria-expanded": "false", "aria-controls": "menu" });
  const pause = button("Live", () => {
    live = !live;
    pause.setAttribute("aria-pressed", String(live));
  }, { class: "live", "aria-pressed": "true", title: `Refreshes every ${REFRESH_MS / 1000} seconds` });
  return [
    h("a", { class: "skip", href: "#view", onclick: (event) => { event.preventDefault(); view.focus(); } }, "Skip to content"),
    h("header", { class: "side" },
      h("div", { class: "brand" }, h("img", { src: "dashboard/icon.svg", alt: "", width: "26", height: "26" }), h("strong", {}, "Queen"), toggle),
      menu, user),
    h("main", { class: "content" },
      h("div", { class: "bar" }, heading, h("div", { class: "actions" }, health, pause, button("Refresh", refresh))),
      loading, problem, view),
    noticeRegion(),
  ];
}

function showUser() {
  const { authentication, sub, role } = session.identity;
  const pick = select([["auto", "System theme"], ["light", "Light"], ["dark", "Dark"]], theme.chosen(), {
    "aria-label": "Colours", onchange: () => theme.choose(pick.value),
  });
  user.replaceChildren(...[
    authentication ? h("p", {}, sub || "Signed in", h("br"), h("small", {}, role)) : h("p", {}, h("small", {}, "No authentication")),
    pick,
    h("a", { href: "docs" }, "HTTP interface"),
    authentication ? button("Sign out", () => session.end()) : null].filter(Boolean));
}

async function open() {
  current?.close?.();
  clearNotices();
  document.querySelectorAll("dialog[open]").forEach((dialog) => dialog.close());
  const { name, title, module, args } = page();
  fill(menu, PAGES.map(([path, text]) => h("a", { href: `#/${path}`, "aria-current": path === name ? "page" : null }, text)));
  menu.classList.remove("shown");
  heading.textContent = title;
  document.title = `${title} – Queen`;
  view.replaceChildren();
  problem.hidden = true;
  current = module.open(view, args, refresh);
  showLoading(true);
  await refresh();
}

// Refreshes the current page. One refresh at a time; a request for another one meanwhile runs after it.
async function refresh() {
  again = busy;
  if (busy || !session.identity) return;
  busy = true;
  const shown = current;
  try {
    await Promise.all([shown.refresh(), showHealth()]);
    if (shown === current) problem.hidden = true;
  } catch (error) {
    if (!(error instanceof ApiError)) throw error;
    const text = await explained(error);
    if (shown === current) showProblem(text);
  } finally {
    busy = false;
    if (shown === current) showLoading(false);
  }
  if (again || shown !== current) await refresh();
}

function showLoading(is) {
  loading.hidden = !is;
  view.setAttribute("aria-busy", String(is));
}

function showProblem(text) {
  if (problem.hidden || problem.textContent !== text) fill(problem, text);
  problem.hidden = false;
}

async function showHealth() {
  const [text, tone] = await judged();
  health.textContent = text;
  health.className = `badge ${tone}`;
}

async function judged() {
  try {
    const health = await call(operations.getHealth);
    const { shared_state: modes, spool, clock } = health;
    const down = unavailable(health);
    if (down.length) return [`Database ${down.join(", ")} unavailable`, "bad"];
    if (modes.maintenance_mode || modes.pop_maintenance_mode) return ["Maintenance", "warn"];
    if (spool?.spooling) return ["Replaying the spool", "warn"];
    if (spool?.held_partitions) return ["Partitions held back", "warn"];
    return clock?.steps && clock.distrusted_s ? ["PostgreSQL's clock stepped", "warn"] : ["Healthy", "good"];
  } catch (error) {
    return error.problem?.database ? ["PostgreSQL unavailable", "bad"] : ["Server unreachable", "bad"];
  }
}

function askForToken(reason) {
  current?.close?.();
  current = null;
  root.replaceChildren(signIn(reason, (token) => {
    session.begin(token);
    return start();
  }), noticeRegion());
}

theme.apply();
document.body.append(root);
document.addEventListener("signed-out", (event) => askForToken(event.detail));
addEventListener("hashchange", async () => {
  if (!session.identity) return;
  await open();
  heading.focus({ preventScroll: true });
  scrollTo(0, 0);
});
setInterval(() => {
  if (live && current?.live !== false && !busy && !document.hidden && !document.querySelector("dialog[open]")) refresh();
}, REFRESH_MS);
await start();
