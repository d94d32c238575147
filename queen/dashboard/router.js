// Maps addresses such as #/queues/orders?offset=100 to pages. Slashes in names are encoded.

import * as deadLetters from "./pages/dead_letters.js";
import * as group from "./pages/group.js";
import * as groups from "./pages/groups.js";
import * as maintenance from "./pages/maintenance.js";
import * as message from "./pages/message.js";
import * as messages from "./pages/messages.js";
import * as overview from "./pages/overview.js";
import * as queue from "./pages/queue.js";
import * as queues from "./pages/queues.js";
import * as simple from "./pages/simple.js";
import * as simpleQueue from "./pages/simple_queue.js";
import * as sqs from "./pages/sqs.js";
import * as sqsQueue from "./pages/sqs_queue.js";
import * as system from "./pages/system.js";
import * as trace from "./pages/trace.js";
import * as traces from "./pages/traces.js";

const MODULES = {
  "overview": overview,
  "queues": queues,
  "queues/1": queue,
  "messages": messages,
  "messages/2": message,
  "dead-letters": deadLetters,
  "groups": groups,
  "groups/1": group,
  "traces": traces,
  "traces/1": trace,
  "sqs": sqs,
  "sqs/1": sqsQueue,
  "simple": simple,
  "simple/1": simpleQueue,
  "system": system,
  "maintenance": maintenance,
};

// The page of the current address; the overview if it is unknown.
export function page() {
  const [path, query] = location.hash.replace(/^#\/?/, "").split("?");
  const [name, ...names] = path.split("/").map(decoded);
  const module = MODULES[names.length ? `${name}/${names.length}` : name];
  const args = { names, query: new URLSearchParams(query) };
  return module ? { name, title: module.title(args), module, args } : { name: "overview", title: overview.title(), module: overview, args: { names: [], query: new URLSearchParams() } };
}

function decoded(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

// The address of a page.
export function to(name, names = [], query = {}) {
  const path = [name, ...names.map(encodeURIComponent)].join("/");
  const wanted = new URLSearchParams(Object.entries(query).filter(([, value]) => value));
  return `#/${path}${wanted.size ? `?${wanted}` : ""}`;
}
