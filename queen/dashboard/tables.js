// Sortable tables, and paging.

import { button, fill, h } from "./dom.js";

// A column: `name`, `value(row)` for the cell, `by(row)` if it can be sorted, `number` for numbers, `long` for
// texts of any length, `wide` if small screens do without.
export class Table {
  constructor(caption, columns, { empty = "Nothing found", sort = null, descending = false } = {}) {
    this.columns = columns;
    this.empty = empty;
    this.sorted = sort;
    this.descending = descending;
    this.rows = [];
    this.head = h("tr");
    this.body = h("tbody");
    const table = h("table", {}, h("caption", { class: "hidden" }, caption), h("thead", {}, this.head), this.body);
    this.element = h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": caption }, table);
  }

  show(rows) {
    this.rows = rows;
    fill(this.head, this.columns.map((column) => this.#heading(column)));
    const cells = this.#inOrder().map((row) => h("tr", {}, this.columns.map((column) => cell(column, row))));
    fill(this.body, cells.length ? cells : h("tr", {}, h("td", { colspan: this.columns.length, class: "empty" }, this.empty)));
  }

  #heading(column) {
    const sorted = this.sorted === column.name;
    const direction = sorted ? (this.descending ? "descending" : "ascending") : null;
    const attributes = { scope: "col", class: classes(column), "aria-sort": direction };
    if (!column.by) return h("th", attributes, column.name || h("span", { class: "hidden" }, "Actions"));
    const arrow = sorted ? h("span", { "aria-hidden": "true" }, this.descending ? " ▾" : " ▴") : null;
    return h("th", attributes, h("button", { type: "button", class: "sort", "data-key": `sort ${column.name}`, onclick: () => this.#sortBy(column) }, column.name, arrow));
  }

  #sortBy(column) {
    this.descending = this.sorted === column.name ? !this.descending : Boolean(column.number);
    this.sorted = column.name;
    this.show(this.rows);
  }

  #inOrder() {
    const column = this.columns.find((each) => each.name === this.sorted);
    if (!column) return this.rows;
    const sign = this.descending ? -1 : 1;
    return this.rows.toSorted((a, b) => sign * compare(column.by(a), column.by(b)));
  }
}

function cell(column, row) {
  return h("td", { class: classes(column) }, column.value(row));
}

function classes(column) {
  return [column.number ? "number" : "", column.wide ? "wide" : "", column.long ? "long" : "", column.name ? "" : "does"].join(" ").trim() || null;
}

function compare(a, b) {
  return typeof a === "string" ? a.localeCompare(b) : (a ?? -Infinity) - (b ?? -Infinity);
}

// Previous and next page of a list; `moved(offset)` is called with the new offset.
export class Pager {
  constructor(limit, moved) {
    this.limit = limit;
    this.moved = moved;
    this.element = h("nav", { class: "pager", "aria-label": "Pages of the table" });
  }

  show(offset, length, total = null) {
    const more = total === null ? length === this.limit : offset + length < total;
    const place = length ? `${offset + 1} to ${offset + length}${total === null ? "" : ` of ${total}`}` : "";
    if (!offset && !more) return fill(this.element, total === null || !length ? null : h("span", {}, place));
    fill(this.element,
      button("Previous", () => this.moved(Math.max(0, offset - this.limit)), { disabled: !offset, "data-key": "previous" }),
      h("span", {}, place),
      button("Next", () => this.moved(offset + this.limit), { disabled: !more, "data-key": "next" }));
  }
}
