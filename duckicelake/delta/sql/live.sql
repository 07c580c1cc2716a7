-- The files of the table: the last word on each file and deletion vector, where that is an add (Action Reconciliation).
CREATE OR REPLACE TEMP TABLE delta_live AS
WITH words AS (
    SELECT version, "add" IS NOT NULL AS added, "add",
           coalesce("add".path, remove.path) AS path,
           coalesce("add".deletionVector, remove.deletionVector) AS vector
    FROM delta_line
    WHERE "add" IS NOT NULL OR remove IS NOT NULL
)
SELECT url_decode(path) AS path, "add".partitionValues AS partition_values, "add".stats AS stats, vector
FROM words
QUALIFY added AND row_number() OVER (
    PARTITION BY url_decode(path), vector.storageType, vector.pathOrInlineDv, vector."offset"
    ORDER BY version DESC, added DESC
) = 1
