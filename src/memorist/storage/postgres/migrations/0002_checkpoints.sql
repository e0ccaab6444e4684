-- The checkpoints of graphs, and the items an agent keeps under names of its own: the same tables as on SQLite.
-- Names are compared byte by byte, so that checkpoints, writes and namespaces have the same order on both.

CREATE TABLE graph_checkpoints (
  scope bigint NOT NULL,
  thread_id text COLLATE "C" NOT NULL,
  ns text COLLATE "C" NOT NULL,
  checkpoint_id text COLLATE "C" NOT NULL,
  parent_id text COLLATE "C",
  run_id text COLLATE "C",
  channels text NOT NULL,
  metadata jsonb NOT NULL,
  type text NOT NULL,
  data bytea NOT NULL,
  PRIMARY KEY (scope, thread_id, ns, checkpoint_id)
) /* by scope */;
CREATE INDEX graph_checkpoints_run ON graph_checkpoints (scope, run_id);

CREATE TABLE graph_values (
  scope bigint NOT NULL,
  thread_id text COLLATE "C" NOT NULL,
  ns text COLLATE "C" NOT NULL,
  channel text COLLATE "C" NOT NULL,
  version text COLLATE "C" NOT NULL,
  type text NOT NULL,
  data bytea NOT NULL,
  PRIMARY KEY (scope, thread_id, ns, channel, version)
) /* by scope */;

CREATE TABLE graph_writes (
  scope bigint NOT NULL,
  thread_id text COLLATE "C" NOT NULL,
  ns text COLLATE "C" NOT NULL,
  checkpoint_id text COLLATE "C" NOT NULL,
  task_id text COLLATE "C" NOT NULL,
  idx integer NOT NULL,
  task_path text COLLATE "C" NOT NULL,
  channel text COLLATE "C" NOT NULL,
  type text NOT NULL,
  data bytea NOT NULL,
  PRIMARY KEY (scope, thread_id, ns, checkpoint_id, task_id, idx)
) /* by scope */;

CREATE TABLE items (
  scope bigint NOT NULL,
  namespace text COLLATE "C" NOT NULL,
  key text COLLATE "C" NOT NULL,
  value text NOT NULL,
  created_at timestamptz NOT NULL,
  updated_at timestamptz NOT NULL,
  ttl_minutes double precision,
  expires_at timestamptz,
  PRIMARY KEY (scope, namespace, key)
) /* by scope */;
CREATE INDEX items_expiry ON items (scope, expires_at);

CREATE TABLE item_vectors (
  scope bigint NOT NULL,
  namespace text COLLATE "C" NOT NULL,
  key text COLLATE "C" NOT NULL,
  field text COLLATE "C" NOT NULL,
  model text NOT NULL,
  embedding bytea NOT NULL,
  PRIMARY KEY (scope, namespace, key, field)
) /* by scope */;
