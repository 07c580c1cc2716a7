-- When a process noted last that it looks for tasks of the lake. A crash of Postgres keeps it.
CREATE TABLE duckicelake_upkeep_presence (
    setting text        PRIMARY KEY,  -- upkeep_workers: it does tasks; else as in duckicelake_upkeep_look
    noted   timestamptz NOT NULL
) WITH (fillfactor = 20);
