-- Metadata of callers, and the end that they give to a memory. Few memories have either, so both
-- indexes hold those alone; a filter on metadata reads the index instead of the table.
ALTER TABLE memories ADD COLUMN metadata TEXT;
ALTER TABLE memories ADD COLUMN expires_at TEXT;
CREATE INDEX memories_metadata ON memories (scope, row, metadata) WHERE metadata IS NOT NULL;
CREATE INDEX memories_expiry ON memories (scope, expires_at) WHERE expires_at IS NOT NULL;
