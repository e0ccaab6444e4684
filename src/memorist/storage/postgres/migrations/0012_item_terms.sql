-- The terms of a text that an agent stored, to search it by words as well as by meaning.
ALTER TABLE item_vectors ADD COLUMN terms bytea;
