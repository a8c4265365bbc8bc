//! The levels as they are configured, and the division of the server's seats among them.

use std::{collections::BTreeMap, sync::Arc};

use tokio::sync::Notify;

use crate::{
    allocation::{Claim, allocate},
    clock::Clock,
    configuration::PriorityLevel,
    integrator::Moments,
    level::Level,
    queue_set::Queuing,
};

/// Weight of the past in the smoothed demand. With an adjustment each ten seconds its half-life is five minutes.
const SMOOTHING: f64 = 0.977;
/// Part of a level's seats that one request may take.
const REQUEST_SEATS_FRACTION: f64 = 0.15;

/// Seats that a level could have used, in the last period.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Demand {
    pub(crate) high_watermark: f64,
    pub(crate) average: f64,
    pub(crate) deviation: f64,
    /// At least average plus deviation, and falling slowly.
    pub(crate) smoothed: f64,
    /// Seats that were aimed at.
    pub(crate) target: f64,
}

impl Demand {
    fn update(&mut self, moments: Moments) {
        self.high_watermark = moments.max.round();
        if moments.seconds <= 0.0 {
            return;
        }
        (self.average, self.deviation) = (moments.average, moments.deviation);
        let envelope = moments.average + moments.deviation;
        self.smoothed = envelope.max(SMOOTHING * self.smoothed + (1.0 - SMOOTHING) * envelope);
    }
}

/// A level and its seats.
#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) configured: PriorityLevel,
    pub(crate) level: Arc<Level>,
    /// True if it is configured no more, and removed once it is idle.
    pub(crate) is_quiescing: bool,
    /// Seats by its shares.
    pub(crate) nominal: usize,
    /// Seats that remain if it lends all that it may.
    pub(crate) lower: usize,
    /// Seats if it borrows all that it may.
    pub(crate) upper: usize,
    /// Seats that it has now.
    pub(crate) current: usize,
    pub(crate) demand: Demand,
}

impl Entry {
    fn is_exempt(&self) -> bool {
        self.configured.queuing == Queuing::Exempt
    }

    /// Returns the seats that it gets as long as there are enough: what it has used, up to its own.
    fn assured(&self) -> usize {
        let used = self.demand.high_watermark as usize;
        if self.is_exempt() { used.max(self.lower) } else { used.min(self.nominal).max(self.lower) }
    }

    /// Returns the seats that one request may take; 0 for no limit.
    pub(crate) fn request_seats_max(&self) -> usize {
        match self.configured.hand {
            0 => 0,
            hand => {
                let part = (self.nominal as f64 * REQUEST_SEATS_FRACTION).ceil() as usize;
                part.min(self.nominal / hand).max(1)
            }
        }
    }
}

/// The levels of a server.
#[derive(Debug)]
pub(crate) struct Books {
    clock: Arc<dyn Clock>,
    release_needed: Arc<Notify>,
    /// Seats of the server.
    seats: usize,
    pub(crate) levels: BTreeMap<String, Entry>,
    /// Proportion of their targets that levels got.
    pub(crate) fair_fraction: f64,
}

impl Books {
    pub(crate) fn new(seats: usize, clock: Arc<dyn Clock>, release_needed: Arc<Notify>) -> Self {
        Self { clock, release_needed, seats, levels: BTreeMap::new(), fair_fraction: 0.0 }
    }

    /// Puts configured levels in force. Those that are configured no more stay until they are idle.
    pub(crate) fn configure(&mut self, configured: &[PriorityLevel]) {
        let mandatory = PriorityLevel::mandatory()
            .filter(|mandatory| configured.iter().all(|level| level.name != mandatory.name));
        let wanted: Vec<PriorityLevel> = configured.iter().cloned().chain(mandatory).collect();
        for entry in self.levels.values_mut() {
            entry.is_quiescing = wanted.iter().all(|level| level.name != entry.configured.name);
        }
        self.levels.retain(|_, entry| !entry.is_quiescing || !entry.level.lock().is_idle());
        // Levels that drain count too, so that they have seats to drain with.
        let draining = self.levels.values().filter(|entry| entry.is_quiescing);
        let draining: u64 = draining.map(|entry| u64::from(entry.configured.shares)).sum();
        let shares = wanted.iter().map(|level| u64::from(level.shares)).sum::<u64>() + draining;
        for level in wanted {
            let name = level.name.clone();
            match self.levels.get_mut(&name) {
                Some(entry) => entry.configured = level,
                None => {
                    let entry = self.entry(level, shares);
                    self.levels.insert(name, entry);
                }
            }
        }
        for entry in self.levels.values_mut() {
            set_limits(entry, self.seats, shares);
        }
        self.divide();
    }

    fn entry(&self, configured: PriorityLevel, shares: u64) -> Entry {
        let (clock, release_needed) = (self.clock.clone(), self.release_needed.clone());
        let level = Arc::new(Level::new(&configured.name, configured.queuing, 0, clock, release_needed));
        let mut entry = Entry {
            configured,
            level,
            is_quiescing: false,
            nominal: 0,
            lower: 0,
            upper: 0,
            current: 0,
            demand: Demand::default(),
        };
        set_limits(&mut entry, self.seats, shares);
        // Until its demand is known, it lends half of what it may.
        entry.current = entry.nominal - (entry.nominal - entry.lower) / 2;
        entry
    }

    /// Divides the seats by the demand of the last period.
    pub(crate) fn divide(&mut self) {
        let now = self.clock.now();
        for entry in self.levels.values_mut() {
            let mut set = entry.level.lock();
            set.advance(now);
            let moments = set.demand.reset(now);
            drop(set);
            entry.demand.update(moments);
        }
        let all: usize = self.levels.values().map(|entry| entry.nominal).sum();
        let exempt: usize = self.levels.values().filter(|entry| entry.is_exempt()).map(Entry::assured).sum();
        let left = all.saturating_sub(exempt);
        let limited = || self.levels.values().filter(|entry| !entry.is_exempt());
        let lower: usize = limited().map(|entry| entry.lower).sum();
        let assured: usize = limited().map(Entry::assured).sum();
        let claims: Vec<Claim> = limited().map(claim).collect();
        let mut allocated = None;
        // The fraction of what is assured beyond the lower limits, if that is all there is.
        let mut fraction = 0.0;
        if left > lower && left <= assured {
            fraction = (left - lower) as f64 / (assured - lower) as f64;
        } else if left > assured {
            allocated = allocate(all, &claims);
        }
        self.fair_fraction = allocated.as_ref().map_or(0.0, |(_, proportion)| *proportion);
        let mut allocated = allocated.map(|(seats, _)| seats.into_iter());
        let keeps_current = left > assured && allocated.is_none();
        for entry in self.levels.values_mut() {
            if entry.is_exempt() {
                entry.current = entry.assured();
                entry.demand.target = entry.current as f64;
            } else {
                entry.demand.target = claim(entry).target;
                let beyond = (entry.assured() - entry.lower) as f64;
                match allocated.as_mut().and_then(Iterator::next) {
                    Some(seats) => entry.current = seats.round() as usize,
                    None if keeps_current => {}
                    None => entry.current = entry.lower + (beyond * fraction).round() as usize,
                }
            }
            let denominator = match entry.current {
                0 => (self.seats as f64 / 10.0).round().max(1.0) as usize,
                current => current,
            };
            entry.level.configure(entry.configured.queuing, entry.current, denominator);
        }
    }
}

fn claim(entry: &Entry) -> Claim {
    let lower = entry.assured() as f64;
    Claim { lower, upper: (entry.upper as f64).max(lower), target: lower.max(entry.demand.smoothed) }
}

/// Computes the limits of a level from its part of all shares. Rounding up may make the sum a little larger.
fn set_limits(entry: &mut Entry, seats: usize, shares: u64) {
    let percent = |percent: u32, of: usize| (of as f64 * f64::from(percent) / 100.0).round() as usize;
    let level = &entry.configured;
    let part = f64::from(level.shares) / shares.max(1) as f64;
    entry.nominal = (seats as f64 * part).ceil() as usize;
    entry.lower = entry.nominal - percent(level.lendable_percent, entry.nominal);
    let borrowed = level.borrowing_limit_percent.map_or(seats, |limit| percent(limit, entry.nominal));
    entry.upper = entry.nominal + borrowed;
}
