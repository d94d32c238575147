// Tables, sorted here or by the server, and paging.

import { button, fill, h } from "./dom.js";
import { count } from "./format.js";

// A column: `name`, `value(row)` for the cell, `number` for numbers, `long` for texts of any length, `wide` if small
// screens do without. It can be sorted if it has `by(row)`, or, in a List, `order`: what the server calls it.
// `head()` is what stands above it instead of its name. `key(row)` tells rows apart, so that a refresh changes only what differs.
export class Table {
  constructor(caption, columns, { empty = "Nothing found", sort = null, descending = false, key = null, chosen = null } = {}) {
    Object.assign(this, { columns, empty, key, chosen, sorted: sort, descending });
    this.rows = [];
    this.head = h("tr");
    this.body = h("tbody", {}, h("tr", {}, h("td", { colspan: columns.length, class: "empty" }, "Loading…")));
    const table = h("table", {}, h("caption", { class: "hidden" }, caption), h("thead", {}, this.head), this.body);
    this.element = h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": caption }, table);
  }

  show(rows) {
    this.rows = rows;
    fill(this.head, this.columns.map((column) => this.#heading(column)));
    const cells = this.#inOrder().map((row) => h("tr", { "data-key": this.key?.(row) }, this.columns.map((column) => cell(column, row))));
    fill(this.body, cells.length ? cells : h("tr", {}, h("td", { colspan: this.columns.length, class: "empty" }, this.empty)));
  }

  #heading(column) {
    const sorted = this.sorted === column.name;
    const direction = sorted ? (this.descending ? "descending" : "ascending") : null;
    const attributes = { scope: "col", class: classes(column), "aria-sort": direction };
    if (column.head) return h("th", attributes, column.head());
    if (!column.by && !column.order) return h("th", attributes, column.name || h("span", { class: "hidden" }, "Actions"));
    const arrow = sorted ? h("span", { "aria-hidden": "true" }, this.descending ? " ▾" : " ▴") : null;
    return h("th", attributes, h("button", { type: "button", class: "sort", "data-key": `sort ${column.name}`, onclick: () => this.#sortBy(column) }, column.name, arrow));
  }

  #sortBy(column) {
    this.descending = this.sorted === column.name ? !this.descending : Boolean(column.number);
    this.sorted = column.name;
    if (this.chosen) this.chosen(column, this.descending);
    else this.show(this.rows);
  }

  #inOrder() {
    const column = this.columns.find((each) => each.name === this.sorted);
    if (!column?.by) return this.rows;
    const sign = this.descending ? -1 : 1;
    return this.rows.toSorted((a, b) => sign * compare(column.by(a), column.by(b)));
  }
}

// A table whose order, search and pages are the server's. What it shows is in the address (`place`), so that a link, a
// reload and the way back show the same. `refresh` asks the server again.
export class List {
  constructor(caption, columns, { place, limit, refresh, order = null, empty, key }) {
    Object.assign(this, { place, limit, refresh, columns });
    this.order = order;
    const column = columns.find((each) => each.order && each.order === (place.get("order") || order));
    this.table = new Table(caption, columns, {
      empty, key, sort: column?.name, descending: column && Boolean(column.number) !== Boolean(place.get("reverse")),
      chosen: (chosen, descending) => this.#go({ order: chosen.order === order ? "" : chosen.order, reverse: descending === Boolean(chosen.number) ? "" : "true", offset: "" }),
    });
    this.pager = new Pager(limit, (offset) => this.#go({ offset }), caption);
    this.elements = [this.table.element, this.pager.element];
  }

  // The parameters of the request.
  wanted() {
    return { order: this.place.get("order") || this.order, reverse: this.place.get("reverse"), limit: this.limit, offset: this.place.get("offset") || 0 };
  }

  // A field that asks the server for what its input says, from the first page on.
  search(input, name = "search") {
    const box = input.type === "checkbox";
    if (box) input.checked = Boolean(this.place.get(name));
    else input.value = this.place.get(name);
    input.oninput = () => this.#go({ [name]: box ? (input.checked ? "true" : "") : input.value, offset: "" });
    return input;
  }

  // `total`: how many there are; null if nobody knows.
  show(rows, total = null) {
    const offset = Number(this.place.get("offset") || 0);
    this.table.show(rows);
    this.pager.show(offset, rows.length, total);
    // The last rows of the last page are gone.
    if (!rows.length && offset) this.#go({ offset: Math.max(0, offset - this.limit) });
  }

  // What a search found that looks at so many rows at a time; `next`: the offset at which it can go on, or null.
  showFound(rows, searched, next) {
    const offset = Number(this.place.get("offset") || 0);
    this.table.show(rows);
    fill(this.pager.element,
      offset ? button("Newest", () => this.#go({ offset: "" }), { "data-key": "newest" }) : null,
      h("span", {}, `${count(rows.length)} found among ${count(searched)}${offset ? `, from the ${count(offset + 1)}. on` : ""}`),
      next === null ? null : button("Search further back", () => this.#go({ offset: next }), { "data-key": "further" }));
  }

  #go(values) {
    this.place.set(values);
    return this.refresh();
  }
}

function cell(column, row) {
  return h("td", { class: classes(column) }, column.value(row));
}

function classes(column) {
  return [column.number ? "number" : "", column.wide ? "wide" : "", column.long ? "long" : "", column.head ? "pick" : "", column.name ? "" : "does"].join(" ").trim() || null;
}

function compare(a, b) {
  return typeof a === "string" ? a.localeCompare(b) : (a ?? -Infinity) - (b ?? -Infinity);
}

// Previous and next page of a list; `moved(offset)` is called with the new offset.
export class Pager {
  constructor(limit, moved, what = "the table") {
    this.limit = limit;
    this.moved = moved;
    this.element = h("nav", { class: "pager", "aria-label": `Pages of ${what}` });
  }

  show(offset, length, total = null) {
    const more = total === null ? length === this.limit : offset + length < total;
    const place = length ? `${count(offset + 1)} to ${count(offset + length)}${total === null ? "" : ` of ${count(total)}`}` : "";
    if (!offset && !more) return fill(this.element, total === null || !length ? null : h("span", {}, place));
    fill(this.element,
      button("Previous", () => this.moved(Math.max(0, offset - this.limit)), { disabled: !offset, "data-key": "previous" }),
      h("span", {}, place),
      button("Next", () => this.moved(offset + this.limit), { disabled: !more, "data-key": "next" }));
  }
}

// The pages of a list whose pages the server names: it can be followed to the end, and begun again.
export class After {
  constructor(place, refresh, what) {
    this.place = place;
    this.refresh = refresh;
    this.element = h("nav", { class: "pager", "aria-label": `Pages of ${what}` });
  }

  // What the request asks with; undefined for the first page.
  get token() {
    return this.place.get("after") || undefined;
  }

  show(next) {
    const go = (after) => () => {
      this.place.set({ after });
      return this.refresh();
    };
    fill(this.element,
      this.token || next ? button("First page", go(""), { disabled: !this.token, "data-key": "first" }) : null,
      this.token || next ? button("Next", go(next), { disabled: !next, "data-key": "next" }) : null);
  }
}
