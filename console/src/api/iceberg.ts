// Iceberg's metadata, as loads of tables and views answer it; the OpenAPI description leaves it to the specification.

/** An id of 63 bits: a text where a number would be rounded. */
export type LongId = number | string;

export type IcebergType = string | StructType | ListType | MapType;

export interface StructType {
  readonly type: "struct";
  readonly fields: readonly Field[];
}

export interface ListType {
  readonly type: "list";
  readonly "element-id": number;
  readonly element: IcebergType;
  readonly "element-required": boolean;
}

export interface MapType {
  readonly type: "map";
  readonly "key-id": number;
  readonly key: IcebergType;
  readonly "value-id": number;
  readonly value: IcebergType;
  readonly "value-required": boolean;
}

export interface Field {
  readonly id: number;
  readonly name: string;
  readonly type: IcebergType;
  readonly required: boolean;
  readonly doc?: string;
  readonly "initial-default"?: unknown;
  readonly "write-default"?: unknown;
}

export interface Schema extends StructType {
  readonly "schema-id": number;
  readonly "identifier-field-ids"?: readonly number[];
}

export interface PartitionField {
  readonly "source-id"?: number;
  readonly "source-ids"?: readonly number[];
  readonly "field-id": number;
  readonly name: string;
  readonly transform: string;
}

export interface SortField {
  readonly "source-id"?: number;
  readonly "source-ids"?: readonly number[];
  readonly transform: string;
  readonly direction: "asc" | "desc";
  readonly "null-order": "nulls-first" | "nulls-last";
}

export interface Snapshot {
  readonly "snapshot-id": LongId;
  readonly "parent-snapshot-id"?: LongId | null;
  readonly "sequence-number"?: number;
  readonly "timestamp-ms": number;
  readonly summary?: Readonly<Record<string, string>>;
  readonly "schema-id"?: number;
}

export interface Reference {
  readonly "snapshot-id": LongId;
  readonly type: "branch" | "tag";
  readonly "max-ref-age-ms"?: number;
  readonly "max-snapshot-age-ms"?: number;
  readonly "min-snapshots-to-keep"?: number;
}

export interface TableMetadata {
  readonly "format-version": number;
  readonly "table-uuid": string;
  readonly location: string;
  readonly "last-updated-ms": number;
  readonly schemas: readonly Schema[];
  readonly "current-schema-id": number;
  readonly "last-column-id": number;
  readonly "last-partition-id"?: number;
  readonly "partition-specs": readonly { readonly "spec-id": number; readonly fields: readonly PartitionField[] }[];
  readonly "default-spec-id": number;
  readonly "sort-orders": readonly { readonly "order-id": number; readonly fields: readonly SortField[] }[];
  readonly "default-sort-order-id": number;
  readonly properties?: Readonly<Record<string, string>>;
  readonly "current-snapshot-id"?: LongId;
  readonly snapshots?: readonly Snapshot[];
  readonly refs?: Readonly<Record<string, Reference>>;
  /** How many there are; `snapshots` may be the newest alone, and those that are named. */
  readonly snapshotCount: number;
}

export interface ViewMetadata {
  readonly "view-uuid": string;
  readonly location: string;
  readonly "current-version-id": number;
  readonly versions: readonly ViewVersion[];
  readonly schemas: readonly Schema[];
  readonly properties?: Readonly<Record<string, string>>;
}

export interface ViewVersion {
  readonly "version-id": number;
  readonly "schema-id": number;
  readonly "timestamp-ms": number;
  readonly summary?: Readonly<Record<string, string>>;
  readonly "default-namespace": readonly string[];
  readonly representations: readonly { readonly type: string; readonly sql: string; readonly dialect: string }[];
}

/** A data file as a planned scan names it. */
export interface PlannedFile {
  readonly "file-path": string;
  readonly "file-format": string;
  readonly "file-size-in-bytes": number;
  readonly "record-count": number;
  readonly "spec-id": number;
  readonly partition: readonly unknown[];
}

export function currentSchema(metadata: Pick<TableMetadata, "schemas" | "current-schema-id">): Schema {
  const found = metadata.schemas.find((schema) => schema["schema-id"] === metadata["current-schema-id"]);
  return found ?? { type: "struct", "schema-id": 0, fields: [] };
}

/** A type as SQL would say it: `list<string>`, `struct<street: string, city: string>`. */
export function nameType(type: IcebergType): string {
  if (typeof type === "string") return type;
  if (type.type === "list") return `list<${nameType(type.element)}>`;
  if (type.type === "map") return `map<${nameType(type.key)}, ${nameType(type.value)}>`;
  return `struct<${type.fields.map((field) => `${field.name}: ${nameType(field.type)}`).join(", ")}>`;
}

/** The fields inside of a type, those of elements and values included. */
export function fieldsWithin(type: IcebergType): readonly Field[] {
  if (typeof type === "string") return [];
  if (type.type === "struct") return type.fields;
  if (type.type === "list") {
    return [{ id: type["element-id"], name: "element", type: type.element, required: type["element-required"] }];
  }
  return [
    { id: type["key-id"], name: "key", type: type.key, required: true },
    { id: type["value-id"], name: "value", type: type.value, required: type["value-required"] },
  ];
}
