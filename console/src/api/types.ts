// Types of Iceberg as people write them: `list<struct<a: decimal(9, 2)>>`.
import type { Field, IcebergType } from "./iceberg.ts";

/** What is wrong with the text of a type. */
export class TypeTextError extends Error {
  override readonly name = "TypeTextError";
}

export const PRIMITIVES = [
  "boolean",
  "int",
  "long",
  "float",
  "double",
  "decimal(18, 2)",
  "date",
  "time",
  "timestamp",
  "timestamptz",
  "timestamp_ns",
  "timestamptz_ns",
  "string",
  "uuid",
  "fixed[16]",
  "binary",
  "variant",
  "geometry",
  "geography",
  "unknown",
] as const;

const NAMES = new Set(PRIMITIVES.map((name) => name.replace(/[[(].*/, "")));
const SPELLINGS: Readonly<Record<string, string>> = {
  integer: "int",
  bigint: "long",
  bool: "boolean",
  varchar: "string",
  text: "string",
};
const TOKEN = /\s*(`(?:[^`]|``)+`|\w+(?:\s*\([^()]*\)|\s*\[[^[\]]*\])?|.)/y;

/** Parses a type; ids of its fields come from `take`. Throws TypeTextError. */
export function parseType(text: string, take: () => number): IcebergType {
  const tokens = tokensOf(text);
  const type = readType(tokens, take);
  const rest = tokens.shift();
  if (rest !== undefined) throw new TypeTextError(`Nothing may follow the type, as ${rest} does`);
  return type;
}

function tokensOf(text: string): string[] {
  const tokens: string[] = [];
  TOKEN.lastIndex = 0;
  for (let found = TOKEN.exec(text); found; found = TOKEN.exec(text)) {
    if (found[1]?.trim()) tokens.push(found[1]);
  }
  return tokens;
}

function readType(tokens: string[], take: () => number): IcebergType {
  const token = tokens.shift();
  if (token === undefined) throw new TypeTextError("It needs a type, as long, string, decimal(9, 2) or list<string>");
  const name = token.toLowerCase();
  if (name === "list") return readList(tokens, take);
  if (name === "map") return readMap(tokens, take);
  if (name === "struct") return readStruct(tokens, take);
  const word = name.replace(/\s*[[(].*/, "");
  if (!NAMES.has(SPELLINGS[word] ?? word)) throw new TypeTextError(`There is no type ${token}`);
  return SPELLINGS[name] ?? name.replace(/\s*([[(,\])])\s*/g, "$1").replace(",", ", ");
}

function readList(tokens: string[], take: () => number): IcebergType {
  expect(tokens, "<");
  const id = take();
  const element = readType(tokens, take);
  expect(tokens, ">");
  return { type: "list", "element-id": id, element, "element-required": false };
}

function readMap(tokens: string[], take: () => number): IcebergType {
  expect(tokens, "<");
  const [keyId, valueId] = [take(), take()];
  const key = readType(tokens, take);
  expect(tokens, ",");
  const value = readType(tokens, take);
  expect(tokens, ">");
  return { type: "map", "key-id": keyId, key, "value-id": valueId, value, "value-required": false };
}

function readStruct(tokens: string[], take: () => number): IcebergType {
  expect(tokens, "<");
  const fields: Field[] = [];
  do {
    const id = take();
    const written = tokens.shift() ?? "";
    const name = written.startsWith("`") ? written.slice(1, -1).replaceAll("``", "`") : written;
    if (!/^(`|\w)/.test(written)) throw new TypeTextError("A field of a struct needs a name, as in struct<a: int>");
    if (tokens[0] === ":") tokens.shift();
    fields.push({ id, name, type: readType(tokens, take), required: readRequired(tokens) });
  } while (tokens[0] === "," && tokens.shift());
  expect(tokens, ">");
  return { type: "struct", fields };
}

function readRequired(tokens: string[]): boolean {
  if (tokens[0]?.toLowerCase() !== "not") return false;
  tokens.shift();
  if (tokens.shift()?.toLowerCase() !== "null") throw new TypeTextError("Expected null behind not");
  return true;
}

function expect(tokens: string[], wanted: string): void {
  const found = tokens.shift();
  if (found !== wanted)
    throw new TypeTextError(`Expected ${wanted} ${found === undefined ? "at the end" : `before ${found}`}`);
}
