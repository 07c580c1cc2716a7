-- Whose rights the readers of a view have for what it reads, where its property ducklake.view-security is definer. As of
-- grants, the rows of the first warehouse count, for all. A view without a row, or with another definition than the row's,
-- gives no rights.
CREATE TABLE duckicelake_definer (
    warehouse_id uuid        NOT NULL,
    view_id      bigint      NOT NULL,
    principal_id bigint      NOT NULL REFERENCES duckicelake_principal ON DELETE CASCADE,
    definition   bytea       NOT NULL,  -- SHA-256 of its SQL, and of that of all views that it reads
    recorded     timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (warehouse_id, view_id)
);
CREATE INDEX duckicelake_definer_principal ON duckicelake_definer (principal_id);
