//! Checker of histories: is there one order of a document's operations, within the times that they took, in
//! which a document without any concurrency would have given the same answers?
//!
//! The search is Wing and Gong's, with the memory of visited configurations that Lowe added. Documents are
//! independent of each other, so each is searched alone.

use std::collections::HashSet;

/// Content of a document: its value, or nothing.
pub(crate) type State = Option<i64>;

/// An operation on one document.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Call {
    /// Reads the document by `_id` or by an index: `Value`.
    Read,
    /// Asks an index if the document has a value: `Done`.
    Has(i64),
    /// Inserts or replaces: `Done(true)`.
    Put(i64),
    /// Inserts: `Done(false)` if it exists.
    Insert(i64),
    /// Replaces the first value by the second: `Done(false)` if it has another.
    Exchange(i64, i64),
    /// Deletes: `Done(false)` if there is nothing.
    Delete,
}

/// Answer to an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Answer {
    Value(State),
    Done(bool),
    /// The connection broke: it happened, or it did not.
    Unknown,
}

/// An operation with its times, of a logical clock.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Operation {
    pub(crate) call: Call,
    pub(crate) answer: Answer,
    pub(crate) invoked: u64,
    /// `u64::MAX` if no answer came.
    pub(crate) returned: u64,
}

/// Runs an operation on a document that nobody else uses.
fn step(state: State, call: Call) -> (State, Answer) {
    match call {
        Call::Read => (state, Answer::Value(state)),
        Call::Has(value) => (state, Answer::Done(state == Some(value))),
        Call::Put(value) => (Some(value), Answer::Done(true)),
        Call::Insert(value) if state.is_none() => (Some(value), Answer::Done(true)),
        Call::Exchange(old, new) if state == Some(old) => (Some(new), Answer::Done(true)),
        Call::Insert(_) | Call::Exchange(..) => (state, Answer::Done(false)),
        Call::Delete => (None, Answer::Done(state.is_some())),
    }
}

/// A configuration of the search: everything before `first` is done, and of what follows the bits of `done`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Configuration {
    first: usize,
    done: u128,
    state: State,
}

impl Configuration {
    fn is_done(self, position: usize) -> bool {
        position < self.first
            || (position - self.first < 128 && self.done >> (position - self.first) & 1 == 1)
    }

    fn with(mut self, position: usize, state: State) -> Self {
        self.done |= 1 << (position - self.first);
        self.state = state;
        while self.done & 1 == 1 {
            self.done >>= 1;
            self.first += 1;
        }
        self
    }
}

/// Searches for an order of one document's operations. Returns a description of where it ends otherwise.
pub(crate) fn check(operations: &[Operation], initial: State) -> Result<(), String> {
    let mut operations = operations.to_vec();
    operations.sort_by_key(|operation| operation.invoked);
    let start = Configuration { first: 0, done: 0, state: initial };
    let (mut visited, mut open) = (HashSet::from([start]), vec![start]);
    let mut furthest = start;
    while let Some(configuration) = open.pop() {
        if configuration.first > furthest.first {
            furthest = configuration;
        }
        let undone = || {
            (configuration.first..operations.len().min(configuration.first + 128))
                .filter(|position| !configuration.is_done(*position))
        };
        if undone().all(|position| operations[position].answer == Answer::Unknown) {
            // What remains may never have happened.
            return Ok(());
        }
        let first_return = undone().map(|position| operations[position].returned).min().unwrap_or(u64::MAX);
        // Whatever began before the first of them returned may be next.
        for position in undone().take_while(|position| operations[*position].invoked < first_return) {
            let operation = operations[position];
            let (state, answer) = step(configuration.state, operation.call);
            let unknown = operation.answer == Answer::Unknown;
            let happened = (unknown || operation.answer == answer).then_some(state);
            // Without an answer it may as well never happen.
            let never = unknown.then_some(configuration.state);
            for state in [happened, never].into_iter().flatten() {
                let next = configuration.with(position, state);
                if visited.insert(next) {
                    open.push(next);
                }
            }
        }
    }
    let around = &operations[furthest.first..operations.len().min(furthest.first + 8)];
    Err(format!("no order explains what follows {:?}: {around:#?}", furthest.state))
}

#[test]
fn checker_accepts_overlapping_writes_in_either_order() {
    let put = |value, invoked, returned| Operation {
        call: Call::Put(value),
        answer: Answer::Done(true),
        invoked,
        returned,
    };
    let read = |value, invoked, returned| Operation {
        call: Call::Read,
        answer: Answer::Value(value),
        invoked,
        returned,
    };
    for seen in [1, 2] {
        assert_eq!(check(&[put(1, 0, 10), put(2, 5, 15), read(Some(seen), 20, 21)], None), Ok(()));
    }
    assert!(check(&[put(1, 0, 10), put(2, 11, 15), read(Some(1), 20, 21)], None).is_err(), "a stale read");
    assert!(check(&[put(1, 0, 30), read(Some(1), 2, 3), read(None, 4, 5)], None).is_err(), "seen, then not");
}

#[test]
fn checker_lets_unknown_writes_happen_late_or_never() {
    let lost = Operation { call: Call::Put(7), answer: Answer::Unknown, invoked: 0, returned: u64::MAX };
    let read = |value, at| Operation {
        call: Call::Read,
        answer: Answer::Value(value),
        invoked: at,
        returned: at + 1,
    };
    assert_eq!(check(&[lost, read(None, 10)], None), Ok(()));
    assert_eq!(check(&[lost, read(None, 10), read(Some(7), 20)], None), Ok(()));
    assert!(check(&[lost, read(Some(7), 10), read(None, 20)], None).is_err());
}
