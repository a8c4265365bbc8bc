//! Evaluates batches from cached rows. See [the module](super) for the argument.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use bytes::Bytes;

use super::{Assumptions, Epoch, row_cache::RowCache};
use crate::{
    KeyRange, LeaseId, Limits, Read, ReadResult, Revision,
    engine::{Command, Outcome},
    error::Result,
    evaluate::{Evaluation, Fetch, LeaseRow, View, ViewError},
    event::{Commit, VersionId, VersionMeta},
    postgres::{changes::LiveChange, connection::Session},
};

/// Maximum batches that skip speculation after wrong assumptions.
const COOLDOWN_MAX: u32 = 64;

/// The end of the log.
#[derive(Clone, Copy, Debug)]
pub(in crate::postgres) struct LogEnd {
    pub(in crate::postgres) revision: Revision,
    pub(in crate::postgres) last_id: VersionId,
    /// Bytes of all versions ever written.
    pub(in crate::postgres) written: i64,
}

/// Knowledge of the writer from its earlier batches.
#[derive(Debug)]
pub(in crate::postgres) struct Speculation {
    /// `Config::speculative_writes`.
    enabled: bool,
    /// The epoch that the writing session owns, if any.
    epoch: Option<Epoch>,
    /// The end of the log after the last batch of the epoch, if known.
    log_end: Option<LogEnd>,
    rows: RowCache,
    /// Assume that keys which are not cached do not exist: that was so for the last ones read.
    assume_absent: bool,
    /// Batches that skip speculation: twice as many after each wrong assumption.
    cooldown: u32,
    last_cooldown: u32,
    /// Commits of the last batch, whose values are still to be added to the value cache.
    uncached: Vec<Arc<Commit>>,
}

/// A batch evaluated from assumptions.
pub(in crate::postgres) struct SpeculativeBatch<'l> {
    pub(in crate::postgres) evaluation: Evaluation<'l>,
    pub(in crate::postgres) outcomes: Vec<Result<Outcome>>,
    pub(in crate::postgres) epoch: Epoch,
    /// The end of the log before the batch.
    pub(in crate::postgres) log_end: LogEnd,
    rows: BTreeMap<Bytes, AssumedRow>,
}

/// A row that an evaluation has read.
#[derive(Debug)]
struct AssumedRow {
    row: Option<VersionMeta>,
    /// Implied by the epoch, so that the server need not verify it.
    implied: bool,
}

impl Speculation {
    pub(in crate::postgres) fn new(enabled: bool) -> Self {
        Self {
            enabled,
            epoch: None,
            log_end: None,
            rows: RowCache::default(),
            assume_absent: false,
            cooldown: 0,
            last_cooldown: 0,
            uncached: Vec::new(),
        }
    }

    /// Evaluates a batch; `None` if it has to run under the exclusive lock.
    pub(in crate::postgres) fn evaluate<'l>(
        &mut self,
        limits: &'l Limits,
        batch: &[Command],
    ) -> Option<SpeculativeBatch<'l>> {
        if !self.enabled {
            return None;
        }
        let (epoch, log_end) = (self.epoch?, self.log_end?);
        if self.cooldown > 0 {
            self.cooldown -= 1;
            return None;
        }
        let mut evaluation = Evaluation::new(limits, log_end.revision, log_end.last_id);
        let mut view =
            CachedView { rows: &mut self.rows, assume_absent: self.assume_absent, read: BTreeMap::new() };
        let mut outcomes = Vec::with_capacity(batch.len());
        for command in batch {
            outcomes.push(match evaluation.evaluate(&mut view, command) {
                Ok(outcome) => Ok(outcome),
                Err(ViewError::Store(error)) => Err(error),
                Err(ViewError::NotFetched(_)) => return None,
            });
        }
        Some(SpeculativeBatch { evaluation, outcomes, epoch, log_end, rows: view.read })
    }

    /// Applies a batch to the caches while the server executes it, and the last batch's values to the value cache.
    pub(in crate::postgres) fn apply_speculatively(&mut self, session: &Session, commits: &[Commit]) {
        session.cache_committed(&std::mem::take(&mut self.uncached));
        self.rows.apply(commits);
    }

    /// Confirms the batch that was applied: it is committed.
    pub(in crate::postgres) fn confirm(&mut self, log_end: LogEnd, commits: &[Arc<Commit>]) {
        self.last_cooldown = 0;
        self.log_end = Some(log_end);
        self.uncached = commits.to_vec();
    }

    /// Rolls back the batch that was applied: an assumption was wrong, and nothing was written.
    pub(in crate::postgres) fn roll_back(&mut self, commits: &[Commit]) {
        self.last_cooldown = (self.last_cooldown * 2).clamp(1, COOLDOWN_MAX);
        self.cooldown = self.last_cooldown;
        self.log_end = None;
        self.rows.invalidate(commits);
    }

    /// Returns the owned epoch if it is still the current one; otherwise another process may have written.
    pub(in crate::postgres) fn owned_epoch(&mut self, current: Epoch) -> Option<Epoch> {
        if self.epoch != Some(current) {
            self.end_epoch();
        }
        self.epoch
    }

    /// Learns from a batch under the exclusive lock: the rows it has read and its commits. There is no epoch if it
    /// wrote nothing and owned none.
    pub(in crate::postgres) fn learn<'r>(
        &mut self,
        epoch: Option<Epoch>,
        log_end: LogEnd,
        read: impl Iterator<Item = (&'r Bytes, Option<&'r VersionMeta>)>,
        commits: &[Arc<Commit>],
    ) {
        self.epoch = epoch;
        if !self.enabled {
            return;
        }
        let (mut uncached, mut absent) = (0, 0);
        for (key, row) in read {
            if self.rows.get(key).is_none() {
                uncached += 1;
                absent += usize::from(row.is_none());
            }
            if let Some(row) = row {
                self.rows.insert(key, row);
            }
        }
        if uncached > 0 {
            self.assume_absent = uncached == absent;
        }
        self.log_end = epoch.is_some().then_some(log_end);
        self.rows.apply(commits);
    }

    /// Ends the owned epoch: another one has begun, or the session is lost.
    pub(in crate::postgres) fn end_epoch(&mut self) {
        self.epoch = None;
        self.log_end = None;
        self.rows.end_epoch();
    }

    /// Drops all knowledge: the outcome of the last batch is unknown.
    pub(in crate::postgres) fn reset(&mut self) {
        *self = Self::new(self.enabled);
    }
}

impl SpeculativeBatch<'_> {
    /// Returns the assumptions that the server has to verify. The absence of a key is verified by inserting it.
    pub(in crate::postgres) fn assumptions<'g>(
        &'g self,
        live: &LiveChange<'_>,
        epoch_check: &'g str,
    ) -> Assumptions<'g> {
        let events = self.evaluation.commits.iter().flat_map(|commit| &commit.events);
        let inserted: BTreeSet<&Bytes> = match live {
            LiveChange::FromLog { .. } => {
                events.filter(|event| event.created()).map(|event| &event.kv.key).collect()
            }
            LiveChange::Explicit(_) => BTreeSet::new(),
        };
        let mut assumptions = Assumptions {
            epoch: self.epoch,
            epoch_check,
            key: Vec::new(),
            id: Vec::new(),
            terms: Vec::new(),
        };
        let unverified = self.rows.iter().filter(|(key, row)| !row.implied && !inserted.contains(key));
        for (key, AssumedRow { row, .. }) in unverified {
            assumptions.key.push(key);
            assumptions.id.push(row.as_ref().map(|row| row.id));
            assumptions.terms.push(row.as_ref().map(|row| &row.terms.encoded()[..]));
        }
        assumptions
    }
}

/// Keys as they are assumed to be.
struct CachedView<'g> {
    rows: &'g mut RowCache,
    assume_absent: bool,
    /// Rows that the evaluation has read.
    read: BTreeMap<Bytes, AssumedRow>,
}

impl View for CachedView<'_> {
    /// Only leases need the clock, and they are never evaluated speculatively.
    fn now_ms(&self) -> i64 {
        0
    }

    fn current(&mut self, key: &Bytes) -> Result<Option<VersionMeta>, ViewError> {
        if let Some(assumed) = self.read.get(key) {
            return Ok(assumed.row.clone());
        }
        let assumed = match self.rows.get(key) {
            Some((row, implied)) => AssumedRow { row: Some(row.clone()), implied },
            None if self.assume_absent => AssumedRow { row: None, implied: false },
            None => return Err(ViewError::NotFetched(Fetch::Key(key.clone()))),
        };
        let row = assumed.row.clone();
        self.read.insert(key.clone(), assumed);
        Ok(row)
    }

    fn value(&mut self, key: &Bytes, id: VersionId) -> Result<Bytes, ViewError> {
        Err(ViewError::NotFetched(Fetch::Value(key.clone(), id)))
    }

    fn range(&mut self, range: &KeyRange, limit: usize) -> Result<Vec<(Bytes, VersionMeta)>, ViewError> {
        Err(ViewError::NotFetched(Fetch::Range(range.clone(), limit)))
    }

    fn count(&mut self, range: &KeyRange) -> Result<u64, ViewError> {
        Err(ViewError::NotFetched(Fetch::Count(range.clone())))
    }

    fn past(&mut self, read: &Read) -> Result<ReadResult, ViewError> {
        Err(ViewError::NotFetched(Fetch::Past(read.clone())))
    }

    fn lease(&mut self, id: LeaseId) -> Result<Option<LeaseRow>, ViewError> {
        Err(ViewError::NotFetched(Fetch::Lease(id)))
    }

    fn lease_keys(&mut self, id: LeaseId) -> Result<Vec<(Bytes, VersionMeta)>, ViewError> {
        Err(ViewError::NotFetched(Fetch::LeaseKeys(id)))
    }
}
