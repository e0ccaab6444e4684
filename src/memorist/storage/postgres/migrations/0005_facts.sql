-- Facts about somebody, as one reads them who knows guilds, channels and subjects.
CREATE VIEW memory_facts WITH (security_invoker = true) AS
  SELECT m.id, s.space AS guild_id, m.channel AS channel_id, m.subject, m.text AS fact, m.fact_type, m.evidence_text,
    m.source_message_id, m.confidence, CASE WHEN m.state = 'active' THEN 1 ELSE 0 END AS is_active,
    m.created_at, m.updated_at
  FROM memories m JOIN scopes s ON s.id = m.scope
  WHERE m.fact_type IS NOT NULL AND m.subject IS NOT NULL AND m.state IN ('active', 'archived');
CREATE VIEW memory_fact_vectors_native WITH (security_invoker = true) AS
  SELECT m.id AS fact_id, v.model, v.dims, v.embedding AS embedding_blob
  FROM vectors v JOIN memories m ON m.scope = v.scope AND m.row = v.memory
  WHERE m.fact_type IS NOT NULL AND m.subject IS NOT NULL;
