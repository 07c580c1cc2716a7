-- Delta tables are followed by tasks of the upkeep. When the log of each was listed last.
ALTER TABLE duckicelake_delta_source ADD COLUMN listed timestamptz;

-- When a feature is asked next for what it wants done, of all processes that plan the lake. It is written twice a second,
-- and may be lost.
CREATE UNLOGGED TABLE duckicelake_upkeep_look (
    setting   text        PRIMARY KEY,  -- the one with the seconds between two looks
    next_look timestamptz NOT NULL
) WITH (fillfactor = 20);
