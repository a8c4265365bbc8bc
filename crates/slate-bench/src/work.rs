//! The work of the benchmark, and how it is timed: subjects take turns, the fastest round counts.
//!
//! Time is the processor time of this process, all threads together: work per core, which other programs on
//! the machine disturb little. Waiting for the disk is not in it.

use bson::{Document, doc};
use rustix::time::{ClockId, clock_gettime};

/// Documents of the benchmark.
pub(crate) const DOCUMENTS: i32 = 100_000;
/// Point look-ups per round.
const LOOKUPS: i32 = 1000;
/// Rounds of the insertion.
const INSERT_ROUNDS: usize = 3;
/// Rounds of everything else.
const READ_ROUNDS: usize = 9;

/// A piece of reading work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Work {
    /// Every document.
    Scan,
    /// Half of the documents, by an index.
    Equality,
    /// Three equalities, two of them indexed.
    Conjunction,
    /// The 200 highest by an index.
    Sorted,
    /// A thousand documents by `_id`.
    Lookups,
}

impl Work {
    pub(crate) const ALL: [Self; 5] =
        [Self::Scan, Self::Equality, Self::Conjunction, Self::Sorted, Self::Lookups];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Scan => "full scan",
            Self::Equality => "indexed equality to 50,000",
            Self::Conjunction => "3-term AND",
            Self::Sorted => "indexed sort, take 200",
            Self::Lookups => "1,000 point look-ups",
        }
    }

    /// Returns how often the work is done in one round, so that a round takes milliseconds: the clock is not free.
    pub(crate) fn repetitions(self) -> u32 {
        match self {
            Self::Scan | Self::Equality => 1,
            Self::Conjunction | Self::Lookups => 10,
            Self::Sorted => 100,
        }
    }

    /// Returns how many documents the work yields.
    pub(crate) fn expected(self) -> usize {
        match self {
            Self::Scan => DOCUMENTS as usize,
            Self::Equality => DOCUMENTS as usize / 2,
            Self::Conjunction => (0..DOCUMENTS)
                .map(document)
                .filter(|document| {
                    conjunction().iter().all(|(name, value)| document.get(name) == Some(value))
                })
                .count(),
            Self::Sorted => 200,
            Self::Lookups => LOOKUPS as usize,
        }
    }
}

/// A database that does the work.
pub(crate) trait Subject {
    /// Starts over and inserts every document in one transaction. Returns the time of that alone.
    fn insert(&mut self) -> anyhow::Result<f64>;

    /// Does a piece of work and returns how many documents it saw.
    fn read(&mut self, work: Work) -> anyhow::Result<usize>;
}

/// Times of a subject, in milliseconds.
#[derive(Debug, Clone)]
pub(crate) struct Times {
    pub(crate) insert: f64,
    /// In the order of [`Work::ALL`].
    pub(crate) reads: [f64; 5],
}

/// Lets two subjects do everything, taking turns, so that what disturbs the machine disturbs both.
pub(crate) fn compare<'a>(
    ours: &'a mut dyn Subject,
    peer: &'a mut dyn Subject,
) -> anyhow::Result<[Times; 2]> {
    let none = Times { insert: f64::INFINITY, reads: [f64::INFINITY; 5] };
    let mut times = [none.clone(), none];
    let mut subjects = [ours, peer];
    for _ in 0..INSERT_ROUNDS {
        for (subject, times) in subjects.iter_mut().zip(&mut times) {
            times.insert = times.insert.min(subject.insert()?);
        }
    }
    for (position, work) in Work::ALL.into_iter().enumerate() {
        let expected = work.expected();
        for _ in 0..READ_ROUNDS {
            for (subject, times) in subjects.iter_mut().zip(&mut times) {
                let began = Stopwatch::start();
                for _ in 0..work.repetitions() {
                    let found = subject.read(work)?;
                    anyhow::ensure!(found == expected, "{work:?}: {found} of {expected} documents");
                }
                let took = began.milliseconds() / f64::from(work.repetitions());
                times.reads[position] = times.reads[position].min(took);
            }
        }
    }
    Ok(times)
}

/// Measures processor time.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Stopwatch(f64);

impl Stopwatch {
    pub(crate) fn start() -> Self {
        Self(processor_seconds())
    }

    pub(crate) fn milliseconds(self) -> f64 {
        self.seconds() * 1000.0
    }

    pub(crate) fn seconds(self) -> f64 {
        processor_seconds() - self.0
    }
}

fn processor_seconds() -> f64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 * 1e-9
}

/// A document of 8 fields. Half of them are active; there are ten regions and a hundred scores.
pub(crate) fn document(n: i32) -> Document {
    doc! {
        "_id": n,
        "name": format!("Account {n}"),
        "status": if n % 2 == 0 { "active" } else { "idle" },
        "score": (n.wrapping_mul(7919)).rem_euclid(100),
        "region": format!("r{}", n % 10),
        "balance": f64::from(n % 1000) / 4.0,
        "email": format!("user{n}@example.org"),
        "created": bson::DateTime::from_millis(1_700_000_000_000 + i64::from(n) * 1000),
    }
}

pub(crate) fn conjunction() -> Document {
    doc! { "status": "active", "score": 42, "region": "r8" }
}

/// Ids of the look-ups, spread over the collection.
pub(crate) fn lookup_ids() -> impl Iterator<Item = i32> {
    (0..LOOKUPS).map(|n| n.wrapping_mul(7919).rem_euclid(DOCUMENTS))
}
