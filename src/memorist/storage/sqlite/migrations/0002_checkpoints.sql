-- The checkpoints of graphs, and the items an agent keeps under names of its own.

CREATE TABLE graph_checkpoints (
  scope INTEGER NOT NULL,
  thread_id TEXT NOT NULL,
  ns TEXT NOT NULL,
  checkpoint_id TEXT NOT NULL,
  parent_id TEXT,
  run_id TEXT,
  channels TEXT NOT NULL,              -- the version of each channel; null where older writes make up its value
  metadata TEXT NOT NULL,              -- to filter by: the JSON of each value, as text
  type TEXT NOT NULL,
  data BLOB NOT NULL,
  PRIMARY KEY (scope, thread_id, ns, checkpoint_id)
);
CREATE INDEX graph_checkpoints_run ON graph_checkpoints (scope, run_id);

CREATE TABLE graph_values (
  scope INTEGER NOT NULL,
  thread_id TEXT NOT NULL,
  ns TEXT NOT NULL,
  channel TEXT NOT NULL,
  version TEXT NOT NULL,
  type TEXT NOT NULL,
  data BLOB NOT NULL,
  PRIMARY KEY (scope, thread_id, ns, channel, version)
);

CREATE TABLE graph_writes (
  scope INTEGER NOT NULL,
  thread_id TEXT NOT NULL,
  ns TEXT NOT NULL,
  checkpoint_id TEXT NOT NULL,
  task_id TEXT NOT NULL,
  idx INTEGER NOT NULL,
  task_path TEXT NOT NULL,
  channel TEXT NOT NULL,
  type TEXT NOT NULL,
  data BLOB NOT NULL,
  PRIMARY KEY (scope, thread_id, ns, checkpoint_id, task_id, idx)
);

CREATE TABLE items (
  scope INTEGER NOT NULL,
  namespace TEXT NOT NULL,             -- labels joined by dots
  key TEXT NOT NULL,
  value TEXT NOT NULL,
  created_at TEXT NOT NULL,
  updated_at TEXT NOT NULL,
  ttl_minutes REAL,
  expires_at TEXT,
  PRIMARY KEY (scope, namespace, key)
);
CREATE INDEX items_expiry ON items (scope, expires_at);

CREATE TABLE item_vectors (
  scope INTEGER NOT NULL,
  namespace TEXT NOT NULL,
  key TEXT NOT NULL,
  field TEXT NOT NULL,
  model TEXT NOT NULL,
  embedding BLOB NOT NULL,
  PRIMARY KEY (scope, namespace, key, field)
);
