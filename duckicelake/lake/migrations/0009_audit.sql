-- Who changed what, when and from where. Rows are only ever added, and deleted when they are old enough.
CREATE TABLE duckicelake_audit (
    id          bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at          timestamptz NOT NULL DEFAULT clock_timestamp(),
    principal   text        NOT NULL,
    address     text        NOT NULL,
    request_id  text        NOT NULL,
    operation   text        NOT NULL,
    resource    text        NOT NULL,  -- a namespace, table or view; levels joined by dots
    result      text        NOT NULL,  -- ok, unchanged, or an error's type and status
    snapshot_id bigint,                -- the DuckLake snapshot that was made
    detail      json
);
CREATE INDEX duckicelake_audit_at ON duckicelake_audit (at);
CREATE INDEX duckicelake_audit_principal ON duckicelake_audit (principal, id);
