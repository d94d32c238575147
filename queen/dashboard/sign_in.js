// The form that asks for a token.

import { field, h } from "./dom.js";

export function signIn(reason, begin) {
  const input = h("input", { type: "password", name: "token", required: true, autocomplete: "off", spellcheck: "false", autofocus: true });
  const send = h("button", { type: "submit", class: "primary" }, "Sign in");
  const submit = async (event) => {
    event.preventDefault();
    input.disabled = send.disabled = true;
    await begin(input.value.trim());
  };
  return h("main", { class: "sign-in" },
    h("form", { class: "card", onsubmit: submit },
      h("img", { src: "dashboard/icon.svg", alt: "", width: "48", height: "48" }),
      h("h1", {}, "Sign in to Queen"),
      h("p", {}, "This server requires a token. It is kept until you close this tab."),
      reason ? h("p", { class: "problem", role: "alert" }, reason) : null,
      field("Token", input),
      send));
}
