-- Queries over HTTP that run, or ended within the last minutes. `seen` is when the process that runs one last reported it:
-- what it hasn't for a while is lost with that process. Unlogged: nothing of it is worth a crash.
CREATE UNLOGGED TABLE duckicelake_query (
    query_id     uuid        PRIMARY KEY,
    principal    text        NOT NULL,
    principal_id bigint,
    statement    text        NOT NULL,      -- its first characters
    state        text        NOT NULL DEFAULT 'running' CHECK (state IN ('running', 'done', 'failed', 'cancelled')),
    progress     real,                      -- from 0 to 1, as far as DuckDB knows
    rows         bigint      NOT NULL DEFAULT 0,
    started      timestamptz NOT NULL DEFAULT clock_timestamp(),
    seen         timestamptz NOT NULL DEFAULT clock_timestamp(),
    is_cancelled boolean     NOT NULL DEFAULT false
) WITH (fillfactor = 50);  -- progress takes the place of the last one on the page
