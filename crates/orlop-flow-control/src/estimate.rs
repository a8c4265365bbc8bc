//! Estimates of the work of requests, from figures that are known before they execute.

use std::time::Duration;

use orlop_auth::request::{Attributes, Subresource, Verb};

use crate::{
    seat_seconds::SeatSeconds,
    statistics::{CollectionSize, ListStatistics},
    watches::Watches,
};

/// Maximum seats of a list and of a write, in a level that does not limit them further.
const LIST_SEATS_MAX: usize = 100;
const WRITE_SEATS_MAX: usize = 10;
/// Bytes of a list that are worth a seat.
const BYTES_PER_SEAT: u64 = 100_000;
/// Bytes of a list beyond which it costs no more at once: it is streamed.
const STREAMED_BYTES_MAX: u64 = 1_000_000;
/// Watches that one seat serves with an event, in the time that an event takes.
const WATCHES_PER_SEAT: usize = 10;
const EVENT_TIME: Duration = Duration::from_millis(5);

/// Estimate of the work of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WorkEstimate {
    /// Seats while it executes.
    pub initial_seats: usize,
    /// Seats after it is answered, for `additional_latency`: the server is still busy with it.
    pub final_seats: usize,
    /// Time after the answer for which the seats stay occupied.
    pub additional_latency: Duration,
}

impl WorkEstimate {
    /// One seat while the request executes.
    pub const ONE_SEAT: Self = Self::seats(1);

    /// Returns an estimate of some seats while the request executes.
    pub const fn seats(seats: usize) -> Self {
        Self { initial_seats: seats, final_seats: 0, additional_latency: Duration::ZERO }
    }

    /// Returns the seats that are reserved for the request.
    pub fn max_seats(&self) -> usize {
        self.initial_seats.max(self.final_seats)
    }
}

/// Parameters of a list that decide its work.
#[derive(Clone, Copy, Debug, Default)]
pub struct ListWork {
    /// Limit; 0 for none.
    pub limit: u64,
    /// True if a selector may discard objects.
    pub has_selector: bool,
    /// True if a selector names the one object that is selected.
    pub is_single: bool,
    /// True if a watch begins with the present objects.
    pub sends_present: bool,
}

/// Estimates work.
#[derive(Clone, Copy, Debug)]
pub struct Estimator<'a> {
    /// Sizes of collections.
    pub statistics: &'a ListStatistics,
    /// Watches that are open.
    pub watches: &'a Watches,
}

impl Estimator<'_> {
    /// Estimates a request. `seats_max` is the limit of its priority level; 0 if it has none. Returns the number of
    /// interested watches too, for a write.
    pub fn estimate(
        &self,
        attributes: &Attributes,
        list: impl FnOnce() -> ListWork,
        seats_max: usize,
    ) -> (WorkEstimate, Option<usize>) {
        match attributes.verb {
            Verb::List => (self.list(attributes, list(), seats_max), None),
            // A watch is a list as long as it sends the present objects.
            Verb::Watch => {
                let list = list();
                let is_list = list.sends_present && attributes.name.is_empty();
                let estimate =
                    if is_list { self.list(attributes, list, seats_max) } else { WorkEstimate::ONE_SEAT };
                (estimate, None)
            }
            Verb::Create | Verb::Update | Verb::Patch | Verb::Delete => {
                // A token is no event of its service account.
                if attributes.subresource == Some(Subresource::Token) {
                    return (WorkEstimate::ONE_SEAT, None);
                }
                let watches = self.watches.interested_in(attributes);
                (write(watches, seats_max), Some(watches))
            }
            _ => (WorkEstimate::ONE_SEAT, None),
        }
    }

    fn list(&self, attributes: &Attributes, list: ListWork, seats_max: usize) -> WorkEstimate {
        let Some(CollectionSize { objects, average_bytes }) = self.statistics.of(attributes) else {
            // Nobody has listed it yet, or another server answers: as in Kubernetes, the least is assumed.
            return WorkEstimate::ONE_SEAT;
        };
        if list.is_single {
            return WorkEstimate::ONE_SEAT;
        }
        let limited = if list.limit > 0 { list.limit.min(objects) } else { objects };
        let read = if list.has_selector { limited.max(objects / 2) } else { limited };
        let bytes = read.saturating_mul(average_bytes).min(STREAMED_BYTES_MAX);
        let seats = bytes.div_ceil(BYTES_PER_SEAT) as usize;
        WorkEstimate::seats(seats.clamp(1, limit_of(seats_max, LIST_SEATS_MAX)))
    }
}

/// Estimates a write that some watches are interested in.
fn write(watches: usize, seats_max: usize) -> WorkEstimate {
    // A few watches are not worth the seats.
    if watches < WATCHES_PER_SEAT {
        return WorkEstimate::ONE_SEAT;
    }
    let wanted = watches.div_ceil(WATCHES_PER_SEAT);
    let work = SeatSeconds::of(wanted, EVENT_TIME);
    // The same work on fewer seats takes longer: wide requests are hard to place.
    let final_seats = wanted.min(limit_of(seats_max, WRITE_SEATS_MAX));
    WorkEstimate { initial_seats: 1, final_seats, additional_latency: work.duration_of(final_seats) }
}

fn limit_of(level: usize, own: usize) -> usize {
    if level == 0 { own } else { level.min(own) }
}

#[cfg(test)]
mod tests {
    use http::Method;
    use orlop_api::query::Query;

    use super::*;

    fn estimate(statistics: &ListStatistics, watches: &Watches, method: Method, url: &str) -> WorkEstimate {
        let (path, query) = url.split_once('?').unwrap_or((url, ""));
        let query = Query::parse(query);
        let attributes = Attributes::of(&method, path, &query);
        let list = || ListWork {
            limit: query.text("limit").parse().unwrap_or(0),
            has_selector: !query.text("labelSelector").is_empty(),
            is_single: false,
            sends_present: query.text("resourceVersion").is_empty(),
        };
        Estimator { statistics, watches }.estimate(&attributes, list, 8).0
    }

    #[test]
    fn lists_take_seats_by_their_bytes() {
        let (statistics, watches) = (ListStatistics::default(), Watches::default());
        let seats = |url: &str| estimate(&statistics, &watches, Method::GET, url).max_seats();
        assert_eq!(seats("/api/v1/configmaps"), 1);
        let all = Attributes::of(&Method::GET, "/api/v1/configmaps", &Query::default());
        statistics.record(&all, 1000, 500_000);
        assert_eq!(seats("/api/v1/configmaps"), 5);
        assert_eq!(seats("/api/v1/configmaps?limit=400"), 2);
        assert_eq!(seats("/api/v1/configmaps?limit=10&labelSelector=a"), 3);
        assert_eq!(seats("/api/v1/configmaps?watch=1"), 5);
        assert_eq!(seats("/api/v1/configmaps?watch=1&resourceVersion=7"), 1);
        assert_eq!(seats("/api/v1/namespaces/a/configmaps"), 1);
        assert_eq!(seats("/api/v1/namespaces/a/configmaps/x"), 1);
        statistics.record(&all, 100_000, 100_000_000);
        assert_eq!(seats("/api/v1/configmaps"), 8);
    }

    #[test]
    fn writes_take_seats_by_the_watches_they_wake() {
        let (statistics, watches) = (ListStatistics::default(), Watches::default());
        let watch = Attributes::of(&Method::GET, "/api/v1/configmaps", &Query::parse("watch=1"));
        let open: Vec<_> = (0..95).map(|_| watches.register(&watch, "")).collect();
        let put = |url: &str| estimate(&statistics, &watches, Method::PUT, url);
        let wide = put("/api/v1/namespaces/a/configmaps/x");
        assert_eq!((wide.initial_seats, wide.final_seats), (1, 8));
        // Ten seats' work of 5 ms on eight.
        assert_eq!(wide.additional_latency, Duration::from_micros(6250));
        assert_eq!(put("/api/v1/namespaces/a/secrets/x"), WorkEstimate::ONE_SEAT);
        assert_eq!(put("/api/v1/namespaces/a/serviceaccounts/x/token"), WorkEstimate::ONE_SEAT);
        drop(open);
        assert_eq!(put("/api/v1/namespaces/a/configmaps/x"), WorkEstimate::ONE_SEAT);
    }
}
