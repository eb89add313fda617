//! From the log to the file. What is written is checked on the way: a damaged history is written as it is, and named.

use std::collections::HashMap;
use std::io::Write;

use event_log::proof::Hash;
use event_log::seal::{ProofReader, ProofsError};
use event_log::verify::{
    EventRow, HistoryCheck, Report, StreamTip, meta, run_streams, stored_bytes, stored_version, stream_rows,
};
use events::stored::leaf_hash;
use events::{Position, RunId, TenantId, Version};
use tokio_postgres::Transaction;

use super::anchor::Anchoring;
use super::{Base64, EventLine, FORM, Head, Hex32, KIND, StreamEnd};
use crate::error::ReplayError;
use crate::output::json_line;
use crate::source::{Source, snapshot};

/// Faults that are told one by one.
const FAULTS_TOLD_MAX: usize = 20;
/// Rows that are in memory at once, of half a MiB at most.
const PAGE: u32 = 64;

/// What was written.
#[derive(Debug)]
pub struct Written {
    /// The stream.
    pub tip: StreamTip,
    /// What the checks on the way found.
    pub report: Report,
    /// How many events are proven in the signed head; `None` when nothing is sealed.
    pub proven: Option<(u64, u64)>,
    /// What is wrong with the head and the proofs.
    pub anchor_faults: Vec<String>,
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
            let proofs = ProofReader::new(&transaction);
            let checkpoint = proofs.last_checkpoint().await?;
            // What was changed since it was signed is found here; who signed it is for whoever checks the file.
            let known: Vec<_> =
                proofs.pinned().await?.verifier_keys.iter().filter_map(|key| key.parse().ok()).collect();
            let note = checkpoint.as_ref().map(|checkpoint| checkpoint.note.clone());
            let size = checkpoint.map_or(0, |checkpoint| checkpoint.size);
            let mut anchoring = Anchoring::open(note.as_deref(), &meta.origin, &known);
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
                checkpoint: note,
            };
            json_line(out, &head)?;
            let mut check = HistoryCheck::new(meta.log_id, FAULTS_TOLD_MAX);
            let mut after = Version(0);
            loop {
                let rows = stream_rows(&transaction, &tip, after, PAGE).await?;
                let Some(last) = rows.last() else { break };
                after = stored_version(last)?;
                let mut proven = prove(&transaction, &rows, size, &mut anchoring).await?;
                for row in &rows {
                    let stored = stored_bytes(row)?;
                    check.follow(&stored);
                    let proof = proven.remove(&stored.position);
                    anchoring.follow(stored.position, &leaf_hash(stored.header), proof.as_deref());
                    let bytes = |bytes: &[u8]| Base64(bytes.to_vec());
                    let line = EventLine {
                        position: stored.position,
                        header: bytes(stored.header),
                        salt: stored.salt.map(bytes),
                        body: stored.body.map(bytes),
                        proof: proof.map(|proof| proof.into_iter().map(Hex32).collect()),
                    };
                    json_line(out, &line)?;
                }
            }
            let report = check.finish(&[(tip.stream.clone(), tip.version, tip.leaf)]);
            let place = |(position, fault): (Option<Position>, String)| match position {
                Some(position) => format!("position {position}: {fault}"),
                None => fault,
            };
            let proven = (size > 0).then_some((anchoring.proven, size));
            let anchor_faults = anchoring.faults.into_iter().map(place).collect();
            Ok(Written { tip, report, proven, anchor_faults })
        })
        .await
}

/// Each event's inclusion in the tree of `size` events, as far as it reaches. A tile that is missing is a fault of the log.
async fn prove(
    transaction: &Transaction<'_>,
    rows: &[EventRow],
    size: u64,
    anchoring: &mut Anchoring,
) -> Result<HashMap<Position, Vec<Hash>>, ReplayError> {
    let mut covered = Vec::with_capacity(rows.len());
    for row in rows {
        covered.push(stored_bytes(row)?.position);
    }
    covered.retain(|position| position.get() < size);
    match ProofReader::new(transaction).inclusions(&covered, size).await {
        Ok(proofs) => Ok(proofs.into_iter().map(|proof| (proof.position, proof.hashes)).collect()),
        Err(ProofsError::Log(error)) => Err(error.into()),
        Err(error) => {
            anchoring.note(None, error.to_string());
            Ok(HashMap::new())
        }
    }
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
