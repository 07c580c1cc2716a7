-- What applications have read lately, and reported (lake/reads.py): from this the inputs of their writes are guessed. It
-- isn't logged, as it is written all the time, is forgotten soon, and what a crash loses only makes for fewer guesses.
CREATE UNLOGGED TABLE duckicelake_read (
    id          bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at          timestamptz NOT NULL,
    kind        text        NOT NULL,  -- load, lookup, scan, report, or write: reads before it were for that
    principal   text        NOT NULL,
    session     text        NOT NULL,  -- 16 letters for the program; without a login `:` and its connection
    application text,                  -- as engines name theirs in reports and summaries
    table_id    bigint      NOT NULL,
    table_name  text        NOT NULL,  -- its full name at that time
    snapshot_id bigint,                -- Iceberg's
    projected   text[]      NOT NULL,
    filtered    text[]      NOT NULL
);
CREATE INDEX duckicelake_read_at ON duckicelake_read (at);
CREATE INDEX duckicelake_read_session ON duckicelake_read (left(session, 16), at);
CREATE INDEX duckicelake_read_application ON duckicelake_read (application, at) WHERE application IS NOT NULL;
