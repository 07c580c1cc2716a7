-- Manifests whose files a client chose (rewrite_manifests) aren't packed with others. NULL: the server chose.
ALTER TABLE duckicelake_manifest ADD COLUMN is_laid_out boolean;
