-- Who a lake is, so that a warehouse can say whose it is; and which servers write it, with what settings.
CREATE TABLE duckicelake_lake (
    is_only   boolean PRIMARY KEY DEFAULT true CHECK (is_only),
    lake_id   uuid    NOT NULL DEFAULT gen_random_uuid(),
    warehouse text,                            -- canonical; null until a server of this version has started
    marked    text[]  NOT NULL DEFAULT '{}'    -- the canonical folders that hold the lake's marker
);
INSERT INTO duckicelake_lake DEFAULT VALUES;

CREATE TABLE duckicelake_server (
    server_id uuid        PRIMARY KEY,
    host      text        NOT NULL,
    process   integer     NOT NULL,
    settings  json        NOT NULL,  -- those that all servers of a lake must share
    seen_at   timestamptz NOT NULL
);
