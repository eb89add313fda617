//! Signals that ask `leasehold run` to end. Caught, so that the command and the lease end with it: a supervisor's SIGTERM
//! is no other case than Ctrl-C. SIGHUP is left alone, for `nohup`.

use tokio::signal::unix::{Signal, SignalKind, signal};

use super::exit::{self, Failure};

/// The signals, from the moment of [`Interrupts::listen`] on.
pub(super) struct Interrupts {
    interrupt: Signal,
    terminate: Signal,
}

impl Interrupts {
    pub(super) fn listen() -> Result<Self, Failure> {
        let listen = |kind| signal(kind).map_err(|error| Failure::failed(error.to_string()));
        Ok(Self { interrupt: listen(SignalKind::interrupt())?, terminate: listen(SignalKind::terminate())? })
    }

    /// Waits for the next one; what it means for the program's end.
    pub(super) async fn received(&mut self) -> Failure {
        let (code, message) = tokio::select! {
            _ = self.interrupt.recv() => (exit::INTERRUPTED, "interrupted"),
            _ = self.terminate.recv() => (exit::TERMINATED, "ended by SIGTERM"),
        };
        Failure { code, message: message.to_owned() }
    }
}
