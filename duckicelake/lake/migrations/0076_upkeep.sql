-- The upkeep of a lake by its own workers: what it does by itself, and when it was planned last. One row, which a worker
-- locks while it takes a task.
CREATE TABLE duckicelake_upkeep (
    is_only   boolean     PRIMARY KEY DEFAULT true CHECK (is_only),
    policies  json        NOT NULL DEFAULT '{}',  -- of the whole lake, over those of the settings
    next_plan timestamptz NOT NULL DEFAULT clock_timestamp(),
    planned   timestamptz,
    snapshot  bigint                              -- DuckLake's newest when it was planned
);
INSERT INTO duckicelake_upkeep DEFAULT VALUES;

-- The queue: at most one task of each kind for a table. What came of ended ones is in duckicelake_job, too.
CREATE TABLE duckicelake_upkeep_task (
    task_id      bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    table_id     bigint      NOT NULL,            -- DuckLake's: a rename keeps it
    kind         text        NOT NULL,
    state        text        NOT NULL DEFAULT 'queued'
                             CHECK (state IN ('queued', 'running', 'waiting', 'blocked', 'failed', 'done')),
    why          text        NOT NULL,
    message      text,                            -- why it waits, is blocked or failed
    estimate     json        NOT NULL DEFAULT '{}',
    rank         float8      NOT NULL DEFAULT 0,  -- gain for cost; the most first
    digest       text        NOT NULL,            -- of the table's state: the same one is not worked on twice
    policies     json        NOT NULL DEFAULT '{}',
    target_size  bigint      NOT NULL,
    condition    text,
    requested_by text,                            -- who asked for it; none: the plan
    attempts     integer     NOT NULL DEFAULT 0,
    available    timestamptz NOT NULL DEFAULT clock_timestamp(),
    created      timestamptz NOT NULL DEFAULT clock_timestamp(),
    changed      timestamptz NOT NULL DEFAULT clock_timestamp(),
    claim        uuid,                            -- of the worker that runs it, which has the id of the job
    worker       text,
    lease_until  timestamptz,
    counts       json        NOT NULL DEFAULT '{}',
    UNIQUE (table_id, kind)
) WITH (fillfactor = 70);
