// Dialogs. The browser's own <dialog> keeps the focus inside, and Escape closes it. A dialog stays open until its action
// has succeeded: an error is shown in it, and what was typed stays.

import { button, field, fill, h } from "./dom.js";
import { notify } from "./notices.js";

// Asks for values and runs `run(values)`; true after it has succeeded, false if the user cancels. `done`: what is said
// then, a text or a function of the result. `type`: a text that the user must type first. `preview(values)`: what is
// shown of the action before; it is asked for again after each change.
export function ask({ title, text = "", action, fields = [], type = "", danger = Boolean(type), run, done, preview = null }) {
  const all = type ? [...fields, { name: "typed", label: `Type ${type} to confirm`, pattern: type }] : fields;
  return new Promise((resolve) => {
    const inputs = all.map(input);
    const values = () => Object.fromEntries(all.map((each, n) => [each.name, inputs[n].type === "checkbox" ? inputs[n].checked : inputs[n].value]));
    const send = h("button", { type: "submit", class: danger ? "danger" : "primary" }, action);
    const cancel = button("Cancel", () => dialog.close(), { autofocus: danger && !all.length });
    const problem = h("div", { class: "problem", role: "alert", hidden: true });
    const effect = h("div", { class: "effect", role: "status" });
    let busy = false;
    let succeeded = false;

    const check = () => { send.disabled = busy || all.some((each, n) => each.pattern && inputs[n].value !== each.pattern); };
    const show = (error) => {
      problem.textContent = error;
      problem.hidden = !error;
    };
    let asked = 0;
    const foresee = async () => {
      if (!preview) return;
      const number = ++asked;
      const told = await preview(values()).catch((error) => error.message);
      if (number === asked) fill(effect, told);
    };
    const submit = async (event) => {
      event.preventDefault();
      check();
      if (send.disabled || !form.reportValidity()) return;
      show("");
      busy = true;
      check();
      dialog.setAttribute("aria-busy", "true");
      try {
        const result = await run(values());
        succeeded = true;
        dialog.close();
        notify(typeof done === "function" ? done(result) : done);
      } catch (error) {
        show(error.message);
      } finally {
        busy = false;
        dialog.removeAttribute("aria-busy");
        check();
      }
    };
    const form = h("form", {
      novalidate: true, onsubmit: submit, oninput: () => {
        check();
        foresee();
      },
    },
      h("h2", { id: "dialog-title" }, title),
      text ? h("p", {}, text) : null,
      all.map((each, n) => field(each.label, inputs[n])),
      preview ? effect : null, problem,
      h("div", { class: "actions" }, cancel, send));
    const dialog = h("dialog", { "aria-labelledby": "dialog-title" }, form);
    dialog.addEventListener("cancel", (event) => busy && event.preventDefault());
    dialog.addEventListener("close", () => {
      dialog.remove();
      resolve(succeeded);
    });
    document.body.append(dialog);
    check();
    dialog.showModal();
    foresee();
  });
}

function input({ name, type = "text", value = "", options = null, required = false, ...attributes }) {
  if (options) {
    const element = h("select", { name, required }, options.map(([option, text]) => h("option", { value: option }, text)));
    element.value = value || options[0][0];
    return element;
  }
  const tag = type === "textarea" ? "textarea" : "input";
  const element = h(tag, { name, required, autocomplete: "off", spellcheck: "false", ...attributes, pattern: null, label: null });
  if (tag === "input") element.type = type;
  if (type === "checkbox") element.checked = Boolean(value);
  else element.value = value;
  return element;
}
