// Where this server is: the console lies at ui/console below it, behind whatever prefix a proxy gives it.

export const serverUrl = new URL("../../", import.meta.url).href;
export const basePath = `${new URL("ui", serverUrl).pathname}`;

/** The first warehouse, which the server has from its settings. */
export const FIRST_WAREHOUSE = "duckicelake";

/**
 * A name of several levels as one text: dots between them, and a tilde before a dot or tilde of a name itself. It can
 * be read, and is never `.` or `..`, which browsers take out of addresses.
 */
export function joinName(levels: readonly string[]): string {
  return levels.map((level) => level.replace(/[~.]/g, "~$&")).join(".");
}

export function splitName(text: string): string[] {
  const levels: string[] = [];
  let level = "";
  for (let at = 0; at < text.length; at++) {
    if (text[at] === ".") {
      levels.push(level);
      level = "";
    } else {
      if (text[at] === "~" && at + 1 < text.length) at++;
      level += text.charAt(at);
    }
  }
  return [...levels, level];
}

/** A namespace as the API has it in paths: the unit separator between its levels. */
export function apiNamespace(levels: readonly string[]): string {
  return levels.join("\u001f");
}

/** What tables and views are called: `sales.eu.orders`. */
export interface Identifier {
  readonly namespace: readonly string[];
  readonly name: string;
}

export function joinIdentifier({ namespace, name }: Identifier): string {
  return joinName([...namespace, name]);
}

export function splitIdentifier(text: string): Identifier {
  const levels = splitName(text);
  return { namespace: levels.slice(0, -1), name: levels.at(-1) ?? "" };
}

/** As SQL has it: quoted where it must be. */
export function quoteSql(levels: readonly string[]): string {
  return levels
    .map((level) => (/^[a-z_][a-z0-9_]*$/.test(level) ? level : `"${level.replaceAll('"', '""')}"`))
    .join(".");
}

/** As a word of a shell. */
export function quoteShell(text: string): string {
  return /^[\w@%+=:,./-]+$/.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`;
}

/** A column as clauses of `duckicelake alter` have it. */
export function quoteColumn(path: readonly string[]): string {
  return path.map((level) => (/^[a-z_]\w*$/i.test(level) ? level : `\`${level.replaceAll("`", "``")}\``)).join(".");
}

/** A text in single quotes, as clauses of `duckicelake alter` have it. */
export function quoteText(text: string): string {
  return `'${text.replaceAll("'", "''")}'`;
}
