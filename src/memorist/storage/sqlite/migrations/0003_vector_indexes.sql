-- How far each vector index has followed the changes of each scope.
CREATE TABLE index_positions (
  scope INTEGER NOT NULL,
  name TEXT NOT NULL,
  revision INTEGER NOT NULL,
  PRIMARY KEY (scope, name)
);
