-- The warehouses that the servers of this lake serve beside it. Each is a lake in another schema of the database. Every
-- lake has the table, because all lakes have the same migrations; only the rows of a server's first lake count.
CREATE TABLE duckicelake_warehouse (
    warehouse_id uuid        PRIMARY KEY DEFAULT gen_random_uuid(),
    name         text        NOT NULL UNIQUE,
    schema_name  text        NOT NULL UNIQUE,
    location     text        NOT NULL,  -- the folder of its files, as the setting `warehouse` of the first
    is_adopted   boolean     NOT NULL,  -- the lake was there before the warehouse
    state        text        NOT NULL CHECK (state IN ('creating', 'active', 'dropping')),
    created      timestamptz NOT NULL DEFAULT clock_timestamp()
);
