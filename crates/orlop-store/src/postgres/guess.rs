//! Batches in one round trip.
//!
//! Whose turn it is (`turn.rs`) knows the newest revision, and mostly which version each key has. So a batch is
//! evaluated from that, and written by a statement that makes sure of it first (`statement.rs`): that the turn still
//! lasts, so that nobody else has written, and of what that does not say. If something was wrong, nothing has
//! happened, and the batch is done again under the lock, from what is read there.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use bytes::Bytes;

use super::{connect::Session, known::Known, statement::TakenForGranted, turn::Turn, write::Live};
use crate::{
    KeyRange, LeaseId, Limits, Read, ReadResult, Revision,
    engine::{Command, Outcome},
    error::Result,
    evaluate::{Evaluation, LeaseRow, Need, Unseen, View},
    event::{Commit, Current, VersionId},
};

/// Batches after wrong guesses for which nothing is guessed, at the most.
const CAUTION_MAX: u32 = 64;

/// Where the log ends.
#[derive(Clone, Copy, Debug)]
pub(super) struct Head {
    pub(super) revision: Revision,
    pub(super) last_id: VersionId,
    /// Bytes that all versions ever took.
    pub(super) written: i64,
}

/// What the batches of this process have left.
#[derive(Debug, Default)]
pub(super) struct Guesses {
    /// The turn of the session that writes, if it has taken one.
    turn: Option<Turn>,
    /// What the last batch of that turn has left, if that is known.
    head: Option<Head>,
    known: Known,
    /// Whether the keys that were not known turned out not to exist, the last time that was looked.
    unknown_are_new: bool,
    /// Batches for which nothing is to be guessed: twice as many after each wrong guess.
    waiting: u32,
    caution: u32,
    /// Values of the last batch that are to be kept at hand.
    to_keep: Vec<Arc<Commit>>,
}

/// A batch evaluated from guesses.
pub(super) struct Guessed<'l> {
    pub(super) evaluation: Evaluation<'l>,
    pub(super) outcomes: Vec<Result<Outcome>>,
    pub(super) turn: Turn,
    pub(super) found: Head,
    rows: BTreeMap<Bytes, Told>,
}

/// What an evaluation has been told of a key.
#[derive(Debug)]
struct Told {
    row: Option<Current>,
    /// Whether it is so if the turn still lasts.
    sure: bool,
}

impl Guesses {
    /// Evaluates a batch; `None` if it has to be done under the lock.
    pub(super) fn evaluate<'l>(&mut self, limits: &'l Limits, batch: &[Command]) -> Option<Guessed<'l>> {
        let (turn, found) = (self.turn?, self.head?);
        if self.waiting > 0 {
            self.waiting -= 1;
            return None;
        }
        let mut evaluation = Evaluation::new(limits, found.revision, found.last_id);
        let mut view =
            Guess { known: &mut self.known, unknown_are_new: self.unknown_are_new, rows: BTreeMap::new() };
        let mut outcomes = Vec::with_capacity(batch.len());
        for command in batch {
            outcomes.push(match evaluation.run(&mut view, command) {
                Ok(outcome) => Ok(outcome),
                Err(Unseen::Error(error)) => Err(error),
                Err(Unseen::Need(_)) => return None,
            });
        }
        Some(Guessed { evaluation, outcomes, turn, found, rows: view.rows })
    }

    /// Prepares for the batch's success while the server is at it, and does what the last batch has left to do.
    pub(super) fn hope_for(&mut self, session: &Session, commits: &[Commit]) {
        session.keep_committed(&std::mem::take(&mut self.to_keep));
        self.known.take(commits);
    }

    /// The batch that was hoped for has happened.
    pub(super) fn were_right(&mut self, left: Head, commits: &[Arc<Commit>]) {
        self.caution = 0;
        self.head = Some(left);
        self.to_keep = commits.to_vec();
    }

    /// Nothing of the batch that was hoped for has happened.
    pub(super) fn were_wrong(&mut self, commits: &[Commit]) {
        self.caution = (self.caution * 2).clamp(1, CAUTION_MAX);
        self.waiting = self.caution;
        self.head = None;
        self.known.drop(commits);
    }

    /// The turn, if it is still the one that lasts. Otherwise somebody else may have written.
    pub(super) fn go_on(&mut self, lasting: Turn) -> Option<Turn> {
        if self.turn != Some(lasting) {
            self.end_turn();
        }
        self.turn
    }

    /// Takes what a batch under the lock has read and left. There is no turn if it wrote nothing and had none.
    pub(super) fn learn<'r>(
        &mut self,
        turn: Option<Turn>,
        left: Head,
        read: impl Iterator<Item = (&'r Bytes, Option<&'r Current>)>,
        commits: &[Arc<Commit>],
    ) {
        let (mut unknown, mut new) = (0, 0);
        for (key, row) in read {
            if self.known.get(key).is_none() {
                unknown += 1;
                new += usize::from(row.is_none());
            }
            if let Some(row) = row {
                self.known.put(key, row);
            }
        }
        if unknown > 0 {
            self.unknown_are_new = unknown == new;
        }
        self.turn = turn;
        self.head = turn.is_some().then_some(left);
        self.known.take(commits);
    }

    /// The turn is over, or its session is.
    pub(super) fn end_turn(&mut self) {
        self.turn = None;
        self.head = None;
        self.known.turn();
    }

    /// Nobody knows what the last batch has left.
    pub(super) fn forget(&mut self) {
        *self = Self::default();
    }
}

impl Guessed<'_> {
    /// What the server has to make sure of. That a key is not there it will find when it inserts it.
    pub(super) fn taken_for_granted<'g>(
        &'g self,
        live: &Live<'_>,
        if_turn_is: &'g str,
    ) -> TakenForGranted<'g> {
        let events = self.evaluation.commits.iter().flat_map(|commit| &commit.events);
        let inserted: BTreeSet<&Bytes> = match live {
            Live::AsLogged { .. } => {
                events.filter(|event| event.created()).map(|event| &event.kv.key).collect()
            }
            Live::Changed(_) => BTreeSet::new(),
        };
        let mut taken = TakenForGranted {
            turn: self.turn,
            if_turn_is,
            key: Vec::new(),
            id: Vec::new(),
            terms: Vec::new(),
        };
        let unsure = self.rows.iter().filter(|(key, told)| !told.sure && !inserted.contains(key));
        for (key, Told { row, .. }) in unsure {
            taken.key.push(key);
            taken.id.push(row.as_ref().map(|row| row.id));
            taken.terms.push(row.as_ref().map(|row| &row.terms.encoded()[..]));
        }
        taken
    }
}

/// Keys as they are believed to be.
struct Guess<'g> {
    known: &'g mut Known,
    unknown_are_new: bool,
    /// What the evaluation has been told.
    rows: BTreeMap<Bytes, Told>,
}

impl View for Guess<'_> {
    /// Only leases look at the clock, and they are not guessed.
    fn now_ms(&self) -> i64 {
        0
    }

    fn current(&mut self, key: &Bytes) -> Result<Option<Current>, Unseen> {
        if let Some(told) = self.rows.get(key) {
            return Ok(told.row.clone());
        }
        let told = match self.known.get(key) {
            Some((row, sure)) => Told { row: Some(row.clone()), sure },
            None if self.unknown_are_new => Told { row: None, sure: false },
            None => return Err(Unseen::Need(Need::Key(key.clone()))),
        };
        let row = told.row.clone();
        self.rows.insert(key.clone(), told);
        Ok(row)
    }

    fn value(&mut self, key: &Bytes, id: VersionId) -> Result<Bytes, Unseen> {
        Err(Unseen::Need(Need::Value(key.clone(), id)))
    }

    fn range(&mut self, range: &KeyRange, limit: usize) -> Result<Vec<(Bytes, Current)>, Unseen> {
        Err(Unseen::Need(Need::Range(range.clone(), limit)))
    }

    fn count(&mut self, range: &KeyRange) -> Result<u64, Unseen> {
        Err(Unseen::Need(Need::Count(range.clone())))
    }

    fn past(&mut self, read: &Read) -> Result<ReadResult, Unseen> {
        Err(Unseen::Need(Need::Past(read.clone())))
    }

    fn lease(&mut self, id: LeaseId) -> Result<Option<LeaseRow>, Unseen> {
        Err(Unseen::Need(Need::Lease(id)))
    }

    fn lease_keys(&mut self, id: LeaseId) -> Result<Vec<(Bytes, Current)>, Unseen> {
        Err(Unseen::Need(Need::LeaseKeys(id)))
    }
}
