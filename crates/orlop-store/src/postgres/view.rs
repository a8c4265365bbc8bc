//! Rows of a batch, fetched before the evaluation needs them.
//!
//! Every row that the commands name is fetched together with the lock. What only turns out during the evaluation, such
//! as the keys of a range or the value that a failed compare returns, is fetched on demand, and more of the same kind
//! with it.

use std::collections::{BTreeSet, HashMap};

use bytes::Bytes;

use super::{
    connection::Session,
    db_error::DbError,
    extent::Extent,
    live::{META_COLUMNS, within_range},
    read,
    rows::{self, Arena, column},
};
use crate::{
    Compare, KeyRange, LeaseId, Limits, Op, Read, ReadResult, Select, Target, Txn,
    engine::Command,
    error::Error,
    evaluate::{Fetch, LeaseRow, View, ViewError},
    event::{VersionId, VersionMeta},
};

/// Values fetched together, of the keys of one range.
const PREFETCH_VALUES: usize = 1000;

/// Rows that the commands of a batch name.
#[derive(Debug, Default)]
pub(super) struct NamedRows {
    pub(super) keys: BTreeSet<Bytes>,
    /// Keys whose values are needed if all compares hold.
    pub(super) values: BTreeSet<Bytes>,
    /// Keys whose values are needed if a compare fails.
    fallback_values: BTreeSet<Bytes>,
    pub(super) leases: BTreeSet<LeaseId>,
}

impl NamedRows {
    pub(super) fn of(batch: &[&Command]) -> Self {
        let mut named = Self::default();
        for command in batch {
            match command {
                Command::Txn(txn) => named.add_txn(txn),
                Command::Grant { id, .. } => named.leases.extend(*id),
                Command::Renew(id) | Command::Revoke(id) | Command::Expire(id) => {
                    named.leases.insert(*id);
                }
                Command::Reindex(keys) => named.keys.extend(keys.iter().map(|(key, ..)| key.clone())),
            }
        }
        named
    }

    fn add_txn(&mut self, txn: &Txn) {
        for Compare { range, target, .. } in &txn.compares {
            let value = matches!(target, Target::Value(_));
            self.add_range(range, value, true);
        }
        let then = txn.then.iter().map(|op| (op, true));
        for (op, likely) in then.chain(txn.otherwise.iter().map(|op| (op, false))) {
            match op {
                Op::Put(put) => {
                    self.add_range(&KeyRange::key(put.key.clone()), put.previous || put.keep_value, likely);
                    if put.lease != 0 {
                        self.leases.insert(put.lease);
                    }
                }
                Op::Delete(delete) => self.add_range(&delete.range, delete.previous, likely),
                Op::Read(read) if read.revision.is_none() => {
                    self.add_range(&read.range, read.select == Select::Values, likely);
                }
                Op::Read(_) => {}
                Op::Txn(inner) => self.add_txn(inner),
            }
        }
    }

    fn add_range(&mut self, range: &KeyRange, value: bool, likely: bool) {
        let Some(key) = range.single() else { return };
        self.keys.insert(key.clone());
        if value {
            (if likely { &mut self.values } else { &mut self.fallback_values }).insert(key.clone());
        }
    }
}

/// Live versions by key, sorted.
type Rows = Vec<(Bytes, VersionMeta)>;

/// The rows fetched so far.
#[derive(Debug)]
pub(super) struct FetchedView {
    now_ms: i64,
    named: NamedRows,
    keys: HashMap<Bytes, VersionMeta>,
    values: HashMap<VersionId, Result<Bytes, Error>>,
    ranges: Vec<(KeyRange, usize, Rows)>,
    counts: HashMap<KeyRange, u64>,
    past: Vec<(Read, Result<ReadResult, Error>)>,
    leases: HashMap<LeaseId, Option<LeaseRow>>,
    lease_keys: HashMap<LeaseId, Rows>,
}

impl FetchedView {
    pub(super) fn new(now_ms: i64, named: NamedRows) -> Self {
        Self {
            now_ms,
            leases: named.leases.iter().map(|id| (*id, None)).collect(),
            named,
            keys: HashMap::new(),
            values: HashMap::new(),
            ranges: Vec::new(),
            counts: HashMap::new(),
            past: Vec::new(),
            lease_keys: HashMap::new(),
        }
    }

    /// Adds rows of the named keys.
    pub(super) fn take_keys(&mut self, rows: &[tokio_postgres::Row]) -> Result<(), DbError> {
        let mut arena = Arena::default();
        for row in rows {
            let (key, current) = rows::keyed_to_replace(row, &mut arena)?;
            self.keys.insert(key, current);
        }
        Ok(())
    }

    /// Returns the named keys and their rows.
    pub(super) fn named_rows(&self) -> impl Iterator<Item = (&Bytes, Option<&VersionMeta>)> {
        self.named.keys.iter().map(|key| (key, self.keys.get(key)))
    }

    /// Adds rows of [`rows::VALUES`].
    pub(super) fn take_values(&mut self, rows: &[tokio_postgres::Row]) -> Result<(), DbError> {
        for row in rows {
            // Each in its own allocation: they may live on in the ring buffer.
            let (id, value) = rows::value(row, &mut Arena::default())?;
            self.values.insert(id, value);
        }
        Ok(())
    }

    /// Adds rows of the named leases.
    pub(super) fn take_leases(&mut self, rows: &[tokio_postgres::Row]) -> Result<(), DbError> {
        for row in rows {
            let lease = lease(row)?;
            self.leases.insert(lease.id, Some(lease));
        }
        Ok(())
    }

    /// Fetches what the evaluation needs.
    pub(super) async fn fetch(
        &mut self,
        session: &Session,
        limits: &Limits,
        fetch: Fetch,
    ) -> Result<(), DbError> {
        match fetch {
            Fetch::Key(key) => {
                let sql = format!("select {META_COLUMNS}, terms from live where key = $1");
                let rows = session.query(&sql, &[&&key[..]]).await?;
                self.named.keys.insert(key);
                self.take_keys(&rows)?;
            }
            Fetch::Value(key, id) => {
                let ids = self.values_to_fetch(&key, id);
                let rows = session.query(rows::VALUES, &[&ids]).await?;
                self.take_values(&rows)?;
                self.values.entry(id).or_insert(Err(Error::Corrupt { key }));
            }
            Fetch::Range(range, limit) => {
                let in_range = within_range(&range);
                let sql =
                    format!("select {META_COLUMNS}, terms from live where {in_range} order by key limit $3");
                let (start, end) = (&range.start()[..], range.end().map(|end| &end[..]));
                let limit_rows = i64::try_from(limit).unwrap_or(i64::MAX);
                let rows = session.query(&sql, &[&start, &end, &limit_rows]).await?;
                let rows = decode_rows(&rows)?;
                self.ranges.push((range, limit, rows));
            }
            Fetch::Count(range) => {
                let sql = format!("select count(*) from live where {}", within_range(&range));
                let (start, end) = (&range.start()[..], range.end().map(|end| &end[..]));
                let rows = session.query(&sql, &[&start, &end]).await?;
                let count: i64 = rows.first().map_or(Ok(0), |row| column(row, 0))?;
                self.counts.insert(range, count.max(0) as u64);
            }
            Fetch::Past(read) => {
                let answer = match read::read(session, limits, &read, Extent::Transaction).await {
                    Ok(result) => Ok(result),
                    Err(DbError::Rejected(error)) => Err(error),
                    Err(error) => return Err(error),
                };
                self.past.push((read, answer));
            }
            Fetch::Lease(id) => {
                let rows = session.query(LEASES, &[&vec![id]]).await?;
                self.leases.insert(id, None);
                self.take_leases(&rows)?;
            }
            Fetch::LeaseKeys(id) => {
                let sql = format!(
                    "select {META_COLUMNS}, terms from live where lease = $1 and lease <> 0 order by key"
                );
                let rows = session.query(&sql, &[&id]).await?;
                self.lease_keys.insert(id, decode_rows(&rows)?);
            }
        }
        Ok(())
    }

    /// Returns the version to fetch, with those that other commands may return and those that follow in a range.
    fn values_to_fetch(&self, key: &Bytes, id: VersionId) -> Vec<VersionId> {
        let fallbacks = self.named.fallback_values.iter().filter_map(|key| self.keys.get(key));
        let mut ids: BTreeSet<VersionId> = fallbacks.map(|row| row.id).collect();
        for (range, _, rows) in &self.ranges {
            if range.contains(key) {
                let from = rows.partition_point(|(other, _)| other < key);
                ids.extend(rows.iter().skip(from).take(PREFETCH_VALUES).map(|(_, row)| row.id));
            }
        }
        ids.insert(id);
        ids.retain(|id| !self.values.contains_key(id));
        ids.into_iter().collect()
    }
}

/// Selects leases by id.
pub(super) const LEASES: &str = "select id, ttl_seconds, deadline_ms from lease where id = any($1)";

pub(super) fn lease(row: &tokio_postgres::Row) -> Result<LeaseRow, DbError> {
    Ok(LeaseRow { id: column(row, 0)?, ttl_seconds: column(row, 1)?, deadline_ms: column(row, 2)? })
}

/// Decodes rows of a range.
fn decode_rows(rows: &[tokio_postgres::Row]) -> Result<Rows, DbError> {
    let mut arena = Arena::default();
    rows.iter().map(|row| rows::keyed_to_replace(row, &mut arena)).collect()
}

impl View for FetchedView {
    fn now_ms(&self) -> i64 {
        self.now_ms
    }

    fn current(&mut self, key: &Bytes) -> Result<Option<VersionMeta>, ViewError> {
        match self.keys.get(key) {
            Some(row) => Ok(Some(row.clone())),
            None if self.named.keys.contains(key) => Ok(None),
            None => Err(ViewError::NotFetched(Fetch::Key(key.clone()))),
        }
    }

    fn value(&mut self, key: &Bytes, id: VersionId) -> Result<Bytes, ViewError> {
        match self.values.get(&id) {
            Some(value) => Ok(value.clone()?),
            None => Err(ViewError::NotFetched(Fetch::Value(key.clone(), id))),
        }
    }

    fn range(&mut self, range: &KeyRange, limit: usize) -> Result<Vec<(Bytes, VersionMeta)>, ViewError> {
        let fetched = self
            .ranges
            .iter()
            .find(|(fetched, reach, rows)| fetched == range && (*reach >= limit || rows.len() < *reach));
        match fetched {
            Some((_, _, rows)) => Ok(rows.iter().take(limit).cloned().collect()),
            None => Err(ViewError::NotFetched(Fetch::Range(range.clone(), limit))),
        }
    }

    fn count(&mut self, range: &KeyRange) -> Result<u64, ViewError> {
        self.counts.get(range).copied().ok_or_else(|| ViewError::NotFetched(Fetch::Count(range.clone())))
    }

    fn past(&mut self, read: &Read) -> Result<ReadResult, ViewError> {
        match self.past.iter().find(|(fetched, _)| fetched == read) {
            Some((_, answer)) => Ok(answer.clone()?),
            None => Err(ViewError::NotFetched(Fetch::Past(read.clone()))),
        }
    }

    fn lease(&mut self, id: LeaseId) -> Result<Option<LeaseRow>, ViewError> {
        self.leases.get(&id).copied().ok_or(ViewError::NotFetched(Fetch::Lease(id)))
    }

    fn lease_keys(&mut self, id: LeaseId) -> Result<Vec<(Bytes, VersionMeta)>, ViewError> {
        self.lease_keys.get(&id).cloned().ok_or(ViewError::NotFetched(Fetch::LeaseKeys(id)))
    }
}
