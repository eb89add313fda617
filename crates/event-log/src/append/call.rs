//! The call of the append function: rows in, one answer per request out.

use std::collections::HashMap;
use std::time::SystemTime;

use events::Position;
use events::stored::StreamName;
use tokio_postgres::types::ToSql;
use tokio_postgres::{Client, Row, Statement};
use uuid::Uuid;

use super::Tip;
use super::chain::Chained;
use super::prepare::Prepared;
use super::tips::tip_of;
use crate::clock::system_time;

/// What the function said of one request.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) outcome: Outcome,
    /// The stream's tip after the call, as far as this request sees it.
    pub(super) tip: Tip,
}

/// See the comment at the head of the migration that makes the functions.
#[derive(Debug)]
pub(super) enum Outcome {
    Ok { first: Position },
    Duplicate { first: Position, count: u64 },
    KeyReused,
    Conflict,
    Stale,
    Clock,
}

/// The answers to a batch and the database's clock.
pub(super) type Answers = (Vec<Answer>, SystemTime);

/// The prepared calls of one session.
#[derive(Debug)]
pub(super) struct Calls {
    one: Statement,
    batch: Statement,
}

impl Calls {
    pub(super) async fn prepare(client: &Client) -> Result<Self, tokio_postgres::Error> {
        let parameters = |count: usize| (1..=count).map(|i| format!("${i}")).collect::<Vec<_>>().join(", ");
        let one = client
            .prepare(&format!(
                "SELECT status, first, count, tip_version, tip_leaf, database_time FROM log.append_one({})",
                parameters(16)
            ))
            .await?;
        let batch = client
            .prepare(&format!(
                "SELECT statuses, firsts, counts, tip_versions, tip_leaves, database_time FROM log.append_batch({})",
                parameters(25)
            ))
            .await?;
        Ok(Self { one, batch })
    }

    /// Appends; the function commits or changes nothing.
    pub(super) async fn append(
        &self,
        client: &Client,
        requests: &[(&Prepared, &Chained)],
    ) -> Result<Answers, tokio_postgres::Error> {
        match requests {
            [(request, chained)] if request.events.len() == 1 && request.guards.is_empty() => {
                self.append_one(client, request, chained).await
            }
            _ => self.append_batch(client, requests).await,
        }
    }

    async fn append_one(
        &self,
        client: &Client,
        request: &Prepared,
        chained: &Chained,
    ) -> Result<Answers, tokio_postgres::Error> {
        let (event, sealed) = (&request.events[0], &chained.sealed[0]);
        let key = request.key.as_ref();
        let row = client
            .query_one(
                &self.one,
                &[
                    &request.stream.category(),
                    &request.stream.key(),
                    &is_any(request),
                    &to_i64(chained.base.version.get()),
                    &chained.base.leaf.as_slice(),
                    &key.map(|key| key.tenant.as_uuid()),
                    &key.map(|key| key.key.as_str()),
                    &key.map(|key| key.digest.as_slice()),
                    &event.new.event.event_type().id(),
                    &event.new.event_id.as_uuid(),
                    &event.new.tenant.as_uuid(),
                    &system_time(event.new.recorded_at),
                    &sealed.leaf.as_slice(),
                    &sealed.header.as_slice(),
                    &event.salt.as_slice(),
                    &event.body.as_slice(),
                ],
            )
            .await?;
        let answer =
            answer(row.try_get(0)?, row.try_get(1)?, row.try_get(2)?, row.try_get(3)?, row.try_get(4)?);
        Ok((vec![answer], row.try_get(5)?))
    }

    async fn append_batch(
        &self,
        client: &Client,
        requests: &[(&Prepared, &Chained)],
    ) -> Result<Answers, tokio_postgres::Error> {
        let columns = Columns::of(requests);
        let row = client.query_one(&self.batch, &columns.parameters()).await?;
        let statuses: Option<Vec<i16>> = row.try_get(0)?;
        match statuses {
            None => accept_all(&row, requests),
            Some(statuses) => read_walk(&row, statuses),
        }
    }
}

/// The answers when every request was accepted: their events follow each other. None at all when the function does not say where
/// they begin, so that nobody is told a position that is none.
fn accept_all(row: &Row, requests: &[(&Prepared, &Chained)]) -> Result<Answers, tokio_postgres::Error> {
    let firsts: Vec<i64> = row.try_get(1)?;
    let Some(mut next) = firsts.first().map(|first| first.unsigned_abs()) else {
        return Ok((Vec::new(), row.try_get(5)?));
    };
    let answers = requests
        .iter()
        .map(|(_, chained)| {
            let first = Position(next);
            next += u64::try_from(chained.sealed.len()).unwrap_or(u64::MAX);
            Answer { outcome: Outcome::Ok { first }, tip: chained.tip }
        })
        .collect();
    Ok((answers, row.try_get(5)?))
}

fn read_walk(row: &Row, statuses: Vec<i16>) -> Result<Answers, tokio_postgres::Error> {
    let firsts: Vec<Option<i64>> = row.try_get(1)?;
    let counts: Vec<i32> = row.try_get(2)?;
    let versions: Vec<i64> = row.try_get(3)?;
    let leaves: Vec<&[u8]> = row.try_get(4)?;
    let answers = statuses
        .into_iter()
        .zip(firsts)
        .zip(counts)
        .zip(versions)
        .zip(leaves)
        .map(|((((status, first), count), version), leaf)| answer(status, first, Some(count), version, leaf))
        .collect();
    Ok((answers, row.try_get(5)?))
}

fn answer(status: i16, first: Option<i64>, count: Option<i32>, version: i64, leaf: &[u8]) -> Answer {
    let first = Position(first.unwrap_or(0).unsigned_abs());
    let outcome = match status {
        0 => Outcome::Ok { first },
        1 => Outcome::Duplicate { first, count: count.unwrap_or(1).unsigned_abs().into() },
        2 => Outcome::KeyReused,
        4 => Outcome::Stale,
        5 => Outcome::Clock,
        _ => Outcome::Conflict,
    };
    Answer { outcome, tip: tip_of(version, leaf) }
}

fn is_any(request: &Prepared) -> bool {
    matches!(request.expected, super::Expected::Any)
}

/// Versions stay far below 2^63: they count events.
pub(super) fn to_i64(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// The function's array parameters, in the order of its signature.
#[derive(Default)]
struct Columns<'a> {
    request_stream: Vec<i32>,
    request_any: Vec<bool>,
    request_version: Vec<i64>,
    request_leaf: Vec<&'a [u8]>,
    request_count: Vec<i32>,
    request_tip: Vec<&'a [u8]>,
    key_tenant: Vec<Option<Uuid>>,
    key: Vec<Option<&'a str>>,
    key_digest: Vec<Option<&'a [u8]>>,
    guard_request: Vec<i32>,
    guard_stream: Vec<i32>,
    guard_version: Vec<i64>,
    guard_leaf: Vec<&'a [u8]>,
    stream_category: Vec<&'a str>,
    stream_key: Vec<&'a str>,
    event_request: Vec<i32>,
    event_version: Vec<i64>,
    event_type: Vec<i16>,
    event_id: Vec<Uuid>,
    event_tenant: Vec<Uuid>,
    event_recorded_at: Vec<SystemTime>,
    event_leaf: Vec<&'a [u8]>,
    event_header: Vec<&'a [u8]>,
    event_salt: Vec<&'a [u8]>,
    event_body: Vec<&'a [u8]>,
}

impl<'a> Columns<'a> {
    fn of(requests: &[(&'a Prepared, &'a Chained)]) -> Self {
        let mut columns = Self::default();
        let mut indexes = HashMap::new();
        for (number, (request, chained)) in (1_i32..).zip(requests) {
            let stream = columns.stream_index(&mut indexes, &request.stream);
            columns.request_stream.push(stream);
            columns.request_any.push(is_any(request));
            columns.request_version.push(to_i64(chained.base.version.get()));
            columns.request_leaf.push(&chained.base.leaf);
            columns.request_count.push(i32::try_from(request.events.len()).unwrap_or(i32::MAX));
            columns.request_tip.push(&chained.tip.leaf);
            columns.key_tenant.push(request.key.as_ref().map(|key| key.tenant.as_uuid()));
            columns.key.push(request.key.as_ref().map(|key| key.key.as_str()));
            columns.key_digest.push(request.key.as_ref().map(|key| key.digest.as_slice()));
            for (stream, tip) in &request.guards {
                let stream = columns.stream_index(&mut indexes, stream);
                columns.guard_request.push(number);
                columns.guard_stream.push(stream);
                columns.guard_version.push(to_i64(tip.version.get()));
                columns.guard_leaf.push(&tip.leaf);
            }
            let mut version = chained.base.version.get();
            for (event, sealed) in request.events.iter().zip(&chained.sealed) {
                version += 1;
                columns.event_request.push(number);
                columns.event_version.push(to_i64(version));
                columns.event_type.push(event.new.event.event_type().id());
                columns.event_id.push(event.new.event_id.as_uuid());
                columns.event_tenant.push(event.new.tenant.as_uuid());
                columns.event_recorded_at.push(system_time(event.new.recorded_at));
                columns.event_leaf.push(&sealed.leaf);
                columns.event_header.push(&sealed.header);
                columns.event_salt.push(&event.salt);
                columns.event_body.push(&event.body);
            }
        }
        columns
    }

    /// Number of a stream in the batch, from 1; its first mention adds it.
    fn stream_index(&mut self, indexes: &mut HashMap<&'a StreamName, i32>, stream: &'a StreamName) -> i32 {
        *indexes.entry(stream).or_insert_with(|| {
            self.stream_category.push(stream.category());
            self.stream_key.push(stream.key());
            i32::try_from(self.stream_key.len()).unwrap_or(i32::MAX)
        })
    }

    fn parameters(&self) -> [&(dyn ToSql + Sync); 25] {
        [
            &self.request_stream,
            &self.request_any,
            &self.request_version,
            &self.request_leaf,
            &self.request_count,
            &self.request_tip,
            &self.key_tenant,
            &self.key,
            &self.key_digest,
            &self.guard_request,
            &self.guard_stream,
            &self.guard_version,
            &self.guard_leaf,
            &self.stream_category,
            &self.stream_key,
            &self.event_request,
            &self.event_version,
            &self.event_type,
            &self.event_id,
            &self.event_tenant,
            &self.event_recorded_at,
            &self.event_leaf,
            &self.event_header,
            &self.event_salt,
            &self.event_body,
        ]
    }
}
