//! Failures on request, each exactly once and in the order asked for: tests of everything above the port decide when the
//! runtime misbehaves, chance does not.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};

use tokio::sync::watch;

use crate::ports::PortError;

/// What the fake will do wrong next.
#[derive(Debug)]
pub struct Faults {
    provision: Mutex<VecDeque<PortError>>,
    destroy: Mutex<VecDeque<PortError>>,
    execute: Mutex<VecDeque<PortError>>,
    outage: watch::Sender<bool>,
    disk_full: watch::Sender<bool>,
    provision_held: watch::Sender<bool>,
    destroy_held: watch::Sender<bool>,
}

impl Default for Faults {
    fn default() -> Self {
        Self {
            provision: Mutex::default(),
            destroy: Mutex::default(),
            execute: Mutex::default(),
            outage: watch::Sender::new(false),
            disk_full: watch::Sender::new(false),
            provision_held: watch::Sender::new(false),
            destroy_held: watch::Sender::new(false),
        }
    }
}

impl Faults {
    /// The next provision that has no earlier failure before it fails with `error`, and leaves nothing.
    pub fn fail_provision(&self, error: PortError) {
        push(&self.provision, error);
    }

    /// The next destroy fails with `error` and removes nothing.
    pub fn fail_destroy(&self, error: PortError) {
        push(&self.destroy, error);
    }

    /// The next command fails with `error` before it runs.
    pub fn fail_execute(&self, error: PortError) {
        push(&self.execute, error);
    }

    /// While true, every call answers `Unavailable` (`engine_unreachable`).
    pub fn set_outage(&self, outage: bool) {
        self.outage.send_replace(outage);
    }

    /// While true, nothing new begins (`Unavailable`, `disk_reserve`).
    pub fn set_disk_full(&self, full: bool) {
        self.disk_full.send_replace(full);
    }

    /// While true, provisions wait instead of finishing.
    pub fn hold_provision(&self, held: bool) {
        self.provision_held.send_replace(held);
    }

    /// While true, destroys wait instead of finishing.
    pub fn hold_destroy(&self, held: bool) {
        self.destroy_held.send_replace(held);
    }

    pub(super) fn check_outage(&self) -> Result<(), PortError> {
        if *self.outage.borrow() {
            Err(PortError::Unavailable { code: "engine_unreachable", effect_possible: false })
        } else {
            Ok(())
        }
    }

    pub(super) fn check_disk(&self) -> Result<(), PortError> {
        if *self.disk_full.borrow() {
            Err(PortError::Unavailable { code: "disk_reserve", effect_possible: false })
        } else {
            Ok(())
        }
    }

    pub(super) async fn before_provision(&self) -> Result<(), PortError> {
        self.check_outage()?;
        released(&self.provision_held).await;
        take(&self.provision)
    }

    pub(super) async fn before_destroy(&self) -> Result<(), PortError> {
        self.check_outage()?;
        released(&self.destroy_held).await;
        take(&self.destroy)
    }

    pub(super) fn before_execute(&self) -> Result<(), PortError> {
        self.check_outage()?;
        take(&self.execute)
    }
}

fn push(queue: &Mutex<VecDeque<PortError>>, error: PortError) {
    queue.lock().unwrap_or_else(PoisonError::into_inner).push_back(error);
}

fn take(queue: &Mutex<VecDeque<PortError>>) -> Result<(), PortError> {
    match queue.lock().unwrap_or_else(PoisonError::into_inner).pop_front() {
        Some(error) => Err(error),
        None => Ok(()),
    }
}

async fn released(held: &watch::Sender<bool>) {
    let mut receiver = held.subscribe();
    // The sender lives in the same value as the caller's reference: waiting cannot fail.
    let _ = receiver.wait_for(|held| !held).await;
}
