// HTTP requests to the server with the user's token, and errors.

import { session } from "./session.js";

// A browser resolves these path segments, even percent-encoded.
const DOTS = new Set([".", ".."]);

export class ApiError extends Error {
  constructor(status, problem) {
    super(problem.detail || problem.error || problem.message || problem.title || `The server answered ${status}`);
    this.status = status;
    this.problem = problem;
  }
}

// Calls an operation of operations.js. Parameters named in its path go there, all others into the query, a list as one
// parameter per element. A body that is a string is already JSON; `more`: headers.
export async function call(operation, parameters = {}, body = undefined, more = {}) {
  return (await ask(operation, parameters, body, more)).answer;
}

// The same for a list that is an array: its elements, and how many there are.
export async function callList(operation, parameters) {
  const { answer, response } = await ask(operation, parameters);
  return [answer, Number(response.headers.get("X-Total-Count"))];
}

async function ask(operation, parameters, body, more) {
  const token = session.token;
  const response = await send(operation, parameters, body, more);
  const text = await response.text();
  const answer = isJson(response) ? parse(text) : text;
  if (response.ok) return { answer, response };
  if (response.status === 401 && token === session.token) session.end(answer.error || answer.message || "Please sign in again");
  throw new ApiError(response.status, answer || {});
}

async function send(operation, parameters, body, more) {
  const headers = { ...more };
  if (session.token) headers.Authorization = `Bearer ${session.token}`;
  if (body !== undefined) headers["Content-Type"] = "application/json";
  const request = { method: operation.method, headers, body: typeof body === "object" ? JSON.stringify(body) : body, cache: "no-store" };
  const place = address(operation, parameters);
  try {
    return await fetch(place, request);
  } catch {
    throw new ApiError(0, { error: "The server is unreachable" });
  }
}

function address(operation, parameters) {
  const rest = { ...parameters };
  const path = operation.path.replace(/\{(\w+)\}/g, (_, name) => {
    const value = rest[name];
    delete rest[name];
    if (DOTS.has(value)) throw new ApiError(0, { error: `A browser cannot request the name "${value}". Use the command line for it (queen --help).` });
    return encodeURIComponent(value);
  });
  const each = Object.entries(rest).flatMap(([name, value]) => (Array.isArray(value) ? value : [value]).map((one) => [name, one]));
  const query = new URLSearchParams(each.filter(([, value]) => value !== "" && value !== null && value !== undefined));
  return path.slice(1) + (query.size ? `?${query}` : "");
}

function isJson(response) {
  return (response.headers.get("Content-Type") || "").includes("json");
}

// Integers beyond JavaScript's precision are shown as sent, if the browser is new enough.
function parse(text) {
  return JSON.parse(text, (_, value, context) =>
    Number.isInteger(value) && !Number.isSafeInteger(value) && JSON.rawJSON && context ? JSON.rawJSON(context.source) : value);
}
