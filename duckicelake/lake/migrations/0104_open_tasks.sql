-- The queue is looked at twice a second, and keeps tasks that are done for two days. The index has all others.
CREATE INDEX duckicelake_upkeep_task_open ON duckicelake_upkeep_task (state, available) WHERE state <> 'done';
