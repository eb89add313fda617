//! The embedded server: start, refusal of a second owner, take-over after a kill, restart on the same data.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use event_log::embedded::{EmbeddedError, EmbeddedPostgres, find_running, installed};
use event_log::testing::test_database;
use tokio_postgres::NoTls;

async fn query(url: &str, sql: &str) -> String {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await.unwrap();
    let connection = tokio::task::spawn_local(connection);
    let value: String = client.query_one(sql, &[]).await.unwrap().get(0);
    drop(client);
    connection.await.unwrap().unwrap();
    value
}

/// A directory that the server's account can reach, as `./dev` makes it in a checkout.
fn reachable_dir() -> tempfile::TempDir {
    temp_dir(0o755)
}

fn temp_dir(mode: u32) -> tempfile::TempDir {
    tempfile::Builder::new().permissions(std::fs::Permissions::from_mode(mode)).tempdir().unwrap()
}

fn postmaster_pid(cluster: &Path) -> i32 {
    let text = std::fs::read_to_string(cluster.join("postmaster.pid")).unwrap();
    text.lines().next().unwrap().parse().unwrap()
}

#[tokio::test(flavor = "local")]
async fn serves_every_role_but_no_tcp_and_survives_a_restart() {
    let dir = reachable_dir();
    let server = EmbeddedPostgres::start(dir.path()).await.unwrap();
    event_log::migrate(&server.migrate_url()).await.unwrap();
    for (url, role) in [
        (server.append_url(), "leasehold_append"),
        (server.project_url(), "leasehold_project"),
        (server.seal_url(), "leasehold_seal"),
        (server.audit_url(), "leasehold_audit"),
    ] {
        assert_eq!(query(&url, "SELECT current_user::text").await, role);
    }
    assert_eq!(query(&server.append_url(), "SHOW listen_addresses").await, "");
    assert_eq!(query(&server.append_url(), "SHOW fsync").await, "on");
    let log_id = query(&server.append_url(), "SELECT log_id::text FROM log.log_meta").await;

    let installed = installed().unwrap();
    assert!(installed.bin_dir.join("postgres").is_file());
    let version = query(&server.append_url(), "SHOW server_version_num").await;
    assert_eq!(version.parse::<u32>().unwrap() / 10_000, installed.major);

    let second = EmbeddedPostgres::start(dir.path()).await.unwrap_err();
    assert!(matches!(second, EmbeddedError::InUse { .. }), "{second}");
    assert_eq!(find_running(dir.path()).unwrap(), *server.urls());

    let socket_dir = server.urls().socket_dir().to_owned();
    assert_eq!(socket_dir.metadata().unwrap().permissions().mode() & 0o777, 0o700);
    server.stop().await.unwrap();
    assert!(find_running(dir.path()).is_none());
    assert!(!socket_dir.exists());

    let again = EmbeddedPostgres::start(dir.path()).await.unwrap();
    assert_eq!(query(&again.append_url(), "SELECT log_id::text FROM log.log_meta").await, log_id);
    again.stop().await.unwrap();
}

#[tokio::test(flavor = "local")]
async fn a_killed_server_is_replaced_and_its_stale_lock_removed() {
    let dir = reachable_dir();
    let server = EmbeddedPostgres::start(dir.path()).await.unwrap();
    let pid = postmaster_pid(&dir.path().join("postgres/data"));
    nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid), nix::sys::signal::Signal::SIGKILL).unwrap();
    let socket_dir = server.urls().socket_dir().to_owned();
    drop(server);
    assert!(!socket_dir.exists());
    let again = EmbeddedPostgres::start(dir.path()).await.unwrap();
    assert_ne!(postmaster_pid(&dir.path().join("postgres/data")), pid);
    assert_eq!(query(&again.append_url(), "SELECT current_user::text").await, "leasehold_append");
    again.stop().await.unwrap();
}

#[tokio::test(flavor = "local")]
async fn a_lock_file_that_names_a_foreign_process_is_no_obstacle() {
    let dir = reachable_dir();
    let server = EmbeddedPostgres::start(dir.path()).await.unwrap();
    server.stop().await.unwrap();
    // After a power cut the number may belong to anyone: here to this test.
    let lock = dir.path().join("postgres/data/postmaster.pid");
    std::fs::write(&lock, format!("{}\n/elsewhere\n0\n5432\n", std::process::id())).unwrap();
    assert!(find_running(dir.path()).is_none());
    let again = EmbeddedPostgres::start(dir.path()).await.unwrap();
    again.stop().await.unwrap();
}

#[tokio::test(flavor = "local")]
async fn a_server_whose_owner_vanished_is_taken_over() {
    let dir = reachable_dir();
    let server = EmbeddedPostgres::start(dir.path()).await.unwrap();
    let pid = postmaster_pid(&dir.path().join("postgres/data"));
    let url = server.append_url();
    // As after kill -9: no destructor ran, but the owner's lock is free.
    server.vanish();
    assert!(find_running(dir.path()).is_some());
    let again = EmbeddedPostgres::start(dir.path()).await.unwrap();
    assert_eq!(postmaster_pid(&dir.path().join("postgres/data")), pid);
    assert_eq!(again.append_url(), url);
    again.stop().await.unwrap();
}

#[tokio::test(flavor = "local")]
async fn a_directory_out_of_the_servers_reach_is_served_from_elsewhere() {
    // 0700 of our own: out of reach only when we are root.
    let dir = temp_dir(0o700);
    let data_dir = dir.path().join("data");
    let server = EmbeddedPostgres::start(&data_dir).await.unwrap();
    assert_eq!(query(&server.append_url(), "SELECT current_user::text").await, "leasehold_append");
    server.stop().await.unwrap();
    let record: serde_json::Value =
        serde_json::from_slice(&std::fs::read(data_dir.join("postgres.json")).unwrap()).unwrap();
    let cluster = Path::new(record["cluster"].as_str().unwrap()).to_owned();
    assert_eq!(cluster.starts_with(data_dir.canonicalize().unwrap()), !nix::unistd::geteuid().is_root());
    std::fs::remove_dir_all(cluster.parent().unwrap()).unwrap();
}

#[tokio::test(flavor = "local")]
async fn test_databases_are_fresh_separate_and_removed() {
    let (one, two) = tokio::join!(test_database(), test_database());
    let id = |url: String| async move { query(&url, "SELECT log_id::text FROM log.log_meta").await };
    assert_ne!(id(one.append_url()).await, id(two.append_url()).await);
    let name = query(&one.append_url(), "SELECT current_database()::text").await;
    drop(one);
    let left = format!("SELECT count(*)::text FROM pg_database WHERE datname = '{name}'");
    assert_eq!(query(&two.append_url(), &left).await, "0");
}
