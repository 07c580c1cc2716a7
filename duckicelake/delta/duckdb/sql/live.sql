-- The files of the table: the last word on each file and deletion vector, where that is an add (Action Reconciliation).
CREATE OR REPLACE TEMP TABLE delta_live AS
SELECT path, partition_values, stats, vector
FROM delta_line
WHERE added IS NOT NULL
QUALIFY added AND row_number() OVER (
    PARTITION BY path, vector ->> '$.storageType', vector ->> '$.pathOrInlineDv', vector ->> '$.offset'
    ORDER BY version DESC, added DESC
) = 1
