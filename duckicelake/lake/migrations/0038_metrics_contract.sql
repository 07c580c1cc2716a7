-- Manifests that were written before their metrics had a contract: the next load of their table checks each of them, and
-- has those written anew that promise clients more than is known. Newer ones say the number of their contract.
CREATE INDEX duckicelake_artifact_unchecked ON duckicelake_artifact (table_id, object_id)
    WHERE kind = 'manifest' AND facts ->> 'contract' IS NULL;
