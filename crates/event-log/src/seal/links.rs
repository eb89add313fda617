//! Checks events before they are sealed: leaf, header, and that each is chained to the previous event of its stream.
//!
//! The previous event is the one that was checked before, or it is read from the log when this is the first of its stream that is met;
//! its leaf is recomputed from its header too, so that an old event which was changed is found when its stream goes on.

use std::collections::{BTreeMap, HashMap};
use std::num::NonZeroUsize;

use events::stored::{Header, StreamName, ZERO_LEAF, leaf_hash};
use events::{LogId, Position, Version};
use lru::LruCache;
use tokio_postgres::GenericClient;

use super::fault::{SealFault, Stop};
use super::recheck::PAGE;
use super::stored::{StoredHeader, headers_of};
use crate::proof::Hash;

/// Streams whose last event is remembered.
const STREAMS_MAX: NonZeroUsize = match NonZeroUsize::new(16_384) {
    Some(count) => count,
    None => NonZeroUsize::MIN,
};
/// The streams of a page that are remembered already stay so while those that are new are added.
const _: () = assert!(STREAMS_MAX.get() as u64 >= 2 * PAGE);

/// The last event of a stream that was checked.
#[derive(Clone, Debug)]
struct Link {
    stream: StreamName,
    version: Version,
    leaf: Hash,
}

/// An event whose own bytes are right.
struct Checked {
    position: Position,
    stream_id: i64,
    header: Header,
    leaf: Hash,
}

/// The ends of the streams, as far as they are known.
#[derive(Debug)]
pub(super) struct Links {
    log_id: LogId,
    ends: LruCache<i64, Link>,
}

impl Links {
    pub(super) fn new(log_id: LogId) -> Self {
        Self { log_id, ends: LruCache::new(STREAMS_MAX) }
    }

    /// Checks rows that follow each other from position `first` on; answers their leaves. After an error nothing of this value may
    /// be used any more: some of its ends may be of events that are not sealed.
    pub(super) async fn check(
        &mut self,
        client: &impl GenericClient,
        first: u64,
        rows: &[StoredHeader],
    ) -> Result<Vec<Hash>, Stop> {
        let checked = (first..)
            .zip(rows)
            .map(|(position, row)| {
                if row.position == Position(position) {
                    self.alone(row)
                } else {
                    Err(SealFault::Gap { position: Position(position) })
                }
            })
            .collect::<Result<Vec<_>, _>>()?;
        let mut before = self.predecessors(client, first, &checked).await?;
        let mut leaves = Vec::with_capacity(checked.len());
        for event in checked {
            leaves.push(event.leaf);
            let previous = self.ends.pop(&event.stream_id).or_else(|| before.remove(&event.stream_id));
            follows(&event, previous.as_ref())?;
            let Checked { stream_id, header, leaf, .. } = event;
            self.ends.put(stream_id, Link { stream: header.stream, version: header.version, leaf });
        }
        Ok(leaves)
    }

    /// What one row says about itself.
    fn alone(&self, row: &StoredHeader) -> Result<Checked, SealFault> {
        let position = row.position;
        let leaf = leaf_hash(&row.header);
        if row.leaf != leaf {
            return Err(SealFault::Leaf { position });
        }
        let header = Header::from_canonical(&row.header)
            .map_err(|error| SealFault::Header { position, reason: error.to_string() })?;
        if header.log_id != self.log_id {
            return Err(SealFault::ForeignLog { position, log_id: header.log_id });
        }
        if u64::try_from(row.version) != Ok(header.version.get()) {
            return Err(SealFault::Column { position, column: "version" });
        }
        Ok(Checked { position, stream_id: row.stream_id, header, leaf })
    }

    /// Reads the events that the first ones of unknown streams are chained to.
    async fn predecessors(
        &mut self,
        client: &impl GenericClient,
        first: u64,
        events: &[Checked],
    ) -> Result<HashMap<i64, Link>, Stop> {
        let mut wanted = BTreeMap::new();
        for event in events {
            // Also makes it one of the last to be forgotten.
            if self.ends.get(&event.stream_id).is_none() {
                wanted.entry(event.stream_id).or_insert(event.header.version.get());
            }
        }
        wanted.retain(|_, version| *version > 1);
        if wanted.is_empty() {
            return Ok(HashMap::new());
        }
        let streams: Vec<i64> = wanted.keys().copied().collect();
        let versions: Vec<i64> =
            wanted.values().map(|version| i64::try_from(version - 1).unwrap_or(i64::MAX)).collect();
        let rows = headers_of(client, &streams, &versions, first).await?;
        let links = rows.iter().map(|row| {
            let event = self.alone(row)?;
            let link = Link { stream: event.header.stream, version: event.header.version, leaf: event.leaf };
            Ok((event.stream_id, link))
        });
        links.collect()
    }
}

fn follows(event: &Checked, previous: Option<&Link>) -> Result<(), SealFault> {
    let Checked { position, header, .. } = event;
    let (version, leaf) = match previous {
        Some(link) if link.stream != header.stream => {
            return Err(SealFault::Column { position: *position, column: "stream_id" });
        }
        Some(link) => (link.version, link.leaf),
        None => (Version(0), ZERO_LEAF),
    };
    let stream = header.stream.clone();
    if header.version != version.next() {
        return Err(SealFault::Version { position: *position, stream, version: header.version });
    }
    if header.prev_leaf != hex::encode(leaf) {
        return Err(SealFault::Chain { position: *position, stream });
    }
    Ok(())
}
