// What the page asks of its server: JSON, with the token of whoever has signed in.
import { forget, signIn, token } from "./sign-in.js";

/** What went wrong, as sentences for whoever looks at the page. `status` is 0 where nobody answered. */
export class Refusal extends Error {
  /** @param {string} message @param {number} status */
  constructor(message, status) {
    super(message);
    this.status = status;
  }
}

/**
 * The answer to a GET. Asks who is there, as often as it takes, where the server wants to know. Throws Refusal.
 * @param {string} path from the server's root, without the slash
 * @param {Record<string, string>} [query]
 * @param {AbortSignal} [signal]
 * @returns {Promise<any>}
 */
export async function ask(path, query = {}, signal = undefined) {
  const url = new URL(`../${path}?${new URLSearchParams(query)}`, document.baseURI);
  for (;;) {
    const shown = token();
    const answer = await sent(url, shown, signal);
    if (answer.ok) return answer.json();
    const message = await said(answer);
    if (answer.status !== 401) throw new Refusal(message, answer.status);
    forget(shown);
    await signIn(shown === null ? "" : message);
  }
}

/** @param {URL} url @param {string | null} shown @param {AbortSignal | undefined} signal */
async function sent(url, shown, signal) {
  /** @type {Record<string, string>} */
  const headers = shown === null ? {} : { Authorization: `Bearer ${shown}` };
  try {
    return await fetch(url, { headers, signal: signal ?? null, credentials: "omit" });
  } catch (error) {
    if (signal?.aborted) throw error;
    throw new Refusal("The catalog does not answer. It may be down, or the network may be.", 0);
  }
}

/** The server's own words. @param {Response} answer */
async function said(answer) {
  try {
    return String((await answer.json()).error.message);
  } catch {
    return `The catalog answered with status ${answer.status}.`;
  }
}
