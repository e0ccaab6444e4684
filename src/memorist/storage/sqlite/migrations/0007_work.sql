-- Work that waits for somebody to do it, and what the language model cost.
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
