-- Each entry of the history is sealed with the one before; the scope knows the last. A thread knows what was shown of it.
ALTER TABLE history ADD COLUMN seal text, ADD COLUMN digest text;
ALTER TABLE scopes ADD COLUMN head text;
ALTER TABLE thread_revision ADD COLUMN shown bigint NOT NULL DEFAULT 0;
CREATE INDEX memories_purge ON memories (scope, purge_at) WHERE purge_at IS NOT NULL;
