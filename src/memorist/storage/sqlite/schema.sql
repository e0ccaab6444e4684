-- The whole schema, as the migrations leave it; `tests/unit/test_migrations.py` compares the two.

CREATE TABLE migrations (number INTEGER PRIMARY KEY, name TEXT, checksum TEXT NOT NULL);

CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL);

CREATE TABLE scopes (
  id INTEGER PRIMARY KEY,
  tenant TEXT NOT NULL,
  user_id TEXT NOT NULL,
  space TEXT NOT NULL,
  revision INTEGER NOT NULL DEFAULT 0, head TEXT,
  UNIQUE (tenant, user_id, space)
);

CREATE TABLE memories (
  row INTEGER PRIMARY KEY AUTOINCREMENT,
  scope INTEGER NOT NULL REFERENCES scopes (id),
  id TEXT NOT NULL,
  changed INTEGER NOT NULL,
  session TEXT, thread TEXT, run TEXT, channel TEXT, agent TEXT, actor TEXT, subject TEXT, role TEXT,
  sequence INTEGER,
  speaker TEXT,
  text TEXT NOT NULL,
  summary TEXT,
  steps_text TEXT,
  kind TEXT NOT NULL,
  item_type TEXT,
  fact_type TEXT,
  category TEXT,
  procedural_form TEXT,
  tier TEXT NOT NULL,
  key TEXT,
  importance REAL NOT NULL,
  base_importance REAL NOT NULL,
  importance_parts TEXT NOT NULL,
  confidence REAL NOT NULL,
  metadata_confidence REAL NOT NULL,
  tags TEXT NOT NULL,
  source_ids TEXT NOT NULL,
  evidence TEXT NOT NULL,
  evidence_ids TEXT NOT NULL,
  evidence_text TEXT,
  source_message_id TEXT,
  source_session_id TEXT,
  pinned INTEGER NOT NULL,
  manually_saved INTEGER NOT NULL,
  repeat_count INTEGER NOT NULL DEFAULT 0,
  simhash INTEGER NOT NULL,
  content_hash TEXT NOT NULL,
  occurred_at TEXT,
  valid_from TEXT,
  valid_to TEXT,
  created_at TEXT NOT NULL,
  updated_at TEXT NOT NULL,
  state TEXT NOT NULL,
  compression_source INTEGER NOT NULL,
  superseded_by TEXT,
  purge_at TEXT,
  needs_embedding INTEGER NOT NULL DEFAULT 1,
  revision INTEGER NOT NULL,
  row_hash BLOB NOT NULL,
  last_accessed TEXT,
  access_count INTEGER NOT NULL DEFAULT 0,
  last_scores TEXT,
  flags INTEGER NOT NULL,
  terms BLOB NOT NULL, metadata TEXT, expires_at TEXT,
  UNIQUE (scope, id)
);

CREATE UNIQUE INDEX memories_scope ON memories (scope, row);
CREATE INDEX memories_changed ON memories (scope, changed);

CREATE INDEX memories_content ON memories (scope, content_hash);

CREATE INDEX memories_session ON memories (scope, session, sequence);

CREATE UNIQUE INDEX memories_key ON memories (scope, key) WHERE key IS NOT NULL AND state = 'active';

CREATE INDEX memories_purge ON memories (scope, purge_at) WHERE purge_at IS NOT NULL;

CREATE INDEX memories_replaced ON memories (scope, superseded_by) WHERE superseded_by IS NOT NULL;

CREATE INDEX memories_metadata ON memories (scope, row, metadata) WHERE metadata IS NOT NULL;

CREATE INDEX memories_expiry ON memories (scope, expires_at) WHERE expires_at IS NOT NULL;

CREATE INDEX memories_waiting ON memories (row) WHERE needs_embedding = 1;

CREATE TABLE erased (scope INTEGER NOT NULL, row INTEGER NOT NULL, changed INTEGER NOT NULL);

CREATE INDEX erased_changed ON erased (scope, changed);

CREATE TABLE vectors (
  scope INTEGER NOT NULL,
  memory INTEGER NOT NULL,
  model TEXT NOT NULL,
  dims INTEGER NOT NULL,
  embedding BLOB NOT NULL,
  PRIMARY KEY (scope, memory, model),
  FOREIGN KEY (scope, memory) REFERENCES memories (scope, row) ON DELETE CASCADE
);

CREATE TABLE claims (
  scope INTEGER NOT NULL,
  memory INTEGER NOT NULL,
  model TEXT NOT NULL,
  worker TEXT NOT NULL,
  until REAL NOT NULL,
  PRIMARY KEY (scope, memory, model),
  FOREIGN KEY (scope, memory) REFERENCES memories (scope, row) ON DELETE CASCADE
);
CREATE INDEX claims_worker ON claims (worker);

CREATE TABLE messages (
  row INTEGER PRIMARY KEY AUTOINCREMENT,
  scope INTEGER NOT NULL,
  id TEXT NOT NULL,
  session TEXT,
  role TEXT NOT NULL,
  name TEXT,
  at TEXT,
  text TEXT,
  digest TEXT NOT NULL,
  outcome TEXT NOT NULL,
  UNIQUE (scope, id)
);

CREATE TABLE history (
  row INTEGER PRIMARY KEY AUTOINCREMENT,
  id TEXT NOT NULL UNIQUE,
  scope INTEGER NOT NULL,
  memory_id TEXT NOT NULL,
  event TEXT NOT NULL CHECK (event IN ('ADD', 'UPDATE', 'DELETE', 'MERGE', 'LINK', 'TTL', 'RESTORE')),
  old_ref TEXT,
  new_ref TEXT,
  actor TEXT,
  meta TEXT NOT NULL,
  ts TEXT NOT NULL
, seal TEXT, digest TEXT);

CREATE INDEX history_memory ON history (scope, memory_id, ts DESC);

CREATE INDEX history_scope ON history (scope, row DESC);
CREATE INDEX history_replaced ON history (scope, old_ref) WHERE old_ref IS NOT NULL;

CREATE TABLE thread_revision (
  scope INTEGER NOT NULL,
  thread_id TEXT NOT NULL,
  rev INTEGER NOT NULL, shown INTEGER NOT NULL DEFAULT 0,
  PRIMARY KEY (scope, thread_id)
);

CREATE TABLE change_log (
  id TEXT PRIMARY KEY,
  scope INTEGER NOT NULL,
  thread_id TEXT NOT NULL,
  rev INTEGER NOT NULL,
  memory_id TEXT NOT NULL,
  event TEXT NOT NULL,
  meta TEXT NOT NULL,
  ts TEXT NOT NULL
);

CREATE INDEX change_log_thread ON change_log (scope, thread_id, rev DESC);
CREATE INDEX change_log_memory ON change_log (scope, memory_id);

CREATE TABLE tombstones (
  scope INTEGER NOT NULL,
  digest TEXT NOT NULL,
  until TEXT,
  PRIMARY KEY (scope, digest)
);

CREATE TABLE summaries (
  id TEXT NOT NULL,
  scope INTEGER NOT NULL,
  record_type TEXT NOT NULL CHECK (record_type IN ('user_profile', 'project_memory')),
  name TEXT NOT NULL,
  data TEXT NOT NULL,
  evidence_ids TEXT NOT NULL,
  at TEXT NOT NULL,
  PRIMARY KEY (scope, id)
);

CREATE INDEX summaries_newest ON summaries (scope, record_type, at DESC);

CREATE TABLE relations (
  id TEXT PRIMARY KEY,
  scope INTEGER NOT NULL,
  from_id TEXT NOT NULL,
  to_id TEXT NOT NULL,
  relation_type TEXT NOT NULL DEFAULT 'related_to',
  strength REAL NOT NULL,
  created_at TEXT NOT NULL,
  UNIQUE (scope, from_id, to_id, relation_type)
);

CREATE INDEX relations_from ON relations (scope, from_id);

CREATE INDEX relations_to ON relations (scope, to_id);

CREATE TABLE events (
  id TEXT PRIMARY KEY,
  scope INTEGER NOT NULL,
  user_id TEXT NOT NULL,
  thread_id TEXT,
  node TEXT NOT NULL,
  op TEXT NOT NULL,
  status TEXT NOT NULL,
  memory_id TEXT,
  category TEXT,
  sim REAL,
  ts TEXT NOT NULL
);

CREATE INDEX events_user ON events (user_id, ts DESC);

CREATE INDEX events_node ON events (node, ts DESC);
CREATE INDEX events_memory ON events (scope, memory_id) WHERE memory_id IS NOT NULL;

CREATE TABLE supervisor_checkpoints (
  id TEXT PRIMARY KEY,
  scope INTEGER NOT NULL,
  user_id TEXT NOT NULL,
  thread_id TEXT NOT NULL,
  checkpoint_data TEXT NOT NULL,
  created_at TEXT NOT NULL,
  updated_at TEXT NOT NULL
);

CREATE UNIQUE INDEX supervisor_checkpoints_thread ON supervisor_checkpoints (scope, user_id, thread_id);

CREATE INDEX supervisor_checkpoints_updated ON supervisor_checkpoints (updated_at DESC);

CREATE TABLE consent_queue (
  id TEXT PRIMARY KEY,
  scope INTEGER NOT NULL,
  field TEXT NOT NULL,
  proposal TEXT NOT NULL,
  decided TEXT,
  created_at TEXT NOT NULL,
  lapses_at TEXT NOT NULL
);

CREATE TABLE pair_fingerprints (
  scope INTEGER NOT NULL,
  id_a TEXT NOT NULL,
  id_b TEXT NOT NULL,
  score REAL NOT NULL,
  checked_at TEXT NOT NULL,
  PRIMARY KEY (scope, id_a, id_b)
);

CREATE TABLE space_settings (scope INTEGER NOT NULL, key TEXT NOT NULL, value TEXT NOT NULL, PRIMARY KEY (scope, key));

CREATE TABLE incognito_sessions (
  scope INTEGER NOT NULL,
  session TEXT NOT NULL,
  started_at TEXT NOT NULL,
  PRIMARY KEY (scope, session)
);

CREATE TABLE graph_checkpoints (
  scope INTEGER NOT NULL,
  thread_id TEXT NOT NULL,
  ns TEXT NOT NULL,
  checkpoint_id TEXT NOT NULL,
  parent_id TEXT,
  run_id TEXT,
  channels TEXT NOT NULL,
  metadata TEXT NOT NULL,
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
  namespace TEXT NOT NULL,
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
  embedding BLOB NOT NULL, terms BLOB,
  PRIMARY KEY (scope, namespace, key, field)
);

CREATE TABLE index_positions (
  scope INTEGER NOT NULL,
  name TEXT NOT NULL,
  revision INTEGER NOT NULL,
  PRIMARY KEY (scope, name)
);

CREATE TABLE tasks (
  scope INTEGER NOT NULL,
  name TEXT NOT NULL,
  key TEXT NOT NULL,
  payload TEXT NOT NULL,
  due_at TEXT NOT NULL,
  attempts INTEGER NOT NULL DEFAULT 0,
  lease TEXT,
  until REAL,
  PRIMARY KEY (scope, name, key)
);
CREATE INDEX tasks_due ON tasks (name, due_at);

CREATE TABLE spending (
  scope INTEGER NOT NULL,
  day TEXT NOT NULL,
  task TEXT NOT NULL,
  model TEXT NOT NULL,
  calls INTEGER NOT NULL,
  tokens_in INTEGER NOT NULL,
  tokens_out INTEGER NOT NULL,
  reserved INTEGER NOT NULL,
  PRIMARY KEY (scope, day, task, model)
);

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
, made_by TEXT);

CREATE TABLE answered (
  caller TEXT NOT NULL,
  key TEXT NOT NULL,
  request TEXT NOT NULL,
  answer TEXT,
  at TEXT NOT NULL,
  PRIMARY KEY (caller, key)
);
CREATE INDEX answered_at ON answered (at);

CREATE VIEW kv_procedural AS
  SELECT s.user_id, m.key, m.text AS value, m.confidence, m.updated_at
  FROM memories m JOIN scopes s ON s.id = m.scope
  WHERE m.key IS NOT NULL AND m.kind = 'procedural' AND m.state = 'active';

CREATE VIEW memory_facts AS
  SELECT m.id, s.space AS guild_id, m.channel AS channel_id, m.subject, m.text AS fact, m.fact_type, m.evidence_text,
    m.source_message_id, m.confidence, CASE WHEN m.state = 'active' THEN 1 ELSE 0 END AS is_active,
    m.created_at, m.updated_at
  FROM memories m JOIN scopes s ON s.id = m.scope
  WHERE m.fact_type IS NOT NULL AND m.subject IS NOT NULL AND m.state IN ('active', 'archived');

CREATE VIEW memory_fact_vectors_native AS
  SELECT m.id AS fact_id, v.model, v.dims, v.embedding AS embedding_blob
  FROM vectors v JOIN memories m ON m.scope = v.scope AND m.row = v.memory
  WHERE m.fact_type IS NOT NULL AND m.subject IS NOT NULL;
