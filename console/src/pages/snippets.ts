// How each engine connects, with the real address. docs/clients.md has more of each.
import { FIRST_WAREHOUSE, serverUrl } from "../api/address.ts";

export interface Snippet {
  readonly engine: string;
  readonly language: string;
  readonly text: string;
}

const uri = serverUrl.replace(/\/$/, "");

/** Whoever connects to a server with logins puts a client's id and secret where the snippet says so. */
export function snippetsFor(warehouse: string, hasLogin: boolean): readonly Snippet[] {
  const isFirst = warehouse === FIRST_WAREHOUSE;
  const tokens = `${uri}/v1/oauth/tokens`;
  return [
    { engine: "PyIceberg", language: "Python", text: pyiceberg(warehouse, isFirst, hasLogin, tokens) },
    { engine: "DuckDB", language: "SQL", text: duckdb(warehouse, hasLogin, tokens) },
    { engine: "Spark", language: "shell", text: spark(warehouse, isFirst, hasLogin, tokens) },
    { engine: "Trino", language: "etc/catalog/lake.properties", text: trino(warehouse, isFirst, hasLogin, tokens) },
    { engine: "Flink", language: "SQL", text: flink(warehouse, isFirst, hasLogin, tokens) },
    { engine: "ClickHouse", language: "SQL", text: clickhouse(warehouse, hasLogin, tokens) },
    { engine: "curl", language: "shell", text: curl(warehouse, isFirst, hasLogin) },
  ];
}

function pyiceberg(warehouse: string, isFirst: boolean, hasLogin: boolean, tokens: string): string {
  const more = [
    ...(isFirst ? [] : [`warehouse="${warehouse}"`]),
    ...(hasLogin ? ['credential="ID:SECRET"', `**{"oauth2-server-uri": "${tokens}"}`] : []),
  ];
  return `from pyiceberg.catalog import load_catalog

catalog = load_catalog("lake", type="rest", uri="${uri}"${more.map((one) => `, ${one}`).join("")})
catalog.list_namespaces()`;
}

function duckdb(warehouse: string, hasLogin: boolean, tokens: string): string {
  const secret = `CREATE SECRET lake (TYPE iceberg, CLIENT_ID 'ID', CLIENT_SECRET 'SECRET',
  OAUTH2_SERVER_URI '${tokens}');
`;
  return `INSTALL iceberg; LOAD iceberg;
${hasLogin ? secret : ""}ATTACH '${warehouse}' AS lake (TYPE iceberg, ENDPOINT '${uri}'${hasLogin ? ", SECRET lake" : ", AUTHORIZATION_TYPE 'none'"});
SHOW ALL TABLES;`;
}

function spark(warehouse: string, isFirst: boolean, hasLogin: boolean, tokens: string): string {
  const options = [
    "spark.sql.extensions=org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
    "spark.sql.catalog.lake=org.apache.iceberg.spark.SparkCatalog",
    "spark.sql.catalog.lake.type=rest",
    `spark.sql.catalog.lake.uri=${uri}`,
    ...(isFirst ? [] : [`spark.sql.catalog.lake.warehouse=${warehouse}`]),
    ...(hasLogin
      ? ["spark.sql.catalog.lake.credential=ID:SECRET", `spark.sql.catalog.lake.oauth2-server-uri=${tokens}`]
      : []),
    "spark.sql.catalog.lake.cache-enabled=false",
    "spark.sql.defaultCatalog=lake",
  ];
  const first = "spark-sql --packages org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.12.0";
  return [first, ...options.map((option) => `  --conf ${option}`)].join(" \\\n");
}

function trino(warehouse: string, isFirst: boolean, hasLogin: boolean, tokens: string): string {
  return [
    "connector.name=iceberg",
    "iceberg.catalog.type=rest",
    `iceberg.rest-catalog.uri=${uri}`,
    ...(isFirst ? [] : [`iceberg.rest-catalog.warehouse=${warehouse}`]),
    ...(hasLogin
      ? [
          "iceberg.rest-catalog.security=OAUTH2",
          "iceberg.rest-catalog.oauth2.credential=ID:SECRET",
          `iceberg.rest-catalog.oauth2.server-uri=${tokens}`,
          "iceberg.rest-catalog.vended-credentials-enabled=true",
        ]
      : []),
    "iceberg.rest-catalog.nested-namespace-enabled=true",
  ].join("\n");
}

function flink(warehouse: string, isFirst: boolean, hasLogin: boolean, tokens: string): string {
  const options: readonly (readonly [string, string])[] = [
    ["type", "iceberg"],
    ["catalog-type", "rest"],
    ["uri", uri],
    ...(isFirst ? [] : ([["warehouse", warehouse]] as const)),
    ...(hasLogin
      ? ([
          ["credential", "ID:SECRET"],
          ["oauth2-server-uri", tokens],
        ] as const)
      : []),
  ];
  const lines = options.map(([name, value]) => `  '${name}' = '${value}'`);
  return `CREATE CATALOG lake WITH (\n${lines.join(",\n")}\n);`;
}

function clickhouse(warehouse: string, hasLogin: boolean, tokens: string): string {
  const login = hasLogin ? `,\n  catalog_credential = 'ID:SECRET',\n  oauth_server_uri = '${tokens}'` : "";
  return `SET allow_database_iceberg = 1;
CREATE DATABASE lake ENGINE = DataLakeCatalog('${uri}/v1') SETTINGS
  catalog_type = 'rest',
  warehouse = '${warehouse}'${login};`;
}

function curl(warehouse: string, isFirst: boolean, hasLogin: boolean): string {
  const token = `TOKEN=$(curl -s ${uri}/v1/oauth/tokens -d grant_type=client_credentials -d scope=catalog \\
  -d client_id=ID -d client_secret=SECRET | jq -r .access_token)
`;
  const place = isFirst ? "v1" : `v1/${warehouse}`;
  return `${hasLogin ? token : ""}curl${hasLogin ? ' -H "Authorization: Bearer $TOKEN"' : ""} ${uri}/${place}/namespaces`;
}
