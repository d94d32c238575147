// Builds elements. Strings become text nodes, never markup, so a hostile payload is shown as text.

export function h(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) setAttribute(element, name, value);
  element.append(...nodes(children));
  return element;
}

function setAttribute(element, name, value) {
  if (value === null || value === undefined || value === false) return;
  if (typeof value === "function") element.addEventListener(name.slice(2), value);
  else if (name === "style") for (const [property, text] of Object.entries(value)) element.style.setProperty(property, text);
  else element.setAttribute(name, value === true ? "" : value);
}

function nodes(children) {
  return children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false);
}

// Replaces the children of an element. The focus stays on the element with the same data-key, so that a refresh keeps it.
export function fill(element, ...children) {
  const key = element.contains(document.activeElement) ? document.activeElement.dataset.key : undefined;
  element.replaceChildren(...nodes(children));
  if (key) [...element.querySelectorAll("[data-key]")].find((each) => each.dataset.key === key)?.focus();
}

export function button(text, onclick, attributes = {}) {
  return h("button", { type: "button", onclick, ...attributes }, text);
}

export function link(text, href, attributes = {}) {
  return h("a", { href, "data-key": href, ...attributes }, text);
}

export function card(title, ...children) {
  return h("section", { class: "card" }, title ? h("h2", {}, title) : null, children);
}

// A list of names and values.
export function facts(pairs) {
  return h("dl", { class: "facts" }, pairs.map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", {}, value))));
}

// One value in large type.
export function tile(name, value, note = "", tone = "") {
  return h("div", { class: `tile ${tone}` }, h("dt", {}, name), h("dd", {}, value, note ? h("small", {}, note) : null));
}

export function tiles(...children) {
  return h("dl", { class: "tiles" }, children);
}

export function badge(text, tone = "") {
  return h("span", { class: `badge ${tone}` }, text);
}

// The reason why something is not shown: a sentence, too long for a badge.
export function why(text) {
  return h("span", { class: "why" }, text);
}

export function field(label, input) {
  return h("label", { class: "field" }, h("span", {}, label), input);
}

export function select(options, value, attributes = {}) {
  const element = h("select", attributes, options.map(([option, text]) => h("option", { value: option }, text)));
  element.value = value ?? "";
  return element;
}
