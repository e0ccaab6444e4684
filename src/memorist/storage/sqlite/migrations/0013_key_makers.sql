-- The caller that created a key: whoever revokes that caller's key revokes this one, too.
ALTER TABLE api_keys ADD COLUMN made_by TEXT;
