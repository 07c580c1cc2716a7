-- How far the chronicle and the audit trail have become events of lineage; whoever makes them has the row locked.
CREATE TABLE duckicelake_lineage_follower (
    lake_id     uuid    NOT NULL,  -- goes into the ids of runs and the names of jobs
    snapshot_id bigint  NOT NULL,  -- the last position of the chronicle
    ordinal     integer NOT NULL,
    audit_id    bigint  NOT NULL,  -- the last entry that was looked at; refusals of before are none of ours
    streams     json    NOT NULL   -- runs that are open
);
INSERT INTO duckicelake_lineage_follower
SELECT gen_random_uuid(), -1, 0, coalesce(max(id), 0), '[]' FROM duckicelake_audit;
