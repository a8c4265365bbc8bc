//! The requests of a level, in slots that are used again: a request allocates nothing.

use std::time::Instant;

use tokio::sync::oneshot;

use super::Arrival;
use crate::{estimate::WorkEstimate, seat_seconds::SeatSeconds};

/// Index of a request.
pub(crate) type Slot = u32;

/// State of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// The slot is free.
    Free,
    /// It waits in its queue.
    Waiting,
    /// It executes.
    Executing,
    /// It is answered, and its seats are still occupied.
    Lingering,
}

/// A request.
#[derive(Debug)]
pub(crate) struct Request {
    pub(crate) state: State,
    pub(crate) estimate: WorkEstimate,
    /// Index of its FlowSchema in the metrics of the level.
    pub(crate) flow: usize,
    /// Index of its queue; `None` if it went through none.
    pub(crate) queue: Option<usize>,
    pub(crate) arrived: Instant,
    /// Virtual time of its arrival.
    pub(crate) arrived_virtually: SeatSeconds,
    pub(crate) started: Instant,
    pub(crate) distinguisher: String,
    pub(crate) details: String,
    /// Tells that it is dispatched.
    pub(super) dispatched: Option<oneshot::Sender<()>>,
}

impl Request {
    /// Returns the seats that are reserved for it.
    pub(crate) fn seats(&self) -> usize {
        self.estimate.max_seats()
    }
}

/// Requests by slot.
#[derive(Debug, Default)]
pub(super) struct Slots {
    requests: Vec<Request>,
    free: Vec<Slot>,
}

impl Slots {
    /// Takes a slot for a request that waits.
    pub(super) fn insert(
        &mut self,
        now: Instant,
        arrival: Arrival<'_>,
        describe: impl FnOnce(&mut String),
    ) -> Slot {
        let slot = self.free.pop().unwrap_or_else(|| {
            self.requests.push(Request {
                state: State::Free,
                estimate: arrival.estimate,
                flow: arrival.flow,
                queue: None,
                arrived: now,
                arrived_virtually: SeatSeconds::default(),
                started: now,
                distinguisher: String::new(),
                details: String::new(),
                dispatched: None,
            });
            (self.requests.len() - 1) as Slot
        });
        let request = &mut self.requests[slot as usize];
        request.state = State::Waiting;
        (request.estimate, request.flow, request.queue) = (arrival.estimate, arrival.flow, None);
        (request.arrived, request.started) = (now, now);
        request.distinguisher.clear();
        request.distinguisher.push_str(arrival.distinguisher);
        request.details.clear();
        describe(&mut request.details);
        slot
    }

    pub(super) fn remove(&mut self, slot: Slot) {
        let request = &mut self.requests[slot as usize];
        debug_assert_ne!(request.state, State::Free, "a slot is freed once");
        request.state = State::Free;
        request.dispatched = None;
        // Long texts are not kept for the next request.
        request.details.shrink_to(DETAILS_KEPT);
        self.free.push(slot);
    }

    pub(super) fn get(&self, slot: Slot) -> Option<&Request> {
        self.requests.get(slot as usize).filter(|request| request.state != State::Free)
    }

    pub(super) fn get_mut(&mut self, slot: Slot) -> Option<&mut Request> {
        self.requests.get_mut(slot as usize).filter(|request| request.state != State::Free)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (Slot, &Request)> {
        let numbered = self.requests.iter().enumerate();
        numbered
            .filter(|(_, request)| request.state != State::Free)
            .map(|(slot, request)| (slot as Slot, request))
    }
}

/// Bytes of details that a free slot keeps.
const DETAILS_KEPT: usize = 512;
