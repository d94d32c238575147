// What the server says of itself, also while PostgreSQL is unavailable.

import { call } from "./api.js";
import { operations } from "./operations.js";

export async function healthOrProblem() {
  try {
    return await call(operations.getHealth);
  } catch (error) {
    if (error.problem?.shared_state) return error.problem;
    throw error;
  }
}
