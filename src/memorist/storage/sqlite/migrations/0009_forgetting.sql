-- What stands in the logs about a memory is looked for whenever it is forgotten.
CREATE INDEX history_replaced ON history (scope, old_ref) WHERE old_ref IS NOT NULL;
CREATE INDEX events_memory ON events (scope, memory_id) WHERE memory_id IS NOT NULL;
CREATE INDEX change_log_memory ON change_log (scope, memory_id);
