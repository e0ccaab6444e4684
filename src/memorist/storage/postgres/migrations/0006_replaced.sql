-- What a memory has replaced is looked for whenever that is forgotten, hidden or brought back.
CREATE INDEX memories_replaced ON memories (scope, superseded_by) WHERE superseded_by IS NOT NULL;
