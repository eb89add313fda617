//! What is stored of the seal, read for verifiers: keys, checkpoints, tiles.

use events::Position;
use futures::TryStreamExt as _;
use sha2::{Digest as _, Sha256};
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{GenericClient, Row};

use super::claims::{Claim, Claims, Trust};
use super::report::Fault;
use super::tree::{StoredTile, Tree, differing};
use super::witness::{Anchor, Origin, Seal};
use crate::error::LogError;
use crate::proof::Hash;
use crate::proof::note::{KeyId, Note, VerifierKey};
use crate::proof::tiles::{Tile, TileId};
use crate::seal::{ProofReader, ProofsError, StoredCheckpoint};

/// What is signed, and the tree that it is to be compared with.
pub(super) async fn open(
    client: &impl GenericClient,
    trust: &Trust,
) -> Result<(Claims, Tree, Vec<Fault>), LogError> {
    let pinned = ProofReader::new(client).pinned().await.map_err(|error| match error {
        ProofsError::Log(error) => error,
        other => LogError::Unavailable(other.into()),
    })?;
    let mut claims = Claims::new(pinned, trust);
    let none: [(&(dyn ToSql + Sync), Type); 0] = [];
    let sql = "SELECT size, note FROM log.checkpoints ORDER BY size";
    let mut rows = std::pin::pin!(client.query_typed_raw(sql, none).await?);
    while let Some(row) = rows.try_next().await? {
        let size = row.try_get::<_, i64>(0)?.unsigned_abs();
        claims.stored(&StoredCheckpoint { size, note: row.try_get(1)? });
    }
    for head in &trust.heads {
        claims.kept(head);
    }
    let (believed, mut faults) = claims.finish();
    let tiles = tiles(client, &mut faults).await?;
    let tree = Tree::new(believed, tiles, claims.sealed, digest);
    Ok((claims, tree, faults))
}

fn digest(bytes: &[u8]) -> Hash {
    Sha256::digest(bytes).into()
}

/// Every stored tile, in brief.
async fn tiles(client: &impl GenericClient, faults: &mut Vec<Fault>) -> Result<Vec<StoredTile>, LogError> {
    let none: [(&(dyn ToSql + Sync), Type); 0] = [];
    let sql = "SELECT level, index, width, hashes FROM log.tiles";
    let mut rows = std::pin::pin!(client.query_typed_raw(sql, none).await?);
    let mut tiles = Vec::new();
    while let Some(row) = rows.try_next().await? {
        match tile_id(&row)? {
            Ok(id) => tiles.push(StoredTile { id, digest: digest(row.try_get(3)?) }),
            Err(fault) => faults.push(fault),
        }
    }
    Ok(tiles)
}

fn tile_id(row: &Row) -> Result<Result<TileId, Fault>, LogError> {
    let (level, index, width): (i16, i64, i16) = (row.try_get(0)?, row.try_get(1)?, row.try_get(2)?);
    let parts = (u8::try_from(level).ok()).zip(u64::try_from(index).ok()).zip(u16::try_from(width).ok());
    let id = parts.and_then(|((level, index), width)| TileId::try_new(level, index, width).ok());
    Ok(id.ok_or(Fault::TileName { level, index, width }))
}

/// Says where a stored tile differs from what it should be.
pub(super) async fn locate(client: &impl GenericClient, tile: &Tile) -> Result<(Position, Fault), LogError> {
    let id = tile.id();
    let sql = "SELECT hashes FROM log.tiles WHERE level = $1 AND index = $2 AND width = $3";
    let level = i16::from(id.level());
    let (index, width) =
        (i64::try_from(id.index()).unwrap_or(i64::MAX), i16::try_from(id.width()).unwrap_or(0));
    let row = client.query_one(sql, &[&level, &index, &width]).await?;
    let entry = differing(tile, row.try_get(0)?);
    Ok((Position(id.first_leaf(entry)), Fault::Tile { tile: id, entry: Some(entry) }))
}

/// What the seal has shown.
pub(super) async fn seal(
    client: &impl GenericClient,
    claims: Claims,
    tree: Tree,
    trust: &Trust,
) -> Result<Seal, LogError> {
    let anchor = match tree.anchor {
        Some(claim) => Some(anchor(client, claim, &claims.keys, trust).await?),
        None => None,
    };
    Ok(Seal {
        keys: claims.keys.iter().map(|key| key.id().clone()).collect(),
        keys_given: claims.keys_given,
        stored: claims.stored,
        strange: claims.strange(),
        origin: claims.origin,
        compared: tree.claims_compared,
        tiles: tree.tiles_compared,
        heads: trust.heads.iter().map(|head| head.name.clone()).collect(),
        anchor,
        tail: tree.tail,
    })
}

async fn anchor(
    client: &impl GenericClient,
    claim: Claim,
    keys: &[VerifierKey],
    trust: &Trust,
) -> Result<Anchor, LogError> {
    let Claim { size, root, origin } = claim;
    let note = match &origin {
        Origin::Log => {
            let sql = "SELECT note FROM log.checkpoints WHERE size = $1";
            let row = client.query_one(sql, &[&i64::try_from(size).unwrap_or(i64::MAX)]).await?;
            row.try_get::<_, String>(0)?.into_bytes()
        }
        Origin::Kept(name) => {
            let head = trust.heads.iter().find(|head| head.name == *name);
            head.map(|head| head.note.clone()).unwrap_or_default()
        }
    };
    // It was verified: of the keys that sign it, those that are known are right.
    let signers: Vec<KeyId> = Note::parse(&note).map_or_else(
        |_| Vec::new(),
        |note| note.signers().filter(|id| keys.iter().any(|key| key.id() == *id)).cloned().collect(),
    );
    Ok(Anchor { size, root, origin, signers })
}
