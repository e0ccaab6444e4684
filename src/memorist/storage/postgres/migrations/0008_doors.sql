-- Who may come in, and which requests were answered already.
CREATE TABLE api_keys (
  id text PRIMARY KEY,
  digest text NOT NULL,
  name text NOT NULL,
  tenant text NOT NULL,
  user_id text NOT NULL,
  space text,
  agent text,
  rights text NOT NULL,
  created_at timestamptz NOT NULL,
  expires_at timestamptz,
  revoked_at timestamptz
);
CREATE TABLE answered (
  caller text NOT NULL,
  key text NOT NULL,
  request text NOT NULL,
  answer text,
  at timestamptz NOT NULL,
  PRIMARY KEY (caller, key)
);
CREATE INDEX answered_at ON answered (at);
DROP INDEX memories_versions; -- the same as memories_replaced
