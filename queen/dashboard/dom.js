// Builds elements, and brings a page up to date in place. Strings become text nodes, never markup, so a hostile payload
// is shown as text.

export function h(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) setAttribute(element, name, value);
  element.append(...nodes(children));
  return element;
}

// The names of what listens to the events of an element. They are properties, so that `fill` can hand them on.
const handlers = new WeakMap();

function setAttribute(element, name, value) {
  if (value === null || value === undefined || value === false) return;
  if (typeof value === "function") {
    element[name] = value;
    handlers.set(element, [...(handlers.get(element) ?? []), name]);
  }
  else if (name === "style") for (const [property, text] of Object.entries(value)) element.style.setProperty(property, text);
  else element.setAttribute(name, value === true ? "" : value);
}

function nodes(children) {
  return children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false);
}

// Elements that their page keeps and changes itself: `fill` moves them, and never makes one of them from another.
const lasting = new WeakSet();

export function keep(element) {
  lasting.add(element);
  return element;
}

// Gives an element these children. What is alike stays and is changed where it differs: focus, selection, scrolling and
// open details stay, too. Rows and buttons are known again by their data-key.
export function fill(element, ...children) {
  const focused = element.contains(document.activeElement) ? document.activeElement : null;
  const fresh = nodes(children).map((child) => (child instanceof Node ? child : document.createTextNode(String(child))));
  reconcile(element, fresh);
  if (!focused || document.activeElement === focused) return;
  const key = focused.dataset.key;
  const place = focused.isConnected ? focused : key && [...element.querySelectorAll("[data-key]")].find((each) => each.dataset.key === key);
  if (place) place.focus();
}

const keyOf = (node) => (node.nodeType === Node.ELEMENT_NODE ? node.getAttribute("data-key") : null);

function reconcile(parent, fresh) {
  let keyed = null;
  let at = parent.firstChild;
  for (const node of fresh) {
    const key = keyOf(node);
    let known = at;
    if (key && !(at && keyOf(at) === key)) {
      keyed ??= new Map([...parent.children].map((child) => [keyOf(child), child]));
      known = keyed.get(key);
    }
    if (known && known.parentNode === parent && alike(known, node)) {
      if (known === at) at = at.nextSibling;
      else parent.insertBefore(known, at);
      patch(known, node);
    } else {
      if (node === at) at = at.nextSibling;
      parent.insertBefore(node, at);
    }
  }
  while (at) {
    const next = at.nextSibling;
    at.remove();
    at = next;
  }
}

function alike(old, node) {
  return old === node || (old.nodeName === node.nodeName && keyOf(old) === keyOf(node) && !lasting.has(old) && !lasting.has(node));
}

function patch(old, node) {
  if (old === node) return;
  if (old.nodeType === Node.TEXT_NODE) {
    if (old.data !== node.data) old.data = node.data;
    return;
  }
  for (const { name } of [...old.attributes]) if (!node.hasAttribute(name) && name !== "open" && name !== "style") old.removeAttribute(name);
  for (const { name, value } of node.attributes) if (name !== "style" && old.getAttribute(name) !== value) old.setAttribute(name, value);
  // The policy of the page forbids the attribute.
  if (old.hasAttribute("style") || node.hasAttribute("style")) old.style.cssText = node.style.cssText;
  for (const name of new Set([...(handlers.get(old) ?? []), ...(handlers.get(node) ?? [])])) old[name] = node[name];
  if (handlers.has(node)) handlers.set(old, handlers.get(node));
  if (old.type === "checkbox") old.checked = node.checked;
  if (old.firstChild || node.firstChild) reconcile(old, [...node.childNodes]);
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

// One value in large type; `href`: where there is more about it.
export function tile(name, value, note = "", tone = "", href = null) {
  return h("div", { class: `tile ${tone}` }, h("dt", {}, href ? link(name, href) : name), h("dd", {}, value, note ? h("small", {}, note) : null));
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

// An error text. Of several lines, such as a traceback, the last one says what happened; the others can be unfolded.
export function errorText(text) {
  const lines = (text || "–").trimEnd().split("\n");
  if (lines.length === 1) return lines[0];
  return h("details", { class: "error" }, h("summary", {}, lines.at(-1).trim() || lines[0]), h("pre", { tabindex: "0", role: "group", "aria-label": "Error" }, text));
}

export function field(label, input) {
  return h("label", { class: "field" }, h("span", {}, label), input);
}

export function select(options, value, attributes = {}) {
  const element = h("select", attributes, options.map(([option, text]) => h("option", { value: option }, text)));
  element.value = value ?? "";
  return element;
}
