//! What the files container reports as changed, for the commands that run.

use std::sync::Arc;
use std::time::Duration;

use events::bounds::FILES_CHANGED_BYTES_MAX;
use events::event::command::{ChangeKind, FileChange, InterruptCause};
use events::event::workspace::PathText;
use events::ids::CommandId;
use guest::protocol::files::{
    Change, ChangeKind as GuestChange, ChangedPath, FilesErrorCode, Request, Response, Usage,
};

use super::environment::Environment;
use super::files::{FilesChannel, FilesFailure};
use crate::changes::ChangeTracker;
use crate::ports::PortError;

/// How long one look at the whole workspace may take, and how often it is tried.
const DIFF_DEADLINE: Duration = Duration::from_secs(45);
const DIFF_TRIES: u32 = 3;
const DIFF_PAUSE: Duration = Duration::from_millis(100);

/// What became of the workspace while a command ran.
pub(super) struct Collected {
    pub(super) changes: Vec<FileChange>,
    pub(super) truncated: bool,
    /// Other commands run: what they hold open no walk sees.
    pub(super) others_run: bool,
}

impl Environment {
    /// A command starts: whatever changed before is not its doing. Gives the channel that holds the baseline.
    pub(super) async fn begin_changes(&self, command_id: CommandId) -> Result<Arc<FilesChannel>, PortError> {
        let mut tracker = self.changes.lock().await;
        let channel = self.files_channel().await?;
        if tracker.begin(command_id) {
            if let Err(error) = self.report_changes(&mut tracker, &channel).await {
                tracker.finish(command_id, 0);
                return Err(error);
            }
            tracker.restart(command_id);
        }
        Ok(channel)
    }

    /// A command is over: what changed since it began, whether the list is incomplete, and whether others run.
    ///
    /// # Errors
    /// `Lost` when the workspace, or the channel that holds the command's baseline, is.
    pub(super) async fn finish_changes(
        &self,
        command_id: CommandId,
        channel: &Arc<FilesChannel>,
    ) -> Result<Collected, PortError> {
        let mut tracker = self.changes.lock().await;
        let reported = self.report_changes(&mut tracker, channel).await;
        let (changes, truncated) = tracker.finish(command_id, self.spec.files_changed_max);
        reported.map(|()| Collected { changes, truncated, others_run: tracker.is_any_running() })
    }

    /// Moves the baseline to now and gives the differences to every running command. A look that fails while the workspace is
    /// sound leaves their lists incomplete, and costs nobody an outcome that is known.
    async fn report_changes(
        &self,
        tracker: &mut ChangeTracker,
        channel: &Arc<FilesChannel>,
    ) -> Result<(), PortError> {
        for _ in 0..DIFF_TRIES {
            let looked = tokio::time::timeout(DIFF_DEADLINE, self.diff(channel)).await;
            match looked.unwrap_or(Err(FilesFailure::Refused(FilesErrorCode::CannotMeasure))) {
                Ok((changes, truncated, usage)) => {
                    self.set_usage(Some(usage));
                    self.writers().changed(&changes, truncated);
                    let changes: Vec<_> = changes.iter().map(file_change).collect();
                    tracker.report(&changes, truncated);
                    return Ok(());
                }
                Err(FilesFailure::WrongAnswer) => {
                    return Err(self.set_gone(PortError::EscapeSuspected { code: "wrong_answer" }));
                }
                Err(FilesFailure::Refused(FilesErrorCode::NonceMismatch)) => {
                    return Err(self.set_gone(PortError::Lost { cause: InterruptCause::FilesLost }));
                }
                Err(FilesFailure::ChannelEnded) => {
                    return Err(PortError::Lost { cause: InterruptCause::FilesLost });
                }
                // Out of threads or descriptors for a moment.
                Err(FilesFailure::Refused(FilesErrorCode::Io)) => tokio::time::sleep(DIFF_PAUSE).await,
                Err(FilesFailure::Refused(_)) => break,
            }
        }
        self.set_usage(None);
        self.writers().changed(&[], true);
        tracker.missed();
        Ok(())
    }

    async fn diff(&self, channel: &Arc<FilesChannel>) -> Result<(Vec<Change>, bool, Usage), FilesFailure> {
        let max_changes = u32::try_from(self.spec.files_changed_max).unwrap_or(u32::MAX);
        let max_path_bytes = u32::try_from(FILES_CHANGED_BYTES_MAX).unwrap_or(u32::MAX);
        let mut exchange = channel.send(|id| Request::Diff { id, max_changes, max_path_bytes });
        let mut changes = Vec::new();
        loop {
            match exchange.next().await? {
                Response::Change { change, .. } => changes.push(change),
                Response::DiffEnd { truncated, usage, .. } => return Ok((changes, truncated, usage)),
                _ => return Err(FilesFailure::WrongAnswer),
            }
        }
    }
}

fn file_change(change: &Change) -> FileChange {
    let gone = change.change == GuestChange::Deleted;
    FileChange {
        path: match &change.path {
            ChangedPath::Path(path) => PathText::from_bytes(path),
            ChangedPath::Digest { sha256, path_bytes } => PathText {
                path: format!("<{path_bytes} bytes, sha256 {}>", hex::encode(sha256)),
                path_base64: None,
            },
        },
        change: match change.change {
            GuestChange::Created => ChangeKind::Created,
            GuestChange::Modified => ChangeKind::Modified,
            GuestChange::Deleted => ChangeKind::Deleted,
        },
        size_bytes: (!gone).then_some(change.size_bytes),
        sha256: change.sha256.map(hex::encode),
    }
}
