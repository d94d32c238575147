// Several databases that serve as one: their states, which of them a partition is on, and what is said while one is down.

import { call } from "./api.js";
import { badge, card } from "./dom.js";
import { count, duration, NOTHING } from "./format.js";
import { operations } from "./operations.js";
import { Table } from "./tables.js";

// Ids begin with two digits for their database, which stay.
let names = null;

// A card that is shown if there are several.
export class Databases {
  constructor() {
    this.table = new Table("Databases", [
      { name: "Database", by: (row) => row.name, value: (row) => row.name },
      { name: "State", value: (row) => [badge(row.connected ? "available" : "unavailable", row.connected ? "good" : "bad"), " ", row.state === "active" ? null : badge(row.state, "warn")] },
      { name: "Spooled", number: true, by: (row) => row.spool?.messages ?? 0, value: (row) => count(row.spool?.messages) },
      { name: "Oldest", number: true, wide: true, by: (row) => row.spool?.oldest_age_s ?? 0, value: (row) => (row.spool?.messages ? duration(row.spool.oldest_age_s) : NOTHING) },
      { name: "Set aside", number: true, wide: true, by: (row) => row.spool?.failed ?? 0, value: (row) => count(row.spool?.failed) },
      { name: "Held back", number: true, wide: true, by: (row) => row.spool?.held_partitions ?? 0, value: (row) => count(row.spool?.held_partitions) },
      { name: "List", number: true, by: (row) => row.version ?? 0, value: (row) => (row.version === null ? NOTHING : `version ${row.version}`) },
    ], { key: (row) => row.name, sort: "Database" });
    this.element = card("Databases", this.table.element);
    this.element.hidden = true;
  }

  async refresh() {
    const rows = await call(operations.listDatabases);
    this.element.hidden = !rows.length;
    if (rows.length) this.table.show(rows);
  }
}

// A function from ids of these partitions to the names of their databases, which are empty if there is one only.
export async function homesOf(partitionIds) {
  const slotOf = (id) => Number.parseInt(id.slice(0, 2), 16);
  if (names === null || (names.size && partitionIds.some((id) => !names.has(slotOf(id))))) {
    names = new Map((await call(operations.listDatabases)).map((row) => [row.slot, row.name]));
  }
  return (id) => names.get(slotOf(id)) ?? "";
}

// Those that a health check found to be down.
export function unavailable({ databases = {} }) {
  return Object.entries(databases).filter(([, state]) => state !== "connected").map(([name]) => name);
}

// The text of an error; while one of several databases is down it says which, and what goes on.
export async function explained(error) {
  if (error.problem?.code !== "database_unavailable") return error.message;
  const health = await call(operations.getHealth).catch((failed) => failed.problem ?? {});
  const down = unavailable(health);
  if (!down.length || health.database !== "connected") return error.message;
  return `Database ${down.join(", ")} is unavailable. This page has figures of all databases, so it waits for it. The others go on, and pushes to its partitions are spooled.`;
}
