// Asks the routes that all clients have, by the types of openapi/duckicelake.json.
import { FIRST_WAREHOUSE, serverUrl } from "./address.ts";
import type { paths } from "./openapi";
import { currentToken, demandSignIn, renewSession } from "./session.ts";

type Method = "get" | "post" | "put" | "delete";
type PathsWith<M extends Method> = { [P in keyof paths]: paths[P] extends Record<M, object> ? P : never }[keyof paths];
type Operation<P extends keyof paths, M extends Method> = paths[P] extends Record<M, infer O> ? O : never;
type JsonOf<R> = R extends { content: { "application/json": infer B } } ? B : undefined;
export type Answer<P extends keyof paths, M extends Method> =
  Operation<P, M> extends { responses: infer R } ? JsonOf<R[keyof R & (200 | 201 | 202 | 204)]> : never;
type QueryOf<O> = O extends { parameters: { query?: infer Q } } ? NonNullable<Q> : never;
type PathOf<O> = O extends { parameters: { path: infer P } } ? P : undefined;
type BodyOf<O> = O extends { requestBody: { content: { "application/json": infer B } } } ? B : undefined;

export interface Asked<P extends keyof paths, M extends Method> {
  readonly warehouse?: string;
  readonly path?: PathOf<Operation<P, M>>;
  readonly query?: QueryOf<Operation<P, M>>;
  readonly body?: BodyOf<Operation<P, M>>;
  readonly headers?: Readonly<Record<string, string>>;
  readonly signal?: AbortSignal;
}

/** What went wrong, in the server's own words. `status` is 0 where no server answered. */
export class ApiError extends Error {
  override readonly name = "ApiError";
  readonly status: number;
  readonly type: string;
  readonly requestId: string | null;
  /** When the server wants to be asked again, in milliseconds from now; null if it doesn't say. */
  readonly retryAfterMs: number | null;
  constructor(
    message: string,
    status: number,
    type: string,
    requestId: string | null,
    retryAfterMs: number | null = null,
  ) {
    super(message);
    this.retryAfterMs = retryAfterMs;
    this.status = status;
    this.type = type;
    this.requestId = requestId;
  }
}

/** An answer that this catalog doesn't give. */
export class UnknownAnswerError extends ApiError {
  constructor(status: number, requestId: string | null) {
    const message = "What came is no answer of this catalog. A proxy or a login page may stand in between.";
    super(message, status, "NoCatalogAnswer", requestId);
  }
}

/** Routes of the whole server, in no warehouse. */
const SERVER_WIDE = /^\/(?:v1\/(?:config|oauth)|management|healthz|readyz|metrics)(?:\/|$)/;
const IN_WAREHOUSE = /^\/(?:v1|sql\/v1|pipeline\/v1|lineage\/v1)(?=\/)/;
/** What is managed by warehouse: behind the name of one, or without it for the first. */
const MANAGED = /^\/management\/v1(?=\/(?:grants|decision|policies|column-tags)(?:\/|$))/;

export function get<P extends PathsWith<"get">>(path: P, asked: Asked<P, "get"> = {}): Promise<Answer<P, "get">> {
  return call("get", path, asked);
}

export function post<P extends PathsWith<"post">>(path: P, asked: Asked<P, "post"> = {}): Promise<Answer<P, "post">> {
  return call("post", path, asked);
}

export function put<P extends PathsWith<"put">>(path: P, asked: Asked<P, "put"> = {}): Promise<Answer<P, "put">> {
  return call("put", path, asked);
}

export function remove<P extends PathsWith<"delete">>(
  path: P,
  asked: Asked<P, "delete"> = {},
): Promise<Answer<P, "delete">> {
  return call("delete", path, asked);
}

async function call<P extends keyof paths, M extends Method>(
  method: M,
  path: P,
  asked: Asked<P, M>,
): Promise<Answer<P, M>> {
  const answer = await send(method, path, asked);
  const text = await readText(answer, asked.signal);
  // What reads always has an answer; acts may have none.
  return (text || method === "get" ? parseAnswer(text, answer) : undefined) as Answer<P, M>;
}

async function readText(answer: Response, signal: AbortSignal | undefined): Promise<string> {
  return answer.text().catch((error: unknown) => {
    if (signal?.aborted) throw error;
    throw new ApiError("The answer was cut off. The server or the network may be down.", 0, "CutAnswer", null);
  });
}

/** What of the server is no route of its API, as the description of all routes. Throws ApiError. */
export async function getDocument(name: string, signal: AbortSignal): Promise<object> {
  const answer = await fetchAnswer(new URL(name, serverUrl).href, { signal, credentials: "omit" });
  if (!answer.ok) throw await readError(answer);
  return parseAnswer(await readText(answer, signal), answer);
}

/** All routes answer with objects; anything else is from who stands in between, or of another server. */
function parseAnswer(text: string, { status, headers }: Response): object {
  try {
    const parsed = parseJson(text);
    if (typeof parsed === "object" && parsed !== null && !Array.isArray(parsed)) return parsed;
  } catch {
    // not JSON at all
  }
  throw new UnknownAnswerError(status, headers.get("X-Request-Id"));
}

/** The answer itself, once it is known to be a success. Throws ApiError. */
export async function send<P extends keyof paths, M extends Method>(
  method: M,
  path: P,
  asked: Asked<P, M>,
): Promise<Response> {
  const shown = currentToken();
  const answer = await sendOnce(method, path, asked, shown);
  if (answer.ok) return answer;
  if (answer.status === 401 && shown !== null && (await renewSession(shown))) {
    const again = await sendOnce(method, path, asked, currentToken());
    if (again.ok) return again;
    throw await readError(again);
  }
  const refused = await readError(answer);
  if (answer.status === 401) demandSignIn(shown === null ? "" : refused.message, shown);
  throw refused;
}

async function sendOnce<P extends keyof paths, M extends Method>(
  method: M,
  path: P,
  asked: Asked<P, M>,
  shown: string | null,
): Promise<Response> {
  const headers = new Headers({ "X-Engine": "console", ...asked.headers });
  if (shown !== null) headers.set("Authorization", `Bearer ${shown}`);
  if (asked.body !== undefined) headers.set("Content-Type", "application/json");
  const request: RequestInit = { method: method.toUpperCase(), headers, credentials: "omit" };
  if (asked.body !== undefined) request.body = writeJson(asked.body);
  if (asked.signal) request.signal = asked.signal;
  return fetchAnswer(urlOf(path, asked), request);
}

/** The answer, whatever it is. Throws ApiError where there is none. */
function fetchAnswer(url: string, request: RequestInit): Promise<Response> {
  return fetch(url, request).catch((error: unknown) => {
    if (request.signal?.aborted) throw error;
    throw new ApiError("The server does not answer. It may be down, or the network may be.", 0, "NoAnswer", null);
  });
}

export async function readError(answer: Response): Promise<ApiError> {
  const id = answer.headers.get("X-Request-Id");
  const seconds = answer.headers.get("Retry-After");
  const again = seconds !== null && /^\d{1,6}$/.test(seconds) ? Number(seconds) * 1000 : null;
  try {
    const { error } = (await answer.json()) as { error: { message: string; type: string } };
    return new ApiError(String(error.message), answer.status, String(error.type), id, again);
  } catch {
    return new ApiError(`The server answered with status ${answer.status}.`, answer.status, "", id, again);
  }
}

/** A key by which a request that is sent again takes effect once: a UUID of version 7 (RFC 9562). */
export function createKey(): string {
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  const view = new DataView(bytes.buffer);
  view.setUint32(0, Math.floor(Date.now() / 2 ** 16));
  view.setUint16(4, Date.now() % 2 ** 16);
  view.setUint8(6, 0x70 | (view.getUint8(6) & 0x0f));
  view.setUint8(8, 0x80 | (view.getUint8(8) & 0x3f));
  const digits = Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
  return digits.replace(/^(.{8})(.{4})(.{4})(.{4})(.{12})$/, "$1-$2-$3-$4-$5");
}

interface Place {
  readonly warehouse?: string;
  readonly path?: unknown;
  readonly query?: unknown;
}

/** The address of a route, as it is shown to whoever wants to ask the same by HTTP. */
export function urlOf(path: string, { warehouse = FIRST_WAREHOUSE, path: values, query }: Place): string {
  const place = warehouse === FIRST_WAREHOUSE ? path : inWarehouse(path, warehouse);
  const filled = place.replace(/\{(\w+)\}/g, (_, name: string) =>
    encodeURIComponent(String((values as Record<string, unknown>)[name])),
  );
  const url = new URL(filled.slice(1), serverUrl);
  for (const [name, value] of Object.entries((query ?? {}) as Record<string, unknown>)) {
    for (const one of Array.isArray(value) ? value : [value]) {
      // An empty token asks for the first page; without one, everything is answered.
      const isGiven = one !== undefined && one !== null && (one !== "" || name === "pageToken");
      if (isGiven) url.searchParams.append(name, String(one));
    }
  }
  return url.href;
}

/** Behind `_` a warehouse is reached whatever its name is, that of a route included. */
function inWarehouse(path: string, warehouse: string): string {
  if (MANAGED.test(path)) return path.replace(MANAGED, `/management/v1/warehouses/${encodeURIComponent(warehouse)}`);
  if (SERVER_WIDE.test(path)) return path;
  return path.replace(IN_WAREHOUSE, (prefix) => `${prefix}/_${encodeURIComponent(warehouse)}`);
}

/** Integers beyond 2⁵³, as ids of snapshots are, come as texts: JavaScript's numbers would round them. */
export function parseJson(text: string): unknown {
  const keep = (_key: string, value: unknown, context?: { source?: string }): unknown =>
    typeof value === "number" && !Number.isSafeInteger(value) && /^-?\d+$/.test(context?.source ?? "")
      ? context?.source
      : value;
  return JSON.parse(text, keep as (key: string, value: unknown) => unknown);
}

/** A text that stands for a large integer, to be written as one. */
export class LargeInteger {
  readonly digits: string;
  constructor(id: number | string) {
    this.digits = String(id);
    if (!/^-?\d+$/.test(this.digits)) throw new TypeError(`${this.digits} is no integer`);
  }
}

export function writeJson(value: unknown, indent = 0): string {
  const marked = JSON.stringify(
    value,
    (_key, one: unknown) => (one instanceof LargeInteger ? `\u0000${one.digits}\u0000` : one),
    indent,
  );
  return marked.replace(/"\\u0000(-?\d+)\\u0000"/g, "$1");
}
