-- Row-level security for every table with a scope, and the privileges of the role that obeys it.
-- Run after the migrations. Tables that are already protected are skipped.
DO $$
DECLARE
  name text;
BEGIN
  FOR name IN
    SELECT c.relname FROM pg_class c
    WHERE c.relnamespace = 'memorist'::regnamespace AND c.relkind IN ('r', 'p')
    AND NOT (c.relrowsecurity AND c.relforcerowsecurity)
    AND EXISTS (SELECT 1 FROM pg_attribute a
      WHERE a.attrelid = c.oid AND a.attname = 'scope' AND NOT a.attisdropped)
    ORDER BY 1
  LOOP
    EXECUTE format('ALTER TABLE memorist.%I ENABLE ROW LEVEL SECURITY', name);
    EXECUTE format('ALTER TABLE memorist.%I FORCE ROW LEVEL SECURITY', name); -- for the owner too
    EXECUTE format('CREATE POLICY one_scope ON memorist.%I USING
      (scope = (SELECT nullif(current_setting(''memorist.scope'', true), '''')::bigint))', name);
    EXECUTE format('CREATE POLICY every_scope ON memorist.%I USING
      ((SELECT current_setting(''memorist.every_scope'', true)) = ''on'')', name);
  END LOOP;
  -- A user who bypasses row-level security switches to a role that does not.
  IF (SELECT rolsuper OR rolbypassrls FROM pg_roles WHERE rolname = session_user) THEN
    BEGIN
      CREATE ROLE memorist_app NOLOGIN;
    EXCEPTION WHEN duplicate_object OR unique_violation THEN NULL;
    END;
    GRANT USAGE ON SCHEMA memorist TO memorist_app;
    GRANT USAGE, UPDATE ON ALL SEQUENCES IN SCHEMA memorist TO memorist_app;
    FOR name IN
      SELECT c.relname FROM pg_class c WHERE c.relnamespace = 'memorist'::regnamespace
      AND c.relkind IN ('r', 'p') AND NOT c.relispartition ORDER BY 1
    LOOP
      EXECUTE format(
        'GRANT SELECT, INSERT, UPDATE, DELETE ON memorist.%I TO memorist_app', name);
    END LOOP;
  END IF;
END $$
