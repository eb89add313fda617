//! Checkpoints of consumers: one row each, moved in the transaction that applies a page, fenced against a displaced owner.

use events::{InstanceId, Position};
use tokio_postgres::GenericClient;

/// A claimed consumer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claim {
    /// Its name.
    pub name: String,
    /// First position that is not applied yet.
    pub position: Position,
    /// Leaf of the last applied event, to be compared with the log: another leaf means a restored or foreign database.
    pub leaf: Option<[u8; 32]>,
    /// Log epoch when it was last moved.
    pub epoch: i32,
    /// Grows with each claim; only the newest may move the row.
    pub fence: i64,
}

/// A consumer's row could not be moved.
#[derive(Debug, thiserror::Error)]
pub enum ConsumerError {
    /// Another claim displaced this one, or the row was moved by someone else.
    #[error("the consumer was claimed by another instance")]
    Fenced,
    /// The database does not answer or refuses.
    #[error("the consumer's checkpoint could not be reached")]
    Database(#[from] tokio_postgres::Error),
}

/// Takes a consumer over from whoever had it: their next [`Claim::advance`] fails.
///
/// # Errors
/// When the database does not answer.
pub async fn claim(
    client: &impl GenericClient,
    name: &str,
    owner: InstanceId,
    log_epoch: i32,
) -> Result<Claim, ConsumerError> {
    let row = client
        .query_one(
            "INSERT INTO views.consumers AS c (name, epoch, owner, fence) VALUES ($1, $2, $3, 1) \
             ON CONFLICT (name) DO UPDATE SET owner = excluded.owner, fence = c.fence + 1 \
             RETURNING position, leaf_at_position, epoch, fence",
            &[&name, &log_epoch, &owner.as_uuid()],
        )
        .await?;
    let leaf: Option<&[u8]> = row.try_get(1)?;
    Ok(Claim {
        name: name.to_owned(),
        position: Position(row.try_get::<_, i64>(0)?.unsigned_abs()),
        leaf: leaf.map(|leaf| leaf.try_into().unwrap_or([0; 32])),
        epoch: row.try_get(2)?,
        fence: row.try_get(3)?,
    })
}

impl Claim {
    /// Moves the checkpoint to `next`, inside the transaction that applied the events before it. `leaf` is that of the last
    /// applied event.
    ///
    /// # Errors
    /// [`ConsumerError::Fenced`] when the claim is not the newest: roll back and stop.
    pub async fn advance(
        &mut self,
        transaction: &impl GenericClient,
        next: Position,
        leaf: [u8; 32],
        log_epoch: i32,
    ) -> Result<(), ConsumerError> {
        let moved = transaction
            .execute(
                "UPDATE views.consumers SET position = $1, leaf_at_position = $2, epoch = $3 \
                 WHERE name = $4 AND fence = $5 AND position = $6",
                &[&int8(next), &leaf.as_slice(), &log_epoch, &self.name, &self.fence, &int8(self.position)],
            )
            .await?;
        if moved != 1 {
            return Err(ConsumerError::Fenced);
        }
        self.position = next;
        self.leaf = Some(leaf);
        self.epoch = log_epoch;
        Ok(())
    }
}

fn int8(position: Position) -> i64 {
    i64::try_from(position.get()).unwrap_or(i64::MAX)
}
