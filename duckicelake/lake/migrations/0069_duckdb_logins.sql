-- Logins to Postgres that DuckDB's users get for a while, of all warehouses: only the rows of a server's first lake count.
-- Each is a role of Postgres of this name, made in the same transaction; a role without a row may read nothing.
CREATE TABLE duckicelake_duckdb_login (
    role_name    text        PRIMARY KEY,
    warehouse_id uuid        NOT NULL,  -- nil: the first
    principal_id bigint      REFERENCES duckicelake_principal ON DELETE CASCADE,
    principal    text        NOT NULL,
    token_groups text[]      NOT NULL,  -- names of groups that its token says it is in
    namespaces   text[],                -- which scopes let it read, with all below them; null: all
    is_granted   boolean     NOT NULL,  -- whether a scope lets grants count
    within       text[],                -- the namespaces that it asked for; null: all
    created_at   timestamptz NOT NULL DEFAULT clock_timestamp(),
    expires_at   timestamptz NOT NULL
);
CREATE INDEX duckicelake_duckdb_login_principal ON duckicelake_duckdb_login (principal_id);
