-- Each entry of the history is sealed with the one before; the scope knows the last. A thread knows what was shown of it.
ALTER TABLE history ADD COLUMN seal TEXT;
ALTER TABLE history ADD COLUMN digest TEXT;
ALTER TABLE scopes ADD COLUMN head TEXT;
ALTER TABLE thread_revision ADD COLUMN shown INTEGER NOT NULL DEFAULT 0;
CREATE INDEX memories_purge ON memories (scope, purge_at) WHERE purge_at IS NOT NULL;
