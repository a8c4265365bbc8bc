//! The rows a batch looks at, brought over the network before they are needed.
//!
//! Everything that the commands name is fetched right after the lock is got. What only turns
//! out on the way, such as the keys of a range or the value that a lost compare is answered with, is
//! fetched when the evaluation asks for it, and more of the same kind with it.

use std::collections::{BTreeSet, HashMap};

use bytes::Bytes;

use super::{
    connect::Session,
    fault::Fault,
    read::{self, NARROW, within_range},
    rows::{self, Arena, column},
};
use crate::{
    Compare, KeyRange, LeaseId, Limits, Op, Read, ReadResult, Select, Target, Txn,
    engine::Command,
    error::Error,
    evaluate::{LeaseRow, Need, Unseen, View},
    event::{Current, VersionId},
};

/// Values that are fetched together, of the keys of one range.
const VALUES_AHEAD: usize = 1000;

/// What the commands of a batch name.
#[derive(Debug, Default)]
pub(super) struct Named {
    pub(super) keys: BTreeSet<Bytes>,
    /// Keys whose values are needed if all goes well.
    pub(super) values: BTreeSet<Bytes>,
    /// Keys whose values are needed if a compare fails.
    answers: BTreeSet<Bytes>,
    pub(super) leases: BTreeSet<LeaseId>,
}

impl Named {
    pub(super) fn by(batch: &[&Command]) -> Self {
        let mut named = Self::default();
        for command in batch {
            match command {
                Command::Txn(txn) => named.txn(txn),
                Command::Grant { id, .. } => named.leases.extend(*id),
                Command::Renew(id) | Command::Revoke(id) | Command::Expire(id) => {
                    named.leases.insert(*id);
                }
                Command::Reindex(keys) => named.keys.extend(keys.iter().map(|(key, ..)| key.clone())),
            }
        }
        named
    }

    fn txn(&mut self, txn: &Txn) {
        for Compare { range, target, .. } in &txn.compares {
            let value = matches!(target, Target::Value(_));
            self.range(range, value, true);
        }
        let then = txn.then.iter().map(|op| (op, true));
        for (op, likely) in then.chain(txn.otherwise.iter().map(|op| (op, false))) {
            match op {
                Op::Put(put) => {
                    self.range(&KeyRange::key(put.key.clone()), put.previous || put.keep_value, likely);
                    if put.lease != 0 {
                        self.leases.insert(put.lease);
                    }
                }
                Op::Delete(delete) => self.range(&delete.range, delete.previous, likely),
                Op::Read(read) if read.revision.is_none() => {
                    self.range(&read.range, read.select == Select::Values, likely);
                }
                Op::Read(_) => {}
                Op::Txn(inner) => self.txn(inner),
            }
        }
    }

    fn range(&mut self, range: &KeyRange, value: bool, likely: bool) {
        let Some(key) = range.single() else { return };
        self.keys.insert(key.clone());
        if value {
            (if likely { &mut self.values } else { &mut self.answers }).insert(key.clone());
        }
    }
}

/// Live versions by key, sorted.
type Rows = Vec<(Bytes, Current)>;

/// What has been fetched so far.
#[derive(Debug)]
pub(super) struct Fetched {
    now_ms: i64,
    named: Named,
    keys: HashMap<Bytes, Current>,
    values: HashMap<VersionId, Result<Bytes, Error>>,
    ranges: Vec<(KeyRange, usize, Rows)>,
    counts: HashMap<KeyRange, u64>,
    past: Vec<(Read, Result<ReadResult, Error>)>,
    leases: HashMap<LeaseId, Option<LeaseRow>>,
    lease_keys: HashMap<LeaseId, Rows>,
}

impl Fetched {
    pub(super) fn new(now_ms: i64, named: Named) -> Self {
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

    /// Takes rows of the named keys.
    pub(super) fn take_keys(&mut self, rows: &[tokio_postgres::Row]) -> Result<(), Fault> {
        let mut arena = Arena::default();
        for row in rows {
            let (key, current) = rows::keyed_to_replace(row, &mut arena)?;
            self.keys.insert(key, current);
        }
        Ok(())
    }

    /// The keys that were looked at one by one.
    pub(super) fn rows(&self) -> impl Iterator<Item = (&Bytes, Option<&Current>)> {
        self.named.keys.iter().map(|key| (key, self.keys.get(key)))
    }

    /// Takes rows of [`rows::VALUES`].
    pub(super) fn take_values(&mut self, rows: &[tokio_postgres::Row]) -> Result<(), Fault> {
        for row in rows {
            // Each in memory of its own: these may live on in the ring of recent events.
            let (id, value) = rows::value(row, &mut Arena::default())?;
            self.values.insert(id, value);
        }
        Ok(())
    }

    /// Takes rows of the named leases.
    pub(super) fn take_leases(&mut self, rows: &[tokio_postgres::Row]) -> Result<(), Fault> {
        for row in rows {
            let lease = lease(row)?;
            self.leases.insert(lease.id, Some(lease));
        }
        Ok(())
    }

    /// Fetches what the evaluation asked for.
    pub(super) async fn fetch(
        &mut self,
        session: &Session,
        limits: &Limits,
        need: Need,
    ) -> Result<(), Fault> {
        match need {
            Need::Key(key) => {
                let sql = format!("select {NARROW}, terms from live where key = $1");
                let rows = session.query(&sql, &[&&key[..]]).await?;
                self.named.keys.insert(key);
                self.take_keys(&rows)?;
            }
            Need::Value(key, id) => {
                let ids = self.values_with(&key, id);
                let rows = session.query(rows::VALUES, &[&ids]).await?;
                self.take_values(&rows)?;
                self.values.entry(id).or_insert(Err(Error::Corrupt { key }));
            }
            Need::Range(range, limit) => {
                let in_range = within_range(&range);
                let sql = format!("select {NARROW}, terms from live where {in_range} order by key limit $3");
                let (start, end) = (&range.start()[..], range.end().map(|end| &end[..]));
                let limit_rows = i64::try_from(limit).unwrap_or(i64::MAX);
                let rows = session.query(&sql, &[&start, &end, &limit_rows]).await?;
                let rows = currents(&rows)?;
                self.ranges.push((range, limit, rows));
            }
            Need::Count(range) => {
                let sql = format!("select count(*) from live where {}", within_range(&range));
                let (start, end) = (&range.start()[..], range.end().map(|end| &end[..]));
                let rows = session.query(&sql, &[&start, &end]).await?;
                let count: i64 = rows.first().map_or(Ok(0), |row| column(row, 0))?;
                self.counts.insert(range, count.max(0) as u64);
            }
            Need::Past(read) => {
                let answer = match read::read(session, limits, &read, true).await {
                    Ok(result) => Ok(result),
                    Err(Fault::Answer(error)) => Err(error),
                    Err(fault) => return Err(fault),
                };
                self.past.push((read, answer));
            }
            Need::Lease(id) => {
                let rows = session.query(LEASES, &[&vec![id]]).await?;
                self.leases.insert(id, None);
                self.take_leases(&rows)?;
            }
            Need::LeaseKeys(id) => {
                let sql =
                    format!("select {NARROW}, terms from live where lease = $1 and lease <> 0 order by key");
                let rows = session.query(&sql, &[&id]).await?;
                self.lease_keys.insert(id, currents(&rows)?);
            }
        }
        Ok(())
    }

    /// The value asked for, those that other commands may be answered with, and what follows in a range.
    fn values_with(&self, key: &Bytes, id: VersionId) -> Vec<VersionId> {
        let answers = self.named.answers.iter().filter_map(|key| self.keys.get(key));
        let mut ids: BTreeSet<VersionId> = answers.map(|row| row.id).collect();
        for (range, _, rows) in &self.ranges {
            if range.contains(key) {
                let from = rows.partition_point(|(other, _)| other < key);
                ids.extend(rows.iter().skip(from).take(VALUES_AHEAD).map(|(_, row)| row.id));
            }
        }
        ids.insert(id);
        ids.retain(|id| !self.values.contains_key(id));
        ids.into_iter().collect()
    }
}

/// Leases by id.
pub(super) const LEASES: &str = "select id, ttl_seconds, deadline_ms from lease where id = any($1)";

pub(super) fn lease(row: &tokio_postgres::Row) -> Result<LeaseRow, Fault> {
    Ok(LeaseRow { id: column(row, 0)?, ttl_seconds: column(row, 1)?, deadline_ms: column(row, 2)? })
}

/// Rows of a range.
fn currents(rows: &[tokio_postgres::Row]) -> Result<Rows, Fault> {
    let mut arena = Arena::default();
    rows.iter().map(|row| rows::keyed_to_replace(row, &mut arena)).collect()
}

impl View for Fetched {
    fn now_ms(&self) -> i64 {
        self.now_ms
    }

    fn current(&mut self, key: &Bytes) -> Result<Option<Current>, Unseen> {
        match self.keys.get(key) {
            Some(row) => Ok(Some(row.clone())),
            None if self.named.keys.contains(key) => Ok(None),
            None => Err(Unseen::Need(Need::Key(key.clone()))),
        }
    }

    fn value(&mut self, key: &Bytes, id: VersionId) -> Result<Bytes, Unseen> {
        match self.values.get(&id) {
            Some(value) => Ok(value.clone()?),
            None => Err(Unseen::Need(Need::Value(key.clone(), id))),
        }
    }

    fn range(&mut self, range: &KeyRange, limit: usize) -> Result<Vec<(Bytes, Current)>, Unseen> {
        let known = self
            .ranges
            .iter()
            .find(|(known, reach, rows)| known == range && (*reach >= limit || rows.len() < *reach));
        match known {
            Some((_, _, rows)) => Ok(rows.iter().take(limit).cloned().collect()),
            None => Err(Unseen::Need(Need::Range(range.clone(), limit))),
        }
    }

    fn count(&mut self, range: &KeyRange) -> Result<u64, Unseen> {
        self.counts.get(range).copied().ok_or_else(|| Unseen::Need(Need::Count(range.clone())))
    }

    fn past(&mut self, read: &Read) -> Result<ReadResult, Unseen> {
        match self.past.iter().find(|(known, _)| known == read) {
            Some((_, answer)) => Ok(answer.clone()?),
            None => Err(Unseen::Need(Need::Past(read.clone()))),
        }
    }

    fn lease(&mut self, id: LeaseId) -> Result<Option<LeaseRow>, Unseen> {
        self.leases.get(&id).copied().ok_or(Unseen::Need(Need::Lease(id)))
    }

    fn lease_keys(&mut self, id: LeaseId) -> Result<Vec<(Bytes, Current)>, Unseen> {
        self.lease_keys.get(&id).cloned().ok_or(Unseen::Need(Need::LeaseKeys(id)))
    }
}
