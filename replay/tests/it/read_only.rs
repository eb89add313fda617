//! It never writes: the session refuses, the role may not, and nothing has changed afterwards.

use event_log::testing::TestDatabase;
use replay::source::Source;

use crate::log::{filled, replay, run, text};

#[tokio::test(flavor = "multi_thread")]
async fn the_session_cannot_write_whatever_its_role() {
    let database = filled().await;
    for url in [database.audit_url(), database.administrator_url()] {
        let source = Source::Url(url);
        let set = source
            .with(async |client| {
                let row = client.query_one("SHOW default_transaction_read_only", &[]).await?;
                Ok(row.get::<_, String>(0))
            })
            .await;
        assert_eq!(set.unwrap(), "on");
        for statement in
            ["DELETE FROM views.runs", "CREATE TEMPORARY TABLE t (a int)", "SELECT log.prune_request_keys()"]
        {
            let refused = source.with(async |client| Ok(client.batch_execute(statement).await?)).await;
            let words = refused.unwrap_err().with_causes();
            assert!(
                words.contains("read-only transaction") || words.contains("permission denied"),
                "{statement}: {words}"
            );
        }
    }
}

/// Also with the setting taken back, the audit role has no right to change anything.
#[tokio::test(flavor = "multi_thread")]
async fn the_role_has_no_right_to_write() {
    let database = filled().await;
    let administrator = database.administrator().await.unwrap();
    let writable = "\
        SELECT c.oid::regclass::text || ' ' || p.privilege FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace \
        CROSS JOIN unnest(ARRAY['INSERT', 'UPDATE', 'DELETE', 'TRUNCATE', 'TRIGGER', 'REFERENCES']) AS p (privilege) \
        WHERE n.nspname IN ('log', 'views') AND c.relkind IN ('r', 'p') AND has_table_privilege('leasehold_audit', c.oid, p.privilege) \
        UNION ALL SELECT s.schema || ' CREATE' FROM unnest(ARRAY['log', 'views', 'public']) AS s (schema) \
        WHERE has_schema_privilege('leasehold_audit', s.schema, 'CREATE') \
        UNION ALL SELECT p.oid::regprocedure::text FROM pg_proc AS p JOIN pg_namespace AS n ON n.oid = p.pronamespace \
        WHERE n.nspname IN ('log', 'views') AND has_function_privilege('leasehold_audit', p.oid, 'EXECUTE') \
        UNION ALL SELECT 'attribute of the role' FROM pg_roles WHERE rolname = 'leasehold_audit' \
        AND (rolsuper OR rolcreaterole OR rolcreatedb OR rolreplication OR rolbypassrls) \
        UNION ALL SELECT 'member of ' || r.rolname FROM pg_roles AS r WHERE r.rolname <> 'leasehold_audit' \
        AND pg_has_role('leasehold_audit', r.oid, 'MEMBER')";
    let found: Vec<String> =
        administrator.query(writable, &[]).await.unwrap().iter().map(|row| row.get(0)).collect();
    assert_eq!(found, Vec::<String>::new());
    // The question finds something where there is something.
    let service = writable.replace("leasehold_audit", "leasehold_project");
    assert!(!administrator.query(&service, &[]).await.unwrap().is_empty());
}

/// Every row of every table, as one digest.
async fn contents(database: &TestDatabase) -> String {
    let administrator = database.administrator().await.unwrap();
    let tables = "SELECT c.oid::regclass::text FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace \
                  WHERE n.nspname IN ('log', 'views') AND c.relkind = 'r' ORDER BY 1";
    let mut all = String::new();
    for row in administrator.query(tables, &[]).await.unwrap() {
        let table: String = row.get(0);
        let sql = format!(
            "SELECT coalesce(md5(string_agg(t::text || t.xmin::text, ',' ORDER BY t::text)), '-') FROM {table} AS t"
        );
        let digest: String = administrator.query_one(&sql, &[]).await.unwrap().get(0);
        all.push_str(&format!("{table} {digest}\n"));
    }
    all
}

#[tokio::test(flavor = "multi_thread")]
async fn no_subcommand_changes_a_row() {
    let database = filled().await;
    let before = contents(&database).await;
    assert!(before.contains("log.events_p0") && before.contains("views.commands"), "{before}");
    // As the administrator, whose rights would let it.
    let (url, run) = (database.administrator_url(), run().to_string());
    for command in [&["verify"][..], &["timeline"], &["state-at"], &["diff"], &["export", "--run", &run]] {
        let output = replay(&[command, &["--database-url", &url]].concat());
        assert_eq!(output.status.code(), Some(0), "{command:?}: {}", text(&output.stderr));
    }
    assert_eq!(contents(&database).await, before);
}
