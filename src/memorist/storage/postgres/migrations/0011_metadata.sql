-- Metadata of callers, and the end that they give to a memory. Few memories have either, so both
-- indexes hold those alone.
ALTER TABLE memories ADD COLUMN metadata json;
ALTER TABLE memories ADD COLUMN expires_at timestamptz;
CREATE INDEX memories_metadata ON memories (scope, row) WHERE metadata IS NOT NULL;
CREATE INDEX memories_expiry ON memories (scope, expires_at) WHERE expires_at IS NOT NULL;
