//! From the log to the file. What is written is checked on the way: a damaged history is written as it is, and named.

use std::io::Write;

use event_log::verify::{HistoryCheck, Report, StreamTip, meta, run_streams, stored_bytes, stream_rows};
use events::{RunId, TenantId};
use futures::TryStreamExt as _;

use super::{Base64, EventLine, FORM, Head, Hex32, KIND, StreamEnd};
use crate::error::ReplayError;
use crate::output::json_line;
use crate::source::{Source, snapshot};

/// Faults that are told one by one.
const FAULTS_TOLD_MAX: usize = 20;

/// What was written.
#[derive(Debug)]
pub struct Written {
    /// The stream.
    pub tip: StreamTip,
    /// What the checks on the way found.
    pub report: Report,
}

/// Writes the history of one run. `tenant` is needed only when several tenants have a run of that id.
///
/// # Errors
/// When the database does not answer, has no such run, or has several.
pub async fn write(
    source: &Source,
    run_id: RunId,
    tenant: Option<TenantId>,
    out: &mut impl Write,
) -> Result<Written, ReplayError> {
    source
        .with(async |client| {
            let transaction = snapshot(client).await?;
            let meta = meta(&transaction).await?;
            let tip = choose(run_streams(&transaction, run_id).await?, run_id, tenant)?;
            let end = StreamEnd { stream: tip.stream.clone(), version: tip.version, tip: Hex32(tip.leaf) };
            let head = Head {
                bundle: KIND.to_owned(),
                v: FORM,
                log_id: meta.log_id,
                origin: meta.origin,
                tenant: tip.tenant,
                run_id,
                head: meta.head,
                streams: vec![end],
                events: tip.version.get(),
                checkpoint: None,
            };
            json_line(out, &head)?;
            let mut check = HistoryCheck::new(meta.log_id, FAULTS_TOLD_MAX);
            let mut rows = std::pin::pin!(stream_rows(&transaction, &tip).await?);
            while let Some(row) = rows.try_next().await? {
                let stored = stored_bytes(&row)?;
                check.follow(&stored);
                let bytes = |bytes: &[u8]| Base64(bytes.to_vec());
                let line = EventLine {
                    position: stored.position,
                    header: bytes(stored.header),
                    salt: stored.salt.map(bytes),
                    body: stored.body.map(bytes),
                    proof: None,
                };
                json_line(out, &line)?;
            }
            let report = check.finish(&[(tip.stream.clone(), tip.version, tip.leaf)]);
            Ok(Written { tip, report })
        })
        .await
}

fn choose(
    mut streams: Vec<StreamTip>,
    run_id: RunId,
    tenant: Option<TenantId>,
) -> Result<StreamTip, ReplayError> {
    streams.retain(|stream| tenant.is_none_or(|tenant| stream.tenant == tenant));
    match streams.len() {
        0 => Err(ReplayError::NoSuchRun { run_id }),
        1 => Ok(streams.remove(0)),
        tenants => Err(ReplayError::AmbiguousRun { run_id, tenants }),
    }
}
