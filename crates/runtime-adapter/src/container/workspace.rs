//! The workspace port over the files channel.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use events::event::command::InterruptCause;
use events::time::Timestamp;
use futures::StreamExt as _;
use guest::protocol::files::{
    CREDIT_WINDOW_BYTES, Entry, EntryKind, FilesErrorCode, MAX_DATA_BYTES, MAX_LIST_ENTRIES, Request,
    Response, Usage,
};
use policy::WorkspacePath;
use tokio::time::Instant;

use super::ContainerAdapter;
use super::environment::Environment;
use super::files::{Exchange, FilesFailure};
use crate::ports::{
    ByteStream, EnvironmentHandle, ListPage, PortError, Provenance, ReadFile, STREAM_DEADLINE, Workspace,
    WorkspaceEntry, WorkspaceEntryKind, WorkspaceError, WriteOutcome,
};

/// How long a request without a stream may take.
const REQUEST_DEADLINE: Duration = STREAM_DEADLINE;

fn failed(failure: FilesFailure, limit_bytes: u64) -> WorkspaceError {
    let code = match failure {
        FilesFailure::Refused(code) => code,
        FilesFailure::ChannelEnded => return lost(),
        FilesFailure::WrongAnswer => return wrong_answer(),
    };
    match code {
        FilesErrorCode::NotFound => WorkspaceError::NotFound,
        FilesErrorCode::NotADirectory => WorkspaceError::NotADirectory,
        // Whatever stands in the way of the write or the removal is a directory.
        FilesErrorCode::IsADirectory | FilesErrorCode::NotEmpty => WorkspaceError::IsADirectory,
        FilesErrorCode::NotRegular => WorkspaceError::NotRegular,
        FilesErrorCode::Symlink => WorkspaceError::Symlink,
        FilesErrorCode::PathRefused => WorkspaceError::PathRefused { reason: "not a workspace path" },
        FilesErrorCode::TooLarge => WorkspaceError::TooLarge { limit_bytes },
        FilesErrorCode::ChangedDuringRead => WorkspaceError::ChangedDuringRead,
        FilesErrorCode::NoSpace => WorkspaceError::NoSpace,
        FilesErrorCode::NonceMismatch => lost(),
        FilesErrorCode::Exists
        | FilesErrorCode::NotReady
        | FilesErrorCode::CannotMeasure
        | FilesErrorCode::Cancelled
        | FilesErrorCode::Io => {
            WorkspaceError::Port(PortError::Unavailable { code: "workspace_io", effect_possible: true })
        }
    }
}

fn lost() -> WorkspaceError {
    WorkspaceError::Port(PortError::Lost { cause: InterruptCause::FilesLost })
}

fn wrong_answer() -> WorkspaceError {
    WorkspaceError::Port(PortError::EscapeSuspected { code: "wrong_answer" })
}

async fn within<T>(
    deadline: Instant,
    work: impl Future<Output = Result<T, WorkspaceError>>,
) -> Result<T, WorkspaceError> {
    tokio::time::timeout_at(deadline, work).await.unwrap_or(Err(WorkspaceError::DeadlineExceeded))
}

impl ContainerAdapter {
    /// Sends a request when its turn has come and the channel is open, both before the deadline.
    async fn request(
        &self,
        handle: &EnvironmentHandle,
        deadline: Instant,
        request: impl FnOnce(u32) -> Request,
    ) -> Result<(Arc<Environment>, Exchange), WorkspaceError> {
        let environment = self.inner.admitted(handle)?;
        let ready = within(deadline, async {
            let turn = Arc::clone(&environment.file_requests).acquire_owned().await.map_err(|_| lost())?;
            Ok((turn, environment.files_channel().await?))
        });
        let (turn, channel) = ready.await?;
        let exchange = channel.send(request).holding(turn);
        Ok((environment, exchange))
    }
}

#[async_trait]
impl Workspace for ContainerAdapter {
    async fn read(
        &self,
        handle: &EnvironmentHandle,
        path: &WorkspacePath,
        max_bytes: u64,
    ) -> Result<ReadFile, WorkspaceError> {
        let deadline = Instant::now() + STREAM_DEADLINE;
        let path = path.as_bytes().to_vec();
        let (_, mut exchange) = self
            .request(handle, deadline, |id| Request::Read {
                id,
                path,
                offset: 0,
                max_bytes,
                allow_partial: false,
            })
            .await?;
        let opened =
            within(deadline, async { exchange.next().await.map_err(|failure| failed(failure, max_bytes)) });
        let Response::ReadMeta { size_bytes, .. } = opened.await? else { return Err(wrong_answer()) };
        if size_bytes > u64::from(CREDIT_WINDOW_BYTES) {
            exchange.widen();
        }
        let bytes = futures::stream::try_unfold(Some(exchange), move |exchange| async move {
            let Some(mut exchange) = exchange else { return Ok(None) };
            let answer = within(deadline, async {
                exchange.next().await.map_err(|failure| failed(failure, max_bytes))
            });
            match answer.await? {
                Response::ReadData { bytes, .. } => {
                    exchange.consumed(u32::try_from(bytes.len()).unwrap_or(u32::MAX));
                    Ok(Some((Bytes::from(bytes), Some(exchange))))
                }
                Response::ReadEnd { .. } => Ok(None),
                _ => Err(wrong_answer()),
            }
        });
        Ok(ReadFile { size_bytes, bytes: Box::pin(bytes) })
    }

    async fn write(
        &self,
        handle: &EnvironmentHandle,
        path: &WorkspacePath,
        bytes: ByteStream,
        max_bytes: u64,
    ) -> Result<WriteOutcome, WorkspaceError> {
        let deadline = Instant::now() + STREAM_DEADLINE;
        let name = path.as_bytes().to_vec();
        within(deadline, async { Ok(self.inner.admitted(handle)?.check_disk().await?) }).await?;
        let (environment, mut exchange) = self
            .request(handle, deadline, |id| Request::Write { id, path: name, max_bytes, create_only: false })
            .await?;
        let writing = environment.writing(path.as_bytes());
        let sent = within(deadline, send(&mut exchange, bytes, max_bytes)).await;
        match &sent {
            Ok((_, usage)) => {
                environment.update_usage(*usage);
                writing.settle(true);
            }
            Err(WorkspaceError::Port(_) | WorkspaceError::DeadlineExceeded) => drop(writing),
            Err(_) => writing.settle(false),
        }
        sent.map(|(outcome, _)| outcome)
    }

    async fn list(
        &self,
        handle: &EnvironmentHandle,
        path: Option<&WorkspacePath>,
        recursive: bool,
        after: Option<Vec<u8>>,
        limit: usize,
    ) -> Result<ListPage, WorkspaceError> {
        let deadline = Instant::now() + REQUEST_DEADLINE;
        let path = path.map_or_else(Vec::new, |path| path.as_bytes().to_vec());
        let limit = u32::try_from(limit).unwrap_or(u32::MAX).clamp(1, MAX_LIST_ENTRIES);
        let cursor = after.unwrap_or_default();
        let (environment, mut exchange) =
            self.request(handle, deadline, |id| Request::List { id, path, recursive, limit, cursor }).await?;
        within(deadline, async {
            let mut entries = Vec::new();
            loop {
                match exchange.next().await.map_err(|failure| failed(failure, 0))? {
                    Response::Entry { entry, .. } => {
                        exchange.consumed(entry.credit_bytes());
                        entries.push(described(&environment, entry));
                    }
                    Response::ListEnd { next_cursor, .. } => {
                        return Ok(ListPage { entries, next_after: next_cursor });
                    }
                    _ => return Err(wrong_answer()),
                }
            }
        })
        .await
    }

    async fn stat(
        &self,
        handle: &EnvironmentHandle,
        path: &WorkspacePath,
    ) -> Result<WorkspaceEntry, WorkspaceError> {
        let deadline = Instant::now() + REQUEST_DEADLINE;
        let path = path.as_bytes().to_vec();
        let (environment, mut exchange) =
            self.request(handle, deadline, |id| Request::Stat { id, path }).await?;
        let answer = within(deadline, async { exchange.next().await.map_err(|failure| failed(failure, 0)) });
        match answer.await? {
            Response::Stated { entry, .. } => Ok(described(&environment, entry)),
            _ => Err(wrong_answer()),
        }
    }

    async fn remove(&self, handle: &EnvironmentHandle, path: &WorkspacePath) -> Result<(), WorkspaceError> {
        let deadline = Instant::now() + REQUEST_DEADLINE;
        let name = path.as_bytes().to_vec();
        let (environment, mut exchange) =
            self.request(handle, deadline, |id| Request::Remove { id, path: name, recursive: false }).await?;
        let answer = within(deadline, async { exchange.next().await.map_err(|failure| failed(failure, 0)) });
        match answer.await? {
            Response::Removed { usage, .. } => {
                environment.update_usage(usage);
                environment.writers().removed(path.as_bytes());
                Ok(())
            }
            _ => Err(wrong_answer()),
        }
    }
}

/// Sends the bytes under credit and waits for the durable end.
async fn send(
    exchange: &mut Exchange,
    mut bytes: ByteStream,
    max_bytes: u64,
) -> Result<(WriteOutcome, Usage), WorkspaceError> {
    let mut credit = usize::try_from(CREDIT_WINDOW_BYTES).unwrap_or(usize::MAX);
    let mut pending = Bytes::new();
    let mut source_open = true;
    loop {
        if credit > 0 && !pending.is_empty() {
            let piece = pending.split_to(pending.len().min(credit).min(MAX_DATA_BYTES));
            credit -= piece.len();
            exchange.write_data(&piece);
            continue;
        }
        let wants_more = source_open && pending.is_empty();
        tokio::select! {
            answer = exchange.next() => match answer.map_err(|failure| failed(failure, max_bytes))? {
                Response::Credit { bytes, .. } => credit += usize::try_from(bytes).unwrap_or(0),
                Response::Written { size_bytes, sha256, created, usage, .. } => {
                    return Ok((WriteOutcome { size_bytes, sha256, created }, usage));
                }
                _ => return Err(wrong_answer()),
            },
            piece = bytes.next(), if wants_more => match piece {
                Some(piece) => pending = piece?,
                None => {
                    source_open = false;
                    exchange.write_end();
                }
            },
        }
    }
}

fn described(environment: &Environment, entry: Entry) -> WorkspaceEntry {
    let kind = match entry.kind {
        EntryKind::File => WorkspaceEntryKind::File,
        EntryKind::Directory => WorkspaceEntryKind::Directory,
        EntryKind::Symlink => WorkspaceEntryKind::Symlink,
        EntryKind::Other => WorkspaceEntryKind::Other,
    };
    let is_file = kind == WorkspaceEntryKind::File;
    WorkspaceEntry {
        provenance: if is_file {
            environment.writers().of(&entry.path, environment.code_runs())
        } else {
            Provenance::Unknown
        },
        kind,
        size_bytes: if is_file { entry.size_bytes } else { 0 },
        modified_at: Timestamp::try_from_unix_micros(entry.mtime_us).ok(),
        mode: entry.mode,
        path: entry.path,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn whoever_is_slow_the_deadline_holds() {
        let started = Instant::now();
        let stalled = within(started + STREAM_DEADLINE, std::future::pending::<Result<(), _>>()).await;
        assert_eq!(stalled, Err(WorkspaceError::DeadlineExceeded));
        assert_eq!(started.elapsed(), STREAM_DEADLINE);
        assert_eq!(within(started, async { Ok(7) }).await, Ok(7));
    }

    #[test]
    fn every_refusal_has_its_own_error() {
        let refused = |code| failed(FilesFailure::Refused(code), 9);
        assert_eq!(refused(FilesErrorCode::TooLarge), WorkspaceError::TooLarge { limit_bytes: 9 });
        assert_eq!(refused(FilesErrorCode::NoSpace), WorkspaceError::NoSpace);
        assert_eq!(refused(FilesErrorCode::NonceMismatch), lost());
        assert_eq!(failed(FilesFailure::ChannelEnded, 0), lost());
    }
}
