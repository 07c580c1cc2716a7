// Who looks at the page: a token, kept for as long as the tab is open, and the dialog that asks for one.
import { byId, h } from "./elements.js";

const KEY = "duckicelake.token";

/** @type {Promise<void> | null} */
let asking = null;

/** @returns {string | null} */
export function token() {
  return sessionStorage.getItem(KEY);
}

/** Drop this token, unless another has taken its place. @param {string | null} known */
export function forget(known = token()) {
  if (token() === known) sessionStorage.removeItem(KEY);
}

/**
 * Ask who is there; done once there is a token. Whoever asks meanwhile waits for the same answer.
 * @param {string} reason why it is asked again; empty the first time
 */
export function signIn(reason) {
  asking ??= new Promise((resolve) => open(reason, resolve)).then(() => {
    asking = null;
  });
  return asking;
}

/** @param {string} reason @param {(done: void) => void} resolve */
function open(reason, resolve) {
  const dialog = byId("sign-in", HTMLDialogElement);
  const trouble = h("p", { class: "trouble", role: "alert" }, reason);
  const submit = h("button", { class: "primary" }, "Sign in");
  const form = h(
    "form",
    {},
    h("h2", { id: "sign-in-title" }, "Who are you?"),
    h("p", {}, "This catalog shows lineage to those whom it knows, as far as they may read."),
    trouble,
    h("label", {}, "Client id", h("input", { name: "id", autocomplete: "username", autofocus: true })),
    h("label", {}, "Client secret", field("secret")),
    h("details", {}, h("summary", {}, "Or show a token"), h("label", {}, "Token", field("token"))),
    h("p", { class: "quiet" }, "What you get is kept in this tab, until you close it or sign out."),
    submit,
  );
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    submit.disabled = true;
    trouble.textContent = "";
    try {
      sessionStorage.setItem(KEY, await granted(new FormData(form)));
      dialog.close();
      resolve();
    } catch (error) {
      trouble.textContent = error instanceof Error ? error.message : String(error);
    }
    submit.disabled = false;
  });
  dialog.oncancel = (event) => event.preventDefault();
  dialog.replaceChildren(form);
  dialog.showModal();
}

/** @param {string} name */
function field(name) {
  return h("input", { name, type: "password", autocomplete: "current-password" });
}

/** The token that was typed, or the one that a client gets for its secret. @param {FormData} typed */
async function granted(typed) {
  const shown = String(typed.get("token")).trim();
  if (/[^\x21-\x7e]/.test(shown)) throw new Error("That is no token: tokens are letters, digits and a few signs.");
  if (shown) return shown;
  if (!typed.get("id") || !typed.get("secret")) throw new Error("Type a client's id and secret, or a token.");
  const body = new URLSearchParams({
    grant_type: "client_credentials",
    scope: "catalog",
    client_id: String(typed.get("id")),
    client_secret: String(typed.get("secret")),
  });
  const url = new URL("../v1/oauth/tokens", document.baseURI);
  // Without credentials of the browser's own, which else asks for them where ours are wrong.
  const asked = fetch(url, { method: "POST", body, credentials: "omit" });
  const answer = await asked.catch(() => {
    throw new Error("The catalog does not answer. It may be down, or the network may be.");
  });
  const said = await answer.json().catch(() => ({}));
  if (!answer.ok) throw new Error(said.error_description ?? said.error?.message ?? "The catalog refused.");
  return String(said.access_token);
}
