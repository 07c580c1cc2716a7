-- Row filters and column masks of tables, for some principals. Every lake has the tables; whose rows count, is as for
-- those of grants.
SELECT set_config('search_path', quote_ident(current_schema()) || ', pg_temp', true);

-- Its members get a table's policies with its files, and apply them.
INSERT INTO duckicelake_principal (name, kind, description)
VALUES ('trusted-engine', 'role', 'Engines that apply row filters and column masks to what they read')
ON CONFLICT (name) DO NOTHING;

-- A policy is on a table, or on all columns that have a tag. Tables and columns are named by DuckLake's ids, so that they
-- keep their policies when they are renamed. The names are those of then: they count once DuckLake has forgotten the ids.
CREATE TABLE duckicelake_policy (
    policy_id    uuid        PRIMARY KEY,
    warehouse_id uuid        NOT NULL,
    name         text        NOT NULL CHECK (name <> ''),
    tag          text        CHECK (tag <> ''),
    table_id     bigint,
    schema_name  text,
    table_name   text,
    column_id    bigint,     -- of a mask
    column_name  text,
    mask         text,
    filter       jsonb,      -- of a row filter: Iceberg's expression, its columns by field id
    condition    text,       -- the same as it was written
    created_by   text        NOT NULL,
    created_at   timestamptz NOT NULL DEFAULT clock_timestamp(),
    CHECK ((mask IS NULL) <> (filter IS NULL)),
    CHECK ((filter IS NULL) = (condition IS NULL)),
    CHECK ((tag IS NULL) = (table_id IS NOT NULL)),
    CHECK (num_nulls(table_id, schema_name, table_name) IN (0, 3)),
    CHECK (num_nulls(column_id, column_name) IN (0, 2)),
    CHECK ((column_id IS NOT NULL) = (mask IS NOT NULL AND tag IS NULL)),
    CHECK (tag IS NULL OR mask IS NOT NULL)
);
CREATE UNIQUE INDEX duckicelake_policy_name ON duckicelake_policy (warehouse_id, name, coalesce(table_id, -1));

-- Whom a policy is for, and whom it isn't; one that names no one is for all. If a principal is deleted, its
-- policies are for more than before, not for fewer.
CREATE TABLE duckicelake_policy_principal (
    policy_id    uuid    NOT NULL REFERENCES duckicelake_policy ON DELETE CASCADE,
    principal_id bigint  NOT NULL REFERENCES duckicelake_principal ON DELETE CASCADE,
    is_exempt    boolean NOT NULL,
    PRIMARY KEY (policy_id, principal_id)
);
CREATE INDEX duckicelake_policy_principal_principal ON duckicelake_policy_principal (principal_id);

-- Tags of columns, by which policies name them.
CREATE TABLE duckicelake_policy_tag (
    warehouse_id uuid   NOT NULL,
    tag          text   NOT NULL CHECK (tag <> ''),
    table_id     bigint NOT NULL,
    schema_name  text   NOT NULL,
    table_name   text   NOT NULL,
    column_id    bigint NOT NULL,
    column_name  text   NOT NULL,
    PRIMARY KEY (warehouse_id, tag, table_id, column_id)
);

CREATE TRIGGER duckicelake_bump BEFORE INSERT OR UPDATE OR DELETE OR TRUNCATE ON duckicelake_policy
FOR EACH STATEMENT EXECUTE FUNCTION duckicelake_bump_governance();
CREATE TRIGGER duckicelake_bump BEFORE INSERT OR UPDATE OR DELETE OR TRUNCATE ON duckicelake_policy_principal
FOR EACH STATEMENT EXECUTE FUNCTION duckicelake_bump_governance();
CREATE TRIGGER duckicelake_bump BEFORE INSERT OR UPDATE OR DELETE OR TRUNCATE ON duckicelake_policy_tag
FOR EACH STATEMENT EXECUTE FUNCTION duckicelake_bump_governance();
