-- 0018_deliveries.sql was edited after lakes had it.
CREATE INDEX IF NOT EXISTS duckicelake_dead_letter_again ON duckicelake_dead_letter (transport, event_id) WHERE again;
