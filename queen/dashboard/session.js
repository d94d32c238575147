// Who uses the page. The token lives as long as the tab, and nowhere else.

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

  // Forgets the token; whoever listens for "signed-out" asks for another one.
  end(reason = "") {
    sessionStorage.removeItem(KEY);
    this.identity = null;
    document.dispatchEvent(new CustomEvent("signed-out", { detail: reason }));
  },

  may(operation) {
    return LEVELS.indexOf(this.identity?.role) >= LEVELS.indexOf(operation.level);
  },
};
