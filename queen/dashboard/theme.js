// Light or dark theme: that of the system, or the user's choice.

const KEY = "queen.theme";

export const theme = {
  chosen() {
    return localStorage.getItem(KEY) || "auto";
  },

  choose(name) {
    localStorage.setItem(KEY, name);
    this.apply();
    document.dispatchEvent(new Event("theme"));
  },

  apply() {
    document.documentElement.style.colorScheme = { light: "light", dark: "dark" }[this.chosen()] || "light dark";
  },
};
