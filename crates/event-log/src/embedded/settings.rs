//! Server settings. They are written to a file that the cluster includes, so no shell ever sees them.

/// Settings of one server.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    durable: bool,
    max_connections: u32,
}

impl Settings {
    /// For data that must survive: every commit reaches the disk before it is answered.
    pub(crate) const fn durable() -> Self {
        Self { durable: true, max_connections: 100 }
    }

    /// For databases that live for one test: the same server without waiting for the disk.
    #[cfg(any(test, feature = "test-support"))]
    pub(crate) const fn disposable() -> Self {
        Self { durable: false, max_connections: 400 }
    }

    /// As configuration text, without the socket directory.
    pub(crate) fn to_conf(&self) -> String {
        let on = if self.durable { "on" } else { "off" };
        format!(
            "listen_addresses = ''\n\
             unix_socket_permissions = 0700\n\
             max_connections = {}\n\
             shared_buffers = '128MB'\n\
             fsync = {on}\n\
             full_page_writes = {on}\n\
             synchronous_commit = on\n\
             wal_compression = off\n\
             max_wal_size = '1GB'\n\
             checkpoint_timeout = '15min'\n\
             wal_level = minimal\n\
             max_wal_senders = 0\n\
             log_timezone = 'UTC'\n\
             timezone = 'UTC'\n\
             log_line_prefix = '%m [%p] %q%u@%d '\n\
             jit = off\n",
            self.max_connections
        )
    }
}
