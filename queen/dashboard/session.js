// The signed-in user. The token is kept in this tab's sessionStorage only.

import { LEVELS } from "./operations.js";

const KEY = "queen.token";

export const session = {
  identity: null,

  get token() {
    return sessionStorage.getItem(KEY);
  },

  begin(token) {
    sessionStorage.setItem(KEY, token);
  },

  // Deletes the token; listeners of "signed-out" ask for another one.
  end(reason = "") {
    sessionStorage.removeItem(KEY);
    this.identity = null;
    document.dispatchEvent(new CustomEvent("signed-out", { detail: reason }));
  },

  may(operation) {
    return LEVELS.indexOf(this.identity?.role) >= LEVELS.indexOf(operation.level);
  },
};
