// Commands that do what an act does, as a shell takes them: with the address of this server, and a warehouse if it isn't the first.
import { FIRST_WAREHOUSE, quoteShell, serverUrl } from "../api/address.ts";
import { urlOf, writeJson } from "../api/client.ts";
import type { paths } from "../api/openapi";
import { currentToken } from "../api/session.ts";

/** A name as commands have it: `sales.orders`, and a level of other letters in backticks. */
export function commandName(levels: readonly string[]): string {
  return levels.map((level) => (/[.`]|^-/.test(level) ? `\`${level.replaceAll("`", "``")}\`` : level)).join(".");
}

type Options = Readonly<Record<string, string | boolean | readonly string[] | undefined>>;

/**
 * The command of a verb, as `create table`, with what it takes. An option that is true has no value; one that is false,
 * empty or undefined is left out. One with several values is repeated.
 */
export function writeCommand(verb: string, warehouse: string, given: readonly string[], options: Options = {}): string {
  const uri = serverUrl.replace(/\/$/, "");
  const place: Options = { ...options, warehouse: warehouse === FIRST_WAREHOUSE ? undefined : warehouse, uri };
  const written = Object.entries(place).flatMap(([name, value]) => {
    if (value === undefined || value === false || value === "") return [];
    if (value === true) return [`--${name}`];
    const all = typeof value === "string" ? [value] : value;
    return all.map((one) => `--${name}${one.startsWith("-") ? "=" : " "}${quoteShell(one)}`);
  });
  const words = given.map(quoteShell);
  const isOdd = given.some((word) => word.startsWith("-"));
  const parts = isOdd ? [...written, "--", ...words] : [...words, ...written];
  return ["duckicelake", verb, ...parts].join(" ");
}

/** The variable from which commands and requests take the token. */
export const TOKEN = "DUCKICELAKE_CLIENT_TOKEN";

interface Sent {
  readonly method: "GET" | "POST" | "PUT" | "DELETE";
  readonly path: keyof paths;
  readonly warehouse: string;
  readonly values?: Readonly<Record<string, string>> | undefined;
  readonly query?: Readonly<Record<string, string | undefined>> | undefined;
  readonly body?: unknown;
}

/** A request as curl sends it. */
export function writeCurl({ method, path, warehouse, values, query, body }: Sent): string {
  const url = quoteShell(urlOf(path, { warehouse, path: values, query }));
  const login = currentToken() === null ? "" : ` -H "Authorization: Bearer $${TOKEN}"`;
  const isUsual = method === (body === undefined ? "GET" : "POST");
  const verb = isUsual ? "" : ` -X ${method}`;
  return `curl${verb} ${url}${login}${body === undefined ? "" : ` --json ${quoteShell(writeJson(body))}`}`;
}

/** A column as clauses of `duckicelake alter` have it. */
export function quoteColumn(path: readonly string[]): string {
  return path.map((level) => (/^[a-z_]\w*$/i.test(level) ? level : `\`${level.replaceAll("`", "``")}\``)).join(".");
}

/** A text in single quotes, as clauses of `duckicelake alter` have it. */
export function quoteText(text: string): string {
  return `'${text.replaceAll("'", "''")}'`;
}
