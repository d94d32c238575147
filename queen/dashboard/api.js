// Requests to the server, with the user's token, and its errors.

import { session } from "./session.js";

// In a path they are steps for a browser, however they are encoded.
const DOTS = new Set([".", ".."]);

export class ApiError extends Error {
  constructor(status, problem) {
    super(problem.detail || problem.error || problem.title || `The server answered ${status}`);
    this.status = status;
    this.problem = problem;
  }
}

// Calls an operation of operations.js. Parameters that its path names stand there, all others in the query, those of a list once
// for each element; a body that is a text is JSON already.
export async function call(operation, parameters = {}, body = undefined) {
  const response = await send(operation, parameters, body);
  const text = await response.text();
  const answer = isJson(response) ? parse(text) : text;
  if (response.ok) return answer;
  if (response.status === 401) session.end(answer.error || "Sign in again");
  throw new ApiError(response.status, answer || {});
}

async function send(operation, parameters, body) {
  const headers = {};
  if (session.token) headers.Authorization = `Bearer ${session.token}`;
  if (body !== undefined) headers["Content-Type"] = "application/json";
  const request = { method: operation.method, headers, body: typeof body === "object" ? JSON.stringify(body) : body, cache: "no-store" };
  const place = address(operation, parameters);
  try {
    return await fetch(place, request);
  } catch {
    throw new ApiError(0, { error: "The server does not answer" });
  }
}

function address(operation, parameters) {
  const rest = { ...parameters };
  const path = operation.path.replace(/\{(\w+)\}/g, (_, name) => {
    const value = rest[name];
    delete rest[name];
    if (DOTS.has(value)) throw new ApiError(0, { error: `A browser cannot ask for a name that is ${value} alone: the command line reaches it (queen --help)` });
    return encodeURIComponent(value);
  });
  const each = Object.entries(rest).flatMap(([name, value]) => (Array.isArray(value) ? value : [value]).map((one) => [name, one]));
  const query = new URLSearchParams(each.filter(([, value]) => value !== "" && value !== null && value !== undefined));
  return path.slice(1) + (query.size ? `?${query}` : "");
}

function isJson(response) {
  return (response.headers.get("Content-Type") || "").includes("json");
}

// Integers that a number of JavaScript cannot hold are shown as they were sent, where the browser is new enough.
function parse(text) {
  return JSON.parse(text, (_, value, context) =>
    Number.isInteger(value) && !Number.isSafeInteger(value) && JSON.rawJSON && context ? JSON.rawJSON(context.source) : value);
}
