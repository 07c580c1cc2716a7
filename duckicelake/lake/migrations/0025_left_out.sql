-- What those who follow the lake have left out for good, as it failed again and again (lake/left_out.py): `doctor` tells.
CREATE TABLE duckicelake_left_out (
    follower text        NOT NULL,  -- chronicle or lineage
    at       timestamptz NOT NULL DEFAULT clock_timestamp(),
    what     text        NOT NULL,
    reason   text        NOT NULL
);

-- Of received events, how many a principal has sent lately.
CREATE INDEX duckicelake_lineage_event_received ON duckicelake_lineage_event (principal, recorded)
    WHERE origin = 'received';
