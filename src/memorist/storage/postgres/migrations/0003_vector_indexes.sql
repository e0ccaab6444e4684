-- How far each vector index has followed the changes of each scope.
CREATE TABLE index_positions (
  scope bigint NOT NULL,
  name text NOT NULL,
  revision bigint NOT NULL,
  PRIMARY KEY (scope, name)
) /* by scope */;
