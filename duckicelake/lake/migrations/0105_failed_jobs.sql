-- Attempts of workers that failed lately are counted every few seconds, however many jobs there were since.
CREATE INDEX duckicelake_job_failed ON duckicelake_job (ended) WHERE result IN ('failed', 'lost', 'skipped');
