// Dialogs. The browser's own <dialog> keeps the focus inside, and Escape closes it.

import { button, field, h } from "./dom.js";

// Asks for confirmation; `type` is a text that the user must type first.
export async function confirm({ title, text, action, type = "" }) {
  const fields = type ? [{ name: "typed", label: `Type ${type} to confirm`, pattern: type }] : [];
  return (await ask({ title, text, action, fields, danger: true })) !== null;
}

// Asks for values; null if the user cancels.
export function ask({ title, text = "", action, fields = [], danger = false }) {
  return new Promise((resolve) => {
    const inputs = fields.map(input);
    const send = h("button", { type: "submit", class: danger ? "danger" : "primary" }, action);
    const form = h("form", { novalidate: true },
      h("h2", { id: "dialog-title" }, title),
      text ? h("p", {}, text) : null,
      fields.map((each, n) => field(each.label, inputs[n])),
      h("div", { class: "actions" }, button("Cancel", () => dialog.close(), { autofocus: danger && !fields.length }), send));
    const dialog = h("dialog", { "aria-labelledby": "dialog-title" }, form);
    let answer = null;
    const check = () => { send.disabled = fields.some((each, n) => each.pattern && inputs[n].value !== each.pattern); };
    form.addEventListener("input", check);
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      check();
      if (send.disabled || !form.reportValidity()) return;
      answer = Object.fromEntries(fields.map((each, n) => [each.name, inputs[n].type === "checkbox" ? inputs[n].checked : inputs[n].value]));
      dialog.close();
    });
    dialog.addEventListener("close", () => {
      dialog.remove();
      resolve(answer);
    });
    document.body.append(dialog);
    check();
    dialog.showModal();
  });
}

function input({ name, type = "text", value = "", options = null, required = false, ...attributes }) {
  if (options) {
    const element = h("select", { name }, options.map(([option, text]) => h("option", { value: option }, text)));
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
