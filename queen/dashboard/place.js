// What a page shows, kept in its address: a link, a reload and the way back show the same.

export class Place {
  // `query` is that of the page; `prefix` tells the lists of a page apart.
  constructor(query, prefix = "") {
    this.query = query;
    this.prefix = prefix;
  }

  get(name) {
    return this.query.get(this.prefix + name) ?? "";
  }

  // Sets values in the address, without a new page; an empty one is left out.
  set(values) {
    for (const [name, value] of Object.entries(values)) {
      if (value) this.query.set(this.prefix + name, value);
      else this.query.delete(this.prefix + name);
    }
    history.replaceState(history.state, "", location.hash.split("?")[0] + (this.query.size ? `?${this.query}` : ""));
  }
}
