//! The seats of a priority level, and fair queuing of the requests that wait for them.
//!
//! Requests of a level are divided among queues. In a virtual world each queue that has requests progresses at the same
//! rate: `virtual_time` is the work, in seat-seconds, that each has been given. `next_dispatch` of a queue is the virtual
//! time at which its next request is due. A dispatched request moves it on by the work that is expected of it, and a
//! finished one corrects it by what was really done. The next request is that of the queue whose request would finish
//! first.
//!
//! Only queues with requests exist here: an idle one is as new. There may be ten million.

mod lingering;
mod slots;

use std::{
    collections::VecDeque,
    time::{Duration, Instant},
};

pub(crate) use slots::{Request, Slot, State};
use tokio::sync::oneshot;

use self::{lingering::Lingering, slots::Slots};
use crate::{
    dealer::{Dealer, HAND_MAX},
    estimate::WorkEstimate,
    integrator::Integrator,
    level_metrics::LevelMetrics,
    rejection::RejectReason,
    seat_seconds::SeatSeconds,
};

/// Duration that is expected of a request before it has executed.
const SERVICE_DURATION: Duration = Duration::from_millis(3);

/// Treatment of requests that find no free seats.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Queuing {
    /// There is no limit.
    Exempt,
    /// They are rejected.
    Reject,
    /// They wait.
    Queue {
        dealer: Dealer,
        /// Requests that may wait in one queue.
        length_max: usize,
    },
}

/// A queue that has requests, or seats that requests still occupy.
#[derive(Debug)]
pub(crate) struct Queue {
    pub(crate) index: usize,
    pub(crate) waiting: VecDeque<Slot>,
    pub(crate) executing: usize,
    pub(crate) seats_in_use: usize,
    /// Virtual time at which the next request is dispatched.
    pub(crate) next_dispatch: SeatSeconds,
    /// Work of the requests that wait.
    pub(crate) waiting_work: SeatSeconds,
    /// Seats of the requests that wait.
    pub(crate) waiting_seats: usize,
}

impl Queue {
    fn is_active(&self) -> bool {
        self.executing > 0 || !self.waiting.is_empty()
    }
}

/// Numbers of requests.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Totals {
    pub(crate) dispatched: u64,
    pub(crate) rejected: u64,
    pub(crate) timed_out: u64,
    pub(crate) cancelled: u64,
}

/// Decision about a request that has arrived.
#[derive(Debug)]
pub(crate) enum Decision {
    Execute(Slot),
    /// It waits until the sender sends, or is cancelled.
    Wait(Slot, oneshot::Receiver<()>),
    Reject(RejectReason),
}

/// A request that arrives.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Arrival<'a> {
    pub(crate) estimate: WorkEstimate,
    /// Hash of its flow.
    pub(crate) hash: u64,
    /// Index of its FlowSchema in the metrics of the level.
    pub(crate) flow: usize,
    pub(crate) distinguisher: &'a str,
}

/// The seats and queues of a level.
#[derive(Debug)]
pub(crate) struct QueueSet {
    queuing: Queuing,
    seats_max: usize,
    /// Queues with requests, by index.
    queues: Vec<Queue>,
    slots: Slots,
    lingering: Lingering,
    /// Index of the queue that the last request came from.
    last_queue: usize,
    virtual_time: SeatSeconds,
    /// Time up to which virtual time is computed.
    synced: Instant,
    waiting: usize,
    executing: usize,
    seats_in_use: usize,
    seats_waiting: usize,
    active_queues: usize,
    enqueued: usize,
    pub(crate) totals: Totals,
    pub(crate) demand: Integrator,
    pub(crate) metrics: LevelMetrics,
}

impl QueueSet {
    pub(crate) fn new(queuing: Queuing, seats_max: usize, now: Instant) -> Self {
        let mut set = Self {
            queuing,
            seats_max,
            queues: Vec::new(),
            slots: Slots::default(),
            lingering: Lingering::default(),
            last_queue: 0,
            virtual_time: SeatSeconds::default(),
            synced: now,
            waiting: 0,
            executing: 0,
            seats_in_use: 0,
            seats_waiting: 0,
            active_queues: 0,
            enqueued: 0,
            totals: Totals::default(),
            demand: Integrator::new(now),
            metrics: LevelMetrics::new(now),
        };
        set.configure(queuing, seats_max, seats_max, now);
        set
    }

    /// Changes the limits. `denominator` is the number of seats that utilization is measured by.
    pub(crate) fn configure(&mut self, queuing: Queuing, seats_max: usize, denominator: usize, now: Instant) {
        self.advance(now);
        (self.queuing, self.seats_max) = (queuing, seats_max);
        let waiting_max = match queuing {
            Queuing::Queue { dealer, length_max } => dealer.deck().saturating_mul(length_max),
            Queuing::Exempt | Queuing::Reject => 1,
        };
        self.metrics.set_limits(now, waiting_max, denominator);
        self.dispatch_all(now);
    }

    // === What is here ===

    pub(crate) fn queues(&self) -> &[Queue] {
        &self.queues
    }

    pub(crate) fn requests(&self) -> impl Iterator<Item = (Slot, &Request)> {
        self.slots.iter()
    }

    pub(crate) fn request(&self, slot: Slot) -> Option<&Request> {
        self.slots.get(slot)
    }

    pub(crate) fn waiting(&self) -> usize {
        self.waiting
    }

    pub(crate) fn executing(&self) -> usize {
        self.executing
    }

    pub(crate) fn seats_max(&self) -> usize {
        self.seats_max
    }

    pub(crate) fn virtual_time(&self) -> SeatSeconds {
        self.virtual_time
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.waiting == 0 && self.executing == 0
    }

    /// Returns the time at which seats become free that requests wait for, if it is known.
    pub(crate) fn next_release(&self) -> Option<Instant> {
        if self.waiting == 0 { None } else { self.lingering.next() }
    }

    // === Time ===

    /// Frees seats whose additional latency is over, in order, and advances virtual time.
    pub(crate) fn advance(&mut self, now: Instant) {
        while let Some((due, slot)) = self.lingering.pop_due(now) {
            self.sync(due);
            self.release(slot, due);
            self.dispatch_all(due);
        }
        self.sync(now);
    }

    /// Advances virtual time: the seats in use, or wanted, were shared by the active queues since.
    fn sync(&mut self, now: Instant) {
        let elapsed = now.saturating_duration_since(self.synced);
        self.synced = now.max(self.synced);
        if self.active_queues > 0 {
            let seats = (self.seats_in_use + self.seats_waiting).min(self.seats_max);
            self.virtual_time += SeatSeconds::share(seats, elapsed, self.active_queues);
        }
    }

    // === Requests ===

    /// Decides about a request. `describe` writes its details, for people.
    pub(crate) fn arrive(
        &mut self,
        now: Instant,
        arrival: Arrival<'_>,
        describe: impl FnOnce(&mut String),
    ) -> Decision {
        self.advance(now);
        self.metrics.flow(arrival.flow).estimated(arrival.estimate.max_seats());
        let (dealer, length_max) = match self.queuing {
            Queuing::Queue { dealer, length_max } => (dealer, length_max),
            Queuing::Exempt | Queuing::Reject => {
                if !self.can_accommodate(arrival.estimate.max_seats()) {
                    return self.reject(arrival.flow, RejectReason::ConcurrencyLimit);
                }
                let slot = self.slots.insert(now, arrival, describe);
                if self.queuing == Queuing::Reject {
                    self.metrics.flow(arrival.flow).waited(Duration::ZERO, true);
                }
                self.start(slot, None, now);
                return Decision::Execute(slot);
            }
        };
        let index = self.choose_queue(dealer, arrival.hash);
        let queue = self.queue_at(index);
        let seats = arrival.estimate.max_seats();
        // The one request that waits is the next to be dispatched.
        let is_next = self.waiting == 0 && self.seats_in_use < self.seats_max && self.can_accommodate(seats);
        if is_next || (self.queues[queue].waiting.is_empty() && self.may_exceed(queue, seats)) {
            let slot = self.slots.insert(now, arrival, describe);
            self.limit_final_seats(slot);
            self.metrics.flow(arrival.flow).waited(Duration::ZERO, true);
            self.start(slot, Some(queue), now);
            return Decision::Execute(slot);
        }
        if self.seats_in_use >= self.seats_max && self.queues[queue].waiting.len() >= length_max {
            self.remove_if_idle(index);
            return self.reject(arrival.flow, RejectReason::QueueFull);
        }
        let slot = self.slots.insert(now, arrival, describe);
        let receiver = self.enqueue(slot, queue, now);
        self.dispatch_all(now);
        if self.slots.get(slot).is_some_and(|request| request.state == State::Executing) {
            return Decision::Execute(slot);
        }
        Decision::Wait(slot, receiver)
    }

    fn reject(&mut self, flow: usize, reason: RejectReason) -> Decision {
        self.totals.rejected += 1;
        self.metrics.flow(flow).reject(reason);
        self.metrics.flow(flow).waited(Duration::ZERO, false);
        Decision::Reject(reason)
    }

    /// Chooses the queue of a flow's hand with the least work waiting. Begins at another card each time, so that flows
    /// whose hands overlap are not always dealt the same queue.
    fn choose_queue(&mut self, dealer: Dealer, hash: u64) -> usize {
        let mut cards = [0; HAND_MAX];
        let hand = dealer.deal(hash, &mut cards);
        let offset = self.enqueued % hand.len();
        self.enqueued = self.enqueued.wrapping_add(1);
        let turned = hand[offset..].iter().chain(&hand[..offset]).copied();
        if self.waiting == 0 {
            return hand[offset];
        }
        turned.min_by_key(|index| self.work_waiting(*index)).unwrap_or(hand[offset])
    }

    fn work_waiting(&self, index: usize) -> SeatSeconds {
        match self.queues.binary_search_by_key(&index, |queue| queue.index) {
            Ok(place) => self.queues[place].waiting_work,
            Err(_) => SeatSeconds::default(),
        }
    }

    /// Returns the place of a queue, which begins now if it has no requests.
    fn queue_at(&mut self, index: usize) -> usize {
        let next_dispatch = self.virtual_time;
        match self.queues.binary_search_by_key(&index, |queue| queue.index) {
            Ok(place) => {
                if !self.queues[place].is_active() {
                    self.queues[place].next_dispatch = next_dispatch;
                }
                place
            }
            Err(place) => {
                let queue = Queue {
                    index,
                    waiting: VecDeque::new(),
                    executing: 0,
                    seats_in_use: 0,
                    next_dispatch,
                    waiting_work: SeatSeconds::default(),
                    waiting_seats: 0,
                };
                self.queues.insert(place, queue);
                place
            }
        }
    }

    fn remove_if_idle(&mut self, index: usize) {
        if let Ok(place) = self.queues.binary_search_by_key(&index, |queue| queue.index)
            && !self.queues[place].is_active()
            && self.queues[place].seats_in_use == 0
        {
            self.queues.remove(place);
        }
    }

    fn enqueue(&mut self, slot: Slot, place: usize, now: Instant) -> oneshot::Receiver<()> {
        let (sender, receiver) = oneshot::channel();
        let arrived = self.virtual_time;
        let Some(request) = self.slots.get_mut(slot) else { return receiver };
        let queue = &mut self.queues[place];
        self.active_queues += usize::from(!queue.is_active());
        (request.queue, request.arrived_virtually) = (Some(queue.index), arrived);
        request.dispatched = Some(sender);
        let (seats, flow) = (request.seats(), request.flow);
        queue.waiting.push_back(slot);
        queue.waiting_work += work_of(&request.estimate);
        queue.waiting_seats += seats;
        self.waiting += 1;
        self.seats_waiting += seats;
        let length = queue.waiting.len();
        self.metrics.flow(flow).enqueue(seats, length);
        self.bound_next_dispatch(place);
        self.note(now);
        receiver
    }

    /// Removes a request that waits. Returns false if it waits no more: it executes.
    pub(crate) fn cancel(&mut self, slot: Slot, now: Instant, timed_out: bool) -> bool {
        self.advance(now);
        let Some(request) = self.slots.get(slot).filter(|request| request.state == State::Waiting) else {
            return false;
        };
        let (flow, waited) = (request.flow, now.saturating_duration_since(request.arrived));
        if let Some(place) = request.queue.and_then(|index| self.place_of(index)) {
            let at = self.queues[place].waiting.iter().position(|waiting| *waiting == slot);
            self.take_waiting(place, at, now);
            self.bound_next_dispatch(place);
            self.remove_if_idle(self.queues[place].index);
        }
        self.slots.remove(slot);
        self.totals.rejected += 1;
        self.totals.timed_out += u64::from(timed_out);
        self.totals.cancelled += u64::from(!timed_out);
        let reason = if timed_out { RejectReason::TimeOut } else { RejectReason::Cancelled };
        self.metrics.flow(flow).reject(reason);
        self.metrics.flow(flow).waited(waited, false);
        // A request that could not be placed may have been in the way of others.
        self.dispatch_all(now);
        true
    }

    /// Ends the execution of a request.
    pub(crate) fn finish(&mut self, slot: Slot, now: Instant) {
        self.advance(now);
        let Some(request) = self.slots.get_mut(slot).filter(|request| request.state == State::Executing)
        else {
            return;
        };
        request.state = State::Lingering;
        let served = now.saturating_duration_since(request.started);
        let (flow, index, estimate) = (request.flow, request.queue, request.estimate);
        self.executing -= 1;
        self.metrics.flow(flow).finish(served);
        if let Some(place) = index.and_then(|index| self.place_of(index)) {
            let queue = &mut self.queues[place];
            queue.executing -= 1;
            self.active_queues -= usize::from(!queue.is_active());
            // It was expected to take the service duration.
            queue.next_dispatch += SeatSeconds::of(estimate.initial_seats, served);
            queue.next_dispatch -= SeatSeconds::of(estimate.initial_seats, SERVICE_DURATION);
            self.bound_next_dispatch(place);
        }
        if estimate.additional_latency.is_zero() {
            self.release(slot, now);
        } else {
            self.lingering.push(now + estimate.additional_latency, slot);
            self.note(now);
        }
        self.dispatch_all(now);
    }

    /// Frees the seats of a request.
    fn release(&mut self, slot: Slot, now: Instant) {
        let Some(request) = self.slots.get(slot) else { return };
        let (seats, index, flow) = (request.seats(), request.queue, request.flow);
        self.slots.remove(slot);
        self.seats_in_use -= seats;
        self.metrics.flow(flow).release(seats);
        if let Some(place) = index.and_then(|index| self.place_of(index)) {
            self.queues[place].seats_in_use -= seats;
            self.remove_if_idle(self.queues[place].index);
        }
        self.note(now);
    }

    // === Dispatch ===

    /// Starts all requests that can be started.
    fn dispatch_all(&mut self, now: Instant) {
        while self.waiting > 0 && self.seats_in_use < self.seats_max && self.dispatch(now) {}
        while self.waiting > 0
            && let Some((place, slot)) = self.next_to_exceed()
        {
            self.dispatch_from(place, slot, now);
        }
    }

    /// Starts the next request. Returns false if there are too few free seats for it.
    fn dispatch(&mut self, now: Instant) -> bool {
        let Some((place, slot)) = self.next_request() else { return false };
        let Some((seats, flow)) = self.slots.get(slot).map(|request| (request.seats(), request.flow)) else {
            return false;
        };
        if !self.can_accommodate(seats) {
            self.metrics.flow(flow).no_accommodation();
            return false;
        }
        self.dispatch_from(place, slot, now);
        true
    }

    /// Starts the oldest request of a queue.
    fn dispatch_from(&mut self, place: usize, slot: Slot, now: Instant) {
        let request = self.slots.get(slot).map(|request| (request.flow, request.arrived));
        let Some((flow, arrived)) = request else { return };
        self.last_queue = self.queues[place].index;
        self.take_waiting(place, Some(0), now);
        self.limit_final_seats(slot);
        self.metrics.flow(flow).waited(now.saturating_duration_since(arrived), true);
        self.start(slot, Some(place), now);
        self.bound_next_dispatch(place);
        if let Some(sender) = self.slots.get_mut(slot).and_then(|request| request.dispatched.take()) {
            // Its ticket was dropped: that ends it.
            let _ = sender.send(());
        }
    }

    /// Returns a request that may execute though the level has no free seats, and its queue.
    fn next_to_exceed(&self) -> Option<(usize, Slot)> {
        self.queues.iter().enumerate().find_map(|(place, queue)| {
            let slot = *queue.waiting.front()?;
            let seats = self.slots.get(slot)?.seats();
            self.may_exceed(place, seats).then_some((place, slot))
        })
    }

    /// Returns the queue whose oldest request has the least virtual finish time, and the request. Of equals, the first
    /// after the queue that the last request came from.
    fn next_request(&self) -> Option<(usize, Slot)> {
        let after = self.queues.partition_point(|queue| queue.index <= self.last_queue);
        let turned = (after..self.queues.len()).chain(0..after);
        let mut best: Option<(SeatSeconds, usize, Slot)> = None;
        for place in turned {
            let queue = &self.queues[place];
            let Some(slot) = queue.waiting.front().copied() else { continue };
            let Some(request) = self.slots.get(slot) else { continue };
            let finish = queue.next_dispatch + work_of(&request.estimate);
            if best.is_none_or(|(least, ..)| finish < least) {
                best = Some((finish, place, slot));
            }
        }
        best.map(|(_, place, slot)| (place, slot))
    }

    fn take_waiting(&mut self, place: usize, at: Option<usize>, now: Instant) {
        let queue = &mut self.queues[place];
        let Some(slot) = at.and_then(|at| queue.waiting.remove(at)) else { return };
        let Some(request) = self.slots.get(slot) else { return };
        let (seats, flow) = (request.seats(), request.flow);
        queue.waiting_work -= work_of(&request.estimate);
        queue.waiting_seats -= seats;
        self.active_queues -= usize::from(!queue.is_active());
        self.waiting -= 1;
        self.seats_waiting -= seats;
        self.metrics.flow(flow).dequeue(seats);
        self.note(now);
    }

    /// Occupies the seats of a request.
    fn start(&mut self, slot: Slot, place: Option<usize>, now: Instant) {
        let Some(request) = self.slots.get_mut(slot) else { return };
        (request.state, request.started) = (State::Executing, now);
        let (seats, flow) = (request.seats(), request.flow);
        if let Some(place) = place {
            let queue = &mut self.queues[place];
            request.queue = Some(queue.index);
            self.active_queues += usize::from(!queue.is_active());
            queue.executing += 1;
            queue.seats_in_use += seats;
            queue.next_dispatch += work_of(&request.estimate);
        }
        self.executing += 1;
        self.seats_in_use += seats;
        self.totals.dispatched += 1;
        self.metrics.flow(flow).start(seats);
        self.note(now);
    }

    fn can_accommodate(&self, seats: usize) -> bool {
        match self.queuing {
            Queuing::Exempt => true,
            // A request wider than the level executes alone.
            _ if seats > self.seats_max => self.executing == 0,
            _ => self.seats_in_use + seats <= self.seats_max,
        }
    }

    /// Returns whether the oldest request of a queue may execute though the level has no free seats: it takes one, and
    /// its queue has none. So a flow that asks for little does not wait for the long requests of others, as it would in
    /// Kubernetes. At most one request for each queue exceeds the limit, and none that of a level without seats.
    fn may_exceed(&self, place: usize, seats: usize) -> bool {
        let is_queuing = matches!(self.queuing, Queuing::Queue { .. }) && self.seats_max > 0;
        is_queuing && seats == 1 && self.queues[place].seats_in_use == 0
    }

    /// Reduces the final seats of a request to those there are, and makes it hold them longer: the work is the same.
    fn limit_final_seats(&mut self, slot: Slot) {
        let seats_max = self.seats_max;
        let Some(request) = self.slots.get_mut(slot) else { return };
        let estimate = &mut request.estimate;
        if estimate.final_seats > seats_max {
            let work = SeatSeconds::of(estimate.final_seats, estimate.additional_latency);
            estimate.additional_latency = work.duration_of(seats_max);
            estimate.final_seats = seats_max;
        }
    }

    /// Keeps a queue from gathering claims while it cannot use its share: no request is due before it has arrived.
    fn bound_next_dispatch(&mut self, place: usize) {
        let queue = &mut self.queues[place];
        let Some(oldest) = queue.waiting.front().and_then(|slot| self.slots.get(*slot)) else { return };
        queue.next_dispatch = queue.next_dispatch.max(oldest.arrived_virtually);
    }

    fn place_of(&self, index: usize) -> Option<usize> {
        self.queues.binary_search_by_key(&index, |queue| queue.index).ok()
    }

    /// Records the numbers that have changed.
    fn note(&mut self, now: Instant) {
        let demand = self.seats_in_use + self.seats_waiting;
        self.demand.set(now, demand as f64);
        self.metrics.note(now, self.waiting, self.executing, self.seats_in_use, demand);
    }
}

/// Returns the work that is expected of a request.
fn work_of(estimate: &WorkEstimate) -> SeatSeconds {
    SeatSeconds::of(estimate.initial_seats, SERVICE_DURATION)
        + SeatSeconds::of(estimate.final_seats, estimate.additional_latency)
}
