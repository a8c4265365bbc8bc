//! Bounds on the store's revision over time.

use orlop_store::Revision;

/// Revisions over time.
#[derive(Debug, Default)]
pub(crate) struct Timeline {
    /// Times and the newest revision in any response by then.
    observed: Vec<(u64, Revision)>,
    /// Times and the newest revision whose write had been invoked by then.
    invoked: Vec<(u64, Revision)>,
}

impl Timeline {
    /// Takes the revisions of responses with their times, and of writes with the times of their invocations.
    pub(crate) fn new(observed: Vec<(u64, Revision)>, invoked: Vec<(u64, Revision)>) -> Self {
        Self { observed: running_maximum(observed), invoked: running_maximum(invoked) }
    }

    /// Returns a lower bound of the revision at a time.
    pub(crate) fn at_least(&self, time: u64) -> Revision {
        last_before(&self.observed, time)
    }

    /// Returns an upper bound of the revision at a time.
    pub(crate) fn at_most(&self, time: u64) -> Revision {
        last_before(&self.invoked, time)
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

fn last_before(points: &[(u64, Revision)], time: u64) -> Revision {
    let before = points.partition_point(|(at, _)| *at < time);
    before.checked_sub(1).map_or(1, |at| points[at].1)
}

/// Bounds on the compacted revision over time.
#[derive(Debug, Default)]
pub(crate) struct Compactions {
    timeline: Timeline,
}

impl Compactions {
    /// Takes (invoked, returned if it succeeded, revision).
    pub(crate) fn new(compactions: &[(u64, Option<u64>, Revision)]) -> Self {
        let done = compactions.iter().filter_map(|(_, done, revision)| Some(((*done)?, *revision)));
        let invoked = compactions.iter().map(|(invoked, _, revision)| (*invoked, *revision));
        Self { timeline: Timeline::new(done.collect(), invoked.collect()) }
    }

    /// Returns a lower bound: requests invoked at this time must not return older revisions.
    pub(crate) fn at_least(&self, time: u64) -> Revision {
        self.timeline.at_least(time)
    }

    /// Returns an upper bound: responses by this time cannot report a later compaction.
    pub(crate) fn at_most(&self, time: u64) -> Revision {
        self.timeline.at_most(time)
    }
}
