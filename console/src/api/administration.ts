// What the pages of administration ask. What counts for the whole server is kept beside what the first warehouse has.
import { infiniteQueryOptions, queryOptions } from "@tanstack/react-query";
import { FIRST_WAREHOUSE } from "./address.ts";
import { type Answer, get } from "./client.ts";

export const PAGE_SIZE = 1000;

export type Caller = Answer<"/v1/whoami", "get">;
export type Warehouse = Answer<"/management/v1/warehouses", "get">["warehouses"][number];
export type StorageProfile = Answer<"/management/v1/storage-profiles", "get">["storage-profiles"][number];

interface Page {
  readonly "next-page-token"?: string | null;
}

export const PAGED = { initialPageParam: "", getNextPageParam: (page: Page) => page["next-page-token"] };

export const serverQuery = () =>
  queryOptions({
    queryKey: [FIRST_WAREHOUSE, "server"],
    queryFn: ({ signal }) => get("/management/v1/server", { signal }),
  });

export type Setting = Answer<"/management/v1/settings", "get">["settings"][number];

export const settingsQuery = () =>
  queryOptions({
    queryKey: [FIRST_WAREHOUSE, "settings"],
    queryFn: ({ signal }) => get("/management/v1/settings", { signal }),
  });

export const allWarehousesQuery = () =>
  infiniteQueryOptions({
    queryKey: [FIRST_WAREHOUSE, "all warehouses"],
    queryFn: ({ signal, pageParam }) =>
      get("/management/v1/warehouses", { query: { pageSize: PAGE_SIZE, pageToken: pageParam }, signal }),
    ...PAGED,
  });

export const warehouseQuery = (name: string) =>
  queryOptions({
    queryKey: [FIRST_WAREHOUSE, "warehouse", name],
    queryFn: ({ signal }) => get("/management/v1/warehouses/{warehouse}", { path: { warehouse: name }, signal }),
    enabled: name !== FIRST_WAREHOUSE,
  });

export const optionsQuery = (name: string) =>
  queryOptions({
    queryKey: [FIRST_WAREHOUSE, "options", name],
    queryFn: ({ signal }) =>
      get("/management/v1/warehouses/{warehouse}/options", { path: { warehouse: name }, signal }),
  });

export const profilesQuery = () =>
  infiniteQueryOptions({
    queryKey: [FIRST_WAREHOUSE, "storage profiles"],
    queryFn: ({ signal, pageParam }) =>
      get("/management/v1/storage-profiles", { query: { pageSize: PAGE_SIZE, pageToken: pageParam }, signal }),
    ...PAGED,
  });

export type Principal = Answer<"/management/v1/principals", "get">["principals"][number];
export type PrincipalKind = "user" | "service" | "group" | "role";
export type Secret = Answer<"/management/v1/me/tokens", "get">["secrets"][number];
export type Issuer = Answer<"/management/v1/issuers", "get">["issuers"][number];

export const principalsQuery = (kind?: PrincipalKind) =>
  infiniteQueryOptions({
    queryKey: [FIRST_WAREHOUSE, "principals", kind ?? "all"],
    queryFn: ({ signal, pageParam }) =>
      get("/management/v1/principals", {
        query: { pageSize: PAGE_SIZE, pageToken: pageParam, ...(kind ? { kind } : {}) },
        signal,
      }),
    ...PAGED,
  });

export const principalQuery = (name: string) =>
  queryOptions({
    queryKey: [FIRST_WAREHOUSE, "principal", name],
    queryFn: ({ signal }) => get("/management/v1/principals/{principal}", { path: { principal: name }, signal }),
  });

export const membersQuery = (name: string) =>
  infiniteQueryOptions({
    queryKey: [FIRST_WAREHOUSE, "members", name],
    queryFn: ({ signal, pageParam }) =>
      get("/management/v1/principals/{principal}/members", {
        path: { principal: name },
        query: { pageSize: PAGE_SIZE, pageToken: pageParam },
        signal,
      }),
    ...PAGED,
  });

export const secretsQuery = (name: string) =>
  queryOptions({
    queryKey: [FIRST_WAREHOUSE, "secrets", name],
    queryFn: ({ signal }) =>
      get("/management/v1/principals/{principal}/secrets", { path: { principal: name }, signal }),
  });

export const ownTokensQuery = () =>
  queryOptions({
    queryKey: [FIRST_WAREHOUSE, "own tokens"],
    queryFn: ({ signal }) => get("/management/v1/me/tokens", { signal }),
    retry: false,
  });

export const issuersQuery = () =>
  infiniteQueryOptions({
    queryKey: [FIRST_WAREHOUSE, "issuers"],
    queryFn: ({ signal, pageParam }) =>
      get("/management/v1/issuers", { query: { pageSize: PAGE_SIZE, pageToken: pageParam }, signal }),
    ...PAGED,
  });
