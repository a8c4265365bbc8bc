//! What must have happened, and what can have happened, by a moment.

use orlop_store::Revision;

/// Revisions over time.
#[derive(Debug, Default)]
pub(crate) struct Timeline {
    /// Moments and the newest revision that somebody had been shown by then.
    shown: Vec<(u64, Revision)>,
    /// Moments and the newest revision whose write had been asked for by then.
    asked: Vec<(u64, Revision)>,
}

impl Timeline {
    /// From the answers' revisions with the moments they were given, and the writes' revisions with the
    /// moments they were asked for.
    pub(crate) fn new(shown: Vec<(u64, Revision)>, asked: Vec<(u64, Revision)>) -> Self {
        Self { shown: running_maximum(shown), asked: running_maximum(asked) }
    }

    /// A revision that the store had certainly reached before a moment.
    pub(crate) fn reached(&self, moment: u64) -> Revision {
        last_before(&self.shown, moment)
    }

    /// A revision that the store cannot have passed by a moment.
    pub(crate) fn possible(&self, moment: u64) -> Revision {
        last_before(&self.asked, moment)
    }
}

fn running_maximum(mut points: Vec<(u64, Revision)>) -> Vec<(u64, Revision)> {
    points.sort_unstable();
    let mut newest = 1;
    for point in &mut points {
        newest = newest.max(point.1);
        point.1 = newest;
    }
    points
}

fn last_before(points: &[(u64, Revision)], moment: u64) -> Revision {
    let before = points.partition_point(|(at, _)| *at < moment);
    before.checked_sub(1).map_or(1, |at| points[at].1)
}

/// What is known of compaction over time.
#[derive(Debug, Default)]
pub(crate) struct Compactions {
    asked: Timeline,
}

impl Compactions {
    /// From (asked, answered if it succeeded, revision).
    pub(crate) fn new(compactions: &[(u64, Option<u64>, Revision)]) -> Self {
        let done = compactions.iter().filter_map(|(_, done, revision)| Some(((*done)?, *revision)));
        let asked = compactions.iter().map(|(asked, _, revision)| (*asked, *revision));
        Self { asked: Timeline::new(done.collect(), asked.collect()) }
    }

    /// Whatever begins at a moment must not be answered from before this revision.
    pub(crate) fn done(&self, moment: u64) -> Revision {
        self.asked.reached(moment)
    }

    /// Whatever is over by a moment cannot have been told of a later compaction than this one.
    pub(crate) fn possible(&self, moment: u64) -> Revision {
        self.asked.possible(moment)
    }
}
