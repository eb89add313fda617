//! What the appender knows of the ends of streams.

use std::num::NonZeroUsize;

use events::Version;
use events::stored::StreamName;
use lru::LruCache;
use tokio_postgres::Client;

use super::Tip;

/// Streams whose tip is kept.
const TIPS_KEPT: NonZeroUsize = NonZeroUsize::new(16 * 1024).unwrap();

/// The last known tip per stream: an assumption that the append function checks, never a source of truth.
#[derive(Debug)]
pub(super) struct TipCache {
    tips: LruCache<StreamName, Tip>,
}

impl TipCache {
    pub(super) fn new() -> Self {
        Self { tips: LruCache::new(TIPS_KEPT) }
    }

    pub(super) fn get(&mut self, stream: &StreamName) -> Option<Tip> {
        self.tips.get(stream).copied()
    }

    pub(super) fn put(&mut self, stream: &StreamName, tip: Tip) {
        match self.tips.get_mut(stream) {
            Some(known) => *known = tip,
            None => {
                self.tips.put(stream.clone(), tip);
            }
        }
    }
}

/// Reads the tips of `streams` in one query, in their order; [`Tip::NONE`] for those that do not exist.
pub(super) async fn read_tips(
    client: &Client,
    streams: &[&StreamName],
) -> Result<Vec<Tip>, tokio_postgres::Error> {
    let categories: Vec<&str> = streams.iter().map(|stream| stream.category()).collect();
    let keys: Vec<&str> = streams.iter().map(|stream| stream.key()).collect();
    let rows = client
        .query(
            "SELECT u.i, t.version, t.tip FROM unnest($1::text[], $2::text[]) WITH ORDINALITY AS u(category, key, i) \
             JOIN log.streams AS t ON t.category = u.category AND t.key = u.key",
            &[&categories, &keys],
        )
        .await?;
    let mut tips = vec![Tip::NONE; streams.len()];
    for row in rows {
        let index: i64 = row.try_get(0)?;
        let slot = usize::try_from(index).ok().and_then(|i| tips.get_mut(i.checked_sub(1)?));
        if let Some(slot) = slot {
            *slot = tip_of(row.try_get(1)?, row.try_get(2)?);
        }
    }
    Ok(tips)
}

/// A tip as the database stores it. A leaf of another length can equal no expectation: it reads as zeros.
pub(super) fn tip_of(version: i64, leaf: &[u8]) -> Tip {
    Tip { version: Version(version.unsigned_abs()), leaf: leaf.try_into().unwrap_or([0; 32]) }
}
