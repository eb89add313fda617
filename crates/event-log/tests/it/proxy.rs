//! A Unix socket between client and server that loses what it is told to lose.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{UnixListener, UnixStream};
use tokio::task::JoinSet;

/// What is lost, once, when the client sends a message that holds the marker.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Lose {
    /// The server's answer, which is awaited and thrown away: the server has done its work.
    Answer = 1,
    /// The message itself.
    Request = 2,
}

/// A running proxy.
pub(crate) struct Proxy {
    dir: tempfile::TempDir,
    armed: Arc<AtomicU8>,
    _tasks: JoinSet<()>,
}

impl Proxy {
    /// Listens in a directory of its own and forwards to `server_dir`.
    pub(crate) fn start(server_dir: &Path, marker: &'static [u8]) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let listener = UnixListener::bind(dir.path().join(".s.PGSQL.5432")).unwrap();
        let target = server_dir.join(".s.PGSQL.5432");
        let armed = Arc::new(AtomicU8::new(0));
        let arm = Arc::clone(&armed);
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            let mut connections = JoinSet::new();
            loop {
                let (client, _) = listener.accept().await.unwrap();
                let server = UnixStream::connect(&target).await.unwrap();
                connections.spawn(forward(client, server, marker, Arc::clone(&arm)));
            }
        });
        Self { dir, armed, _tasks: tasks }
    }

    /// `url`, through the proxy.
    pub(crate) fn url(&self, url: &str, server_dir: &Path) -> String {
        url.replace(server_dir.to_str().unwrap(), self.dir.path().to_str().unwrap())
    }

    /// Loses once.
    pub(crate) fn arm(&self, what: Lose) {
        self.armed.store(what as u8, Ordering::SeqCst);
    }

    /// Whether the loss has happened.
    pub(crate) fn has_lost(&self) -> bool {
        self.armed.load(Ordering::SeqCst) == 0
    }
}

async fn forward(client: UnixStream, server: UnixStream, marker: &'static [u8], armed: Arc<AtomicU8>) {
    let (mut from_client, mut to_client) = client.into_split();
    let (mut from_server, mut to_server) = server.into_split();
    let mut request = vec![0; 1 << 20];
    let mut answer = vec![0; 1 << 20];
    loop {
        tokio::select! {
            read = from_client.read(&mut request) => {
                let Ok(count @ 1..) = read else { return };
                let marked = request[..count].windows(marker.len()).any(|window| window == marker);
                let lose = if marked { armed.swap(0, Ordering::SeqCst) } else { 0 };
                if lose == Lose::Request as u8 {
                    return;
                }
                to_server.write_all(&request[..count]).await.unwrap();
                if lose == Lose::Answer as u8 {
                    // An answer means the commit is done: the call is in autocommit.
                    from_server.read_exact(&mut answer[..1]).await.unwrap();
                    return;
                }
            }
            read = from_server.read(&mut answer) => {
                let Ok(count @ 1..) = read else { return };
                if to_client.write_all(&answer[..count]).await.is_err() {
                    return;
                }
            }
        }
    }
}
