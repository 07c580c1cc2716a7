// What grants and policies are on, as texts of addresses, commands and the API: `namespace:sales`, `table:sales.orders`.

export const OBJECT_KINDS = ["warehouse", "namespace", "table", "view"] as const;
export type ObjectKind = (typeof OBJECT_KINDS)[number];

export interface GovernedObject {
  readonly kind: ObjectKind;
  readonly namespace: readonly string[];
  readonly name: string;
}

export const WHOLE_WAREHOUSE: GovernedObject = { kind: "warehouse", namespace: [], name: "" };

/** Dots between levels; a dot in a level is %2E. */
function writeLevels(levels: readonly string[]): string {
  return levels.map((level) => level.replace(/%(?=25|2E)/g, "%25").replaceAll(".", "%2E")).join(".");
}

export function readLevels(text: string): readonly string[] {
  return text.split(".").map((level) => level.replace(/%(25|2E)/g, (_, code: string) => (code === "25" ? "%" : ".")));
}

export function writeObject({ kind, namespace, name }: GovernedObject): string {
  return kind === "warehouse" ? kind : `${kind}:${writeLevels(name ? [...namespace, name] : namespace)}`;
}

/** The object of a text; null if it is none. */
export function readObject(text: string): GovernedObject | null {
  const [word, ...rest] = text.trim().split(":");
  const kind = OBJECT_KINDS.find((one) => one === word);
  const levels = readLevels(rest.join(":"));
  if (kind === "warehouse" && rest.length === 0) return WHOLE_WAREHOUSE;
  if (!kind || kind === "warehouse" || levels.some((level) => level === "")) return null;
  if (kind === "namespace") return { kind, namespace: levels, name: "" };
  return levels.length > 1 ? { kind, namespace: levels.slice(0, -1), name: levels.at(-1) ?? "" } : null;
}

/** The object, and all above it that pass grants on to it: the nearest first. */
export function listAbove(object: GovernedObject): readonly GovernedObject[] {
  const spaces = object.namespace.map((_, place) => ({
    kind: "namespace" as const,
    namespace: object.namespace.slice(0, place + 1),
    name: "",
  }));
  const above = object.kind === "namespace" ? spaces.slice(0, -1) : spaces;
  return object.kind === "warehouse" ? [object] : [object, ...above.reverse(), WHOLE_WAREHOUSE];
}

/** As bodies of requests have it. */
export function describeObject({ kind, namespace, name }: GovernedObject): Readonly<Record<string, unknown>> {
  return { kind, ...(kind === "warehouse" ? {} : { namespace }), ...(name ? { name } : {}) };
}
