-- Who may come in, and which requests were answered already.
CREATE TABLE api_keys (
  id TEXT PRIMARY KEY,
  digest TEXT NOT NULL,
  name TEXT NOT NULL,
  tenant TEXT NOT NULL,
  user_id TEXT NOT NULL,
  space TEXT,
  agent TEXT,
  rights TEXT NOT NULL,
  created_at TEXT NOT NULL,
  expires_at TEXT,
  revoked_at TEXT
);
CREATE TABLE answered (
  caller TEXT NOT NULL,
  key TEXT NOT NULL,
  request TEXT NOT NULL,
  answer TEXT,
  at TEXT NOT NULL,
  PRIMARY KEY (caller, key)
);
CREATE INDEX answered_at ON answered (at);
