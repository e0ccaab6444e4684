-- Work that waits for somebody to do it, and what the language model cost.
CREATE TABLE tasks (
  scope bigint NOT NULL,
  name text NOT NULL,
  key text NOT NULL,
  payload text NOT NULL,
  due_at timestamptz NOT NULL,
  attempts bigint NOT NULL DEFAULT 0,
  lease text,
  until double precision,
  PRIMARY KEY (scope, name, key)
) /* by scope */;
CREATE INDEX tasks_due ON tasks (name, due_at);
CREATE TABLE spending (
  scope bigint NOT NULL,
  day text NOT NULL,
  task text NOT NULL,
  model text NOT NULL,
  calls bigint NOT NULL,
  tokens_in bigint NOT NULL,
  tokens_out bigint NOT NULL,
  reserved bigint NOT NULL,
  PRIMARY KEY (scope, day, task, model)
) /* by scope */;
