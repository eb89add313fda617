//! A command's output from a cursor on: from memory while it is held there, else from the record.

use std::time::Duration;

use async_stream::try_stream;
use bytes::Bytes;
use events::event::command::OutputRecord;
use events::{CommandId, TenantId};
use projections::CommandRow;
use runtime_adapter::ports::OutputStream;
use tokio::time::Instant;

use super::{App, permit};
use crate::api::{OutputCursor, OutputItem, OutputItems, RequestCtx, Scope, ServiceError};
use crate::execution::view;
use crate::output::Live;
use crate::output::buffer::Piece;

/// A silent stream says that it is there this often.
const KEEP_ALIVE: Duration = Duration::from_secs(15);
/// Largest piece.
const CHUNK_BYTES_MAX: usize = 64 * 1024;
const STREAMS: [OutputStream; 2] = [OutputStream::Stdout, OutputStream::Stderr];

impl App {
    /// A command's output from `cursor` on, each byte once; ends with `Exit`.
    ///
    /// # Errors
    /// `NotFound`, `CursorGone`, or that the views cannot be read.
    pub async fn output(
        self: &std::sync::Arc<Self>,
        ctx: &RequestCtx,
        command_id: CommandId,
        cursor: OutputCursor,
    ) -> Result<OutputItems, ServiceError> {
        permit(ctx, Scope::Run)?;
        let tenant = ctx.principal.tenant;
        let run = self.parts.reads.run_of_command(tenant, command_id).await?;
        let app = std::sync::Arc::clone(self);
        match self.parts.output.get(command_id) {
            Some(live) => {
                for (stream, offset) in STREAMS.into_iter().zip([cursor.stdout, cursor.stderr]) {
                    if live.read(stream, offset, 1) == Piece::Beyond {
                        return Err(ServiceError::CursorGone);
                    }
                }
                Ok(Box::pin(try_stream! {
                    let mut changed = live.subscribe();
                    let mut offsets = [cursor.stdout, cursor.stderr];
                    loop {
                        changed.mark_unchanged();
                        let ended = live.ended();
                        let items = drain(&live, &mut offsets)?;
                        if items.is_empty() {
                            if ended {
                                break;
                            }
                            // An error means that the command is gone from memory: it has ended.
                            if tokio::time::timeout(KEEP_ALIVE, changed.changed()).await.is_err() {
                                yield OutputItem::KeepAlive;
                            }
                        }
                        for item in items {
                            yield item;
                        }
                    }
                    let command = app.outcome(tenant, command_id).await?;
                    yield OutputItem::Exit(Box::new(command));
                }))
            }
            None => Ok(Box::pin(try_stream! {
                let command = loop {
                    let now = Instant::now();
                    let command = app.await_end(run, command_id, None, now + KEEP_ALIVE).await?;
                    if command.state.is_ended() {
                        break command;
                    }
                    yield OutputItem::KeepAlive;
                };
                for item in recorded(&command, cursor)? {
                    yield item;
                }
                yield OutputItem::Exit(Box::new(command));
            })),
        }
    }

    /// The row of a command whose outcome is on record.
    async fn outcome(&self, tenant: TenantId, command_id: CommandId) -> Result<CommandRow, ServiceError> {
        if let Some(positions) = self.parts.execution.ended(command_id).await
            && let Some(command) = self.parts.reads.ended_command(command_id, &positions).await?
        {
            return Ok(command);
        }
        let command = self.parts.reads.command(tenant, command_id, None).await?;
        if command.state.is_ended() {
            return Ok(command);
        }
        self.parts.reads.see_all().await?;
        self.parts.reads.command(tenant, command_id, None).await
    }
}

/// One piece of each stream, as far as there is one.
fn drain(live: &Live, offsets: &mut [u64; 2]) -> Result<Vec<OutputItem>, ServiceError> {
    let mut items = Vec::new();
    for (stream, offset) in STREAMS.into_iter().zip(offsets) {
        match live.read(stream, *offset, CHUNK_BYTES_MAX) {
            Piece::Bytes(bytes) => {
                let from = *offset;
                *offset += bytes.len() as u64;
                items.push(OutputItem::Chunk { stream, offset: from, bytes });
            }
            Piece::Gap { to } => {
                items.push(OutputItem::Gap { stream, from: *offset, to });
                *offset = to;
            }
            Piece::UpToDate => {}
            Piece::Beyond => return Err(ServiceError::CursorGone),
        }
    }
    Ok(items)
}

/// What the record holds from the cursor on.
fn recorded(command: &CommandRow, cursor: OutputCursor) -> Result<Vec<OutputItem>, ServiceError> {
    let Some(result) = &command.result else { return Ok(Vec::new()) };
    let mut items = Vec::new();
    recorded_stream(&mut items, OutputStream::Stdout, &result.stdout, cursor.stdout)?;
    recorded_stream(&mut items, OutputStream::Stderr, &result.stderr, cursor.stderr)?;
    Ok(items)
}

fn recorded_stream(
    items: &mut Vec<OutputItem>,
    stream: OutputStream,
    record: &OutputRecord,
    cursor: u64,
) -> Result<(), ServiceError> {
    if cursor > record.bytes_total {
        return Err(ServiceError::CursorGone);
    }
    let parts = view::split(record);
    let tail_start = record.bytes_total - parts.tail.len() as u64;
    let mut offset = cursor;
    if let Some(bytes) = from(&parts.head, 0, offset) {
        items.push(OutputItem::Chunk { stream, offset, bytes: bytes.clone() });
        offset += bytes.len() as u64;
    }
    if record.truncated && offset < tail_start {
        items.push(OutputItem::Gap { stream, from: offset, to: tail_start });
        offset = tail_start;
    }
    if let Some(bytes) = from(&parts.tail, tail_start, offset) {
        items.push(OutputItem::Chunk { stream, offset, bytes });
    }
    Ok(())
}

/// The bytes from `offset` on of a part that begins at `start`.
fn from(part: &[u8], start: u64, offset: u64) -> Option<Bytes> {
    let skip = usize::try_from(offset.checked_sub(start)?).ok()?;
    part.get(skip..).filter(|rest| !rest.is_empty()).map(Bytes::copy_from_slice)
}

#[cfg(test)]
mod tests {
    use runtime_adapter::ports::Captured;
    use sha2::{Digest, Sha256};

    use super::*;

    fn items(record: &OutputRecord, cursor: u64) -> Vec<OutputItem> {
        let mut items = Vec::new();
        recorded_stream(&mut items, OutputStream::Stdout, record, cursor).unwrap();
        items
    }

    #[test]
    fn a_recorded_view_is_read_from_any_cursor_with_its_gap() {
        let all: Vec<u8> = (0..200_000_u32).map(|n| b'a' + (n % 26) as u8).collect();
        let keep = 64 * 1024;
        let record = view::record(&Captured {
            head: all[..keep].to_vec(),
            tail: Some(all[all.len() - keep..].to_vec()),
            bytes_total: all.len() as u64,
            sha256: Sha256::digest(&all).into(),
        });
        for cursor in [0_usize, 10, 39_300, 100_000, 190_000, 200_000] {
            let mut offset = cursor as u64;
            for item in items(&record, offset) {
                match item {
                    OutputItem::Chunk { offset: at, bytes, .. } => {
                        assert_eq!(at, offset);
                        let start = usize::try_from(at).unwrap();
                        assert_eq!(bytes, all[start..start + bytes.len()]);
                        offset += bytes.len() as u64;
                    }
                    OutputItem::Gap { from, to, .. } => {
                        assert_eq!(from, offset);
                        offset = to;
                    }
                    other => panic!("{other:?}"),
                }
            }
            assert_eq!(offset, 200_000, "from {cursor}");
        }
        let beyond = recorded_stream(&mut Vec::new(), OutputStream::Stdout, &record, 200_001);
        assert_eq!(beyond, Err(ServiceError::CursorGone));
    }
}
