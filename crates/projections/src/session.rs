//! One connection of a runner: lock, claim, and the transaction that applies a page.
//!
//! Two guards, for two faults. The session lock elects one runner while all is well and falls with its connection. The fence in
//! `views.consumers` holds when the lock does not: a runner that lost its lock without noticing cannot write once another has
//! claimed, because every page begins by locking the row of its own fence.

use std::future::Future;

use events::Position;
use events::stored::Recorded;
use futures::future::try_join_all;
use tokio_postgres::types::ToSql;
use tokio_postgres::{Client, NoTls, Statement};
use uuid::Uuid;

use crate::commands::CommandRow;
use crate::environments::EnvironmentRow;
use crate::error::ViewsError;
use crate::fold::{Folded, NotContiguous, Touched};
use crate::leases::LeaseRow;
use crate::rows::Rows;
use crate::run_events::RunEventRow;
use crate::runs::RunRow;
use crate::sql::{Params, Table, position_param};
use crate::supervise;

/// Name of the consumer that keeps all views of this crate.
pub const CONSUMER: &str = "views";

/// Key of the session lock that elects the runner of a database; a number of our own.
const LOCK_KEY: i64 = 0x1ea5_e401_0000_0001;

/// The checkpoint as claimed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Claim {
    pub(crate) position: Position,
    pub(crate) leaf: Option<[u8; 32]>,
    pub(crate) epoch: i32,
    pub(crate) fence: i64,
}

/// A page was not applied; the transaction is undone.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ApplyError {
    #[error("another runner has claimed the views")]
    Superseded,
    #[error(transparent)]
    Order(#[from] NotContiguous),
    #[error(transparent)]
    Views(#[from] ViewsError),
}

impl From<tokio_postgres::Error> for ApplyError {
    fn from(error: tokio_postgres::Error) -> Self {
        Self::Views(error.into())
    }
}

/// An open connection of the project role. After any error it is of no more use: drop it, the server undoes what was open.
pub(crate) struct Session {
    client: Client,
    fence: Statement,
    advance: Statement,
    loads: [Statement; 4],
    upserts: [Statement; 5],
}

impl Session {
    /// Connects and prepares. The second value ends when the connection does.
    pub(crate) async fn connect(
        config: &tokio_postgres::Config,
    ) -> Result<(Self, impl Future<Output = ()> + Send + use<>), ViewsError> {
        let (client, connection) = config.connect(NoTls).await?;
        // An error of the connection is met by the statement that waits for an answer; its end is all that matters here.
        let ended = supervise::spawn("runner connection", async move { connection.await.is_err() });
        let load = |by: &str, columns: String, view: &str| {
            format!("SELECT {columns} FROM views.{view} WHERE {by} = ANY($1)")
        };
        let session = Self {
            fence: client
                .prepare("SELECT position FROM views.consumers WHERE name = $1 AND fence = $2 FOR UPDATE")
                .await?,
            advance: client
                .prepare("UPDATE views.consumers SET position = $2, leaf_at_position = $3 WHERE name = $1")
                .await?,
            loads: [
                client.prepare(&load("lease_id", LeaseRow::select_list(""), LeaseRow::NAME)).await?,
                client
                    .prepare(&load("environment_id", EnvironmentRow::select_list(""), EnvironmentRow::NAME))
                    .await?,
                client.prepare(&load("command_id", CommandRow::select_list(""), CommandRow::NAME)).await?,
                client.prepare(&load("run_id", RunRow::select_list(""), RunRow::NAME)).await?,
            ],
            upserts: [
                client.prepare(&LeaseRow::upsert()).await?,
                client.prepare(&EnvironmentRow::upsert()).await?,
                client.prepare(&CommandRow::upsert()).await?,
                client.prepare(&RunRow::upsert()).await?,
                client.prepare(&RunEventRow::upsert()).await?,
            ],
            client,
        };
        let ended = async move {
            let _ = ended.await;
        };
        Ok((session, ended))
    }

    /// Whether this session is the elected one now.
    pub(crate) async fn try_lock(&self) -> Result<bool, ViewsError> {
        let row = self.client.query_one("SELECT pg_try_advisory_lock($1)", &[&LOCK_KEY]).await?;
        Ok(row.try_get(0)?)
    }

    /// How far the views are, whoever keeps them.
    pub(crate) async fn position(&self) -> Result<Position, ViewsError> {
        let sql = "SELECT position FROM views.consumers WHERE name = $1";
        let row = self.client.query_opt(sql, &[&CONSUMER]).await?;
        row.map_or(Ok(Position(0)), |row| to_position(row.try_get(0)?))
    }

    /// Takes the views over: whoever wrote before cannot write any more.
    pub(crate) async fn claim(&self, owner: Uuid, log_epoch: i32) -> Result<Claim, ViewsError> {
        let sql = "INSERT INTO views.consumers AS c (name, position, leaf_at_position, epoch, owner, fence) \
                   VALUES ($1, 0, NULL, $2, $3, 1) \
                   ON CONFLICT (name) DO UPDATE SET owner = excluded.owner, fence = c.fence + 1 \
                   RETURNING position, leaf_at_position, epoch, fence";
        let row = self.client.query_one(sql, &[&CONSUMER, &log_epoch, &owner]).await?;
        Ok(Claim {
            position: to_position(row.try_get(0)?)?,
            leaf: to_leaf(row.try_get(1)?)?,
            epoch: row.try_get(2)?,
            fence: row.try_get(3)?,
        })
    }

    /// Folds a page onto the tables and moves the checkpoint, in one transaction.
    pub(crate) async fn apply(&self, claim: &mut Claim, page: &[Recorded]) -> Result<(), ApplyError> {
        let Some(last) = page.last() else { return Ok(()) };
        let mut folded = self.begin(claim, page).await?;
        for recorded in page {
            folded.apply(recorded)?;
        }
        let next = folded.next;
        let mut writes = Vec::new();
        changes(&folded.leases, &self.upserts[0], &mut writes)?;
        changes(&folded.environments, &self.upserts[1], &mut writes)?;
        changes(&folded.commands, &self.upserts[2], &mut writes)?;
        changes(&folded.runs, &self.upserts[3], &mut writes)?;
        changes(&folded.run_events, &self.upserts[4], &mut writes)?;
        let checkpoint: Params =
            vec![Box::new(CONSUMER), Box::new(position_param(next)), Box::new(last.leaf.to_vec())];
        writes.push((&self.advance, checkpoint));
        // One round trip for all of them, one for the commit.
        let sent = writes.iter().map(|(statement, params)| async {
            let params: Vec<&(dyn ToSql + Sync)> =
                params.iter().map(|param| &**param as &(dyn ToSql + Sync)).collect();
            self.client.execute(*statement, &params).await
        });
        try_join_all(sent).await?;
        self.client.batch_execute("COMMIT").await?;
        claim.position = next;
        claim.leaf = Some(last.leaf);
        Ok(())
    }

    /// Opens the transaction, holds the claim and loads what the page changes: one round trip.
    async fn begin(&self, claim: &Claim, page: &[Recorded]) -> Result<Folded, ApplyError> {
        let touched = Touched::by(page);
        let leases: Vec<Uuid> = touched.leases.iter().map(|id| id.as_uuid()).collect();
        let environments: Vec<Uuid> = touched.environments.iter().map(|id| id.as_uuid()).collect();
        let commands: Vec<Uuid> = touched.commands.iter().map(|id| id.as_uuid()).collect();
        let runs: Vec<Uuid> = touched.runs.iter().map(|(_, run_id)| run_id.as_uuid()).collect();
        let (_, held, leases, environments, commands, runs) = futures::try_join!(
            async { Ok::<_, ApplyError>(self.client.batch_execute("BEGIN").await?) },
            async {
                let params: [&(dyn ToSql + Sync); 2] = [&CONSUMER, &claim.fence];
                Ok(self.client.query_opt(&self.fence, &params).await?)
            },
            self.load::<LeaseRow>(&self.loads[0], &leases),
            self.load::<EnvironmentRow>(&self.loads[1], &environments),
            self.load::<CommandRow>(&self.loads[2], &commands),
            self.load::<RunRow>(&self.loads[3], &runs),
        )?;
        let held = held.ok_or(ApplyError::Superseded)?;
        let next = to_position(held.try_get(0)?)?;
        Ok(Folded { next, leases, environments, commands, runs, ..Folded::default() })
    }

    async fn load<R: Table>(&self, statement: &Statement, ids: &[Uuid]) -> Result<Rows<R>, ApplyError> {
        if ids.is_empty() {
            return Ok(Rows::default());
        }
        let rows = self.client.query(statement, &[&ids]).await?;
        let rows = rows.iter().map(R::from_sql).collect::<Result<Vec<_>, _>>()?;
        Ok(Rows::from_table(rows))
    }
}

fn changes<'s, R: Table>(
    rows: &Rows<R>,
    upsert: &'s Statement,
    writes: &mut Vec<(&'s Statement, Params)>,
) -> Result<(), ViewsError> {
    for row in rows.changed() {
        let params = row.cells()?.into_iter().map(|cell| cell as Box<dyn ToSql + Sync + Send>).collect();
        writes.push((upsert, params));
    }
    Ok(())
}

fn to_position(value: i64) -> Result<Position, ViewsError> {
    u64::try_from(value).map(Position).map_err(|_| ViewsError::Stored {
        view: "consumers",
        column: "position",
        detail: "negative".to_owned(),
    })
}

pub(crate) fn to_leaf(value: Option<Vec<u8>>) -> Result<Option<[u8; 32]>, ViewsError> {
    value.map(<[u8; 32]>::try_from).transpose().map_err(|_| ViewsError::Stored {
        view: "consumers",
        column: "leaf_at_position",
        detail: "not 32 bytes".to_owned(),
    })
}
