-- Version 0.1 was called Recollect. Its schema gets the new name, and so do the settings that
-- row-level security compares rows with. The role of version 0.1 belongs to the whole cluster and
-- other databases may still use it, so it stays and only loses its rights here. The new role gets
-- its rights after the last step. In a new database this step changes nothing.

DO $$
DECLARE
  path text := regexp_replace(current_setting('search_path'), '^recollect', 'memorist');
  policy record;
  condition text;
BEGIN
  IF current_schema() IS DISTINCT FROM 'recollect' THEN
    RETURN;
  END IF;
  ALTER SCHEMA recollect RENAME TO memorist;
  PERFORM set_config('search_path', path, true);
  FOR policy IN
    SELECT tablename, policyname FROM pg_policies
    WHERE schemaname = 'memorist' AND policyname IN ('one_scope', 'every_scope')
  LOOP
    IF policy.policyname = 'one_scope' THEN
      condition :=
        'scope = (SELECT nullif(current_setting(''memorist.scope'', true), '''')::bigint)';
    ELSE
      condition := '(SELECT current_setting(''memorist.every_scope'', true)) = ''on''';
    END IF;
    EXECUTE format(
      'ALTER POLICY %I ON memorist.%I USING (%s)', policy.policyname, policy.tablename, condition
    );
  END LOOP;
  IF EXISTS (SELECT FROM pg_roles WHERE rolname = 'recollect_app') THEN
    REVOKE ALL ON ALL TABLES IN SCHEMA memorist FROM recollect_app;
    REVOKE ALL ON ALL SEQUENCES IN SCHEMA memorist FROM recollect_app;
    REVOKE ALL ON SCHEMA memorist FROM recollect_app;
  END IF;
END $$;
