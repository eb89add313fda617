//! The engine from the outside, as an operator or an accident would reach it.

use std::collections::HashSet;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use events::ids::EnvironmentId;
use tokio::net::{UnixListener, UnixStream};
use tokio::task::JoinSet;

/// Runs the engine's client and gives its standard output.
#[expect(clippy::disallowed_methods, reason = "a test acts as the operator of the engine")]
pub(crate) async fn docker(arguments: &[&str]) -> String {
    let output = tokio::process::Command::new("docker").args(arguments).output().await.expect("docker runs");
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("text").trim().to_owned()
}

pub(crate) fn sandbox(id: EnvironmentId) -> String {
    format!("leasehold-{id}-sandbox")
}

pub(crate) fn files(id: EnvironmentId) -> String {
    format!("leasehold-{id}-files")
}

pub(crate) fn volume(id: EnvironmentId) -> String {
    format!("leasehold-{id}-workspace")
}

/// A socket in front of the engine's own that can be cut: an engine that is down, for one adapter alone.
pub(crate) struct CuttableEngine {
    directory: tempfile::TempDir,
    running: Mutex<Option<JoinSet<()>>>,
}

impl CuttableEngine {
    pub(crate) fn start() -> Arc<Self> {
        let engine = Arc::new(Self {
            directory: tempfile::tempdir().expect("a directory"),
            running: Mutex::default(),
        });
        engine.mend();
        engine
    }

    fn socket(&self) -> PathBuf {
        self.directory.path().join("engine.sock")
    }

    pub(crate) fn address(&self) -> String {
        format!("unix://{}", self.socket().display())
    }

    /// Every connection breaks, and none is accepted.
    pub(crate) fn cut(&self) {
        *self.running.lock().unwrap() = None;
        std::fs::remove_file(self.socket()).expect("the socket is there");
    }

    pub(crate) fn mend(&self) {
        let listener = UnixListener::bind(self.socket()).expect("the socket is free");
        let mut accepting = JoinSet::new();
        accepting.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((mut client, _)) = listener.accept().await {
                connections.spawn(async move {
                    if let Ok(mut engine) = UnixStream::connect("/var/run/docker.sock").await {
                        // A broken connection is what this is for.
                        let _ = tokio::io::copy_bidirectional(&mut client, &mut engine).await;
                    }
                });
            }
        });
        *self.running.lock().unwrap() = Some(accepting);
    }
}

/// Words of a listing.
pub(crate) fn set(text: &str) -> HashSet<&str> {
    text.split_whitespace().collect()
}
