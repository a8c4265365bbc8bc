//! Counters of a priority level, which its lock guards.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use crate::{
    histogram::{Histogram, TimedRatio},
    rejection::RejectReason,
};

const SECONDS: &[f64] = &[0.0, 0.005, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 15.0, 30.0];
const LENGTHS: &[f64] = &[0.0, 10.0, 25.0, 50.0, 100.0, 250.0, 500.0, 1000.0];
const SEATS: &[f64] = &[1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 100.0];
const WATCHES: &[f64] = &[0.0, 1.0, 10.0, 100.0, 1000.0, 10_000.0];
/// With both 0.99 and 1, a quantile shows saturation.
const SEAT_UTILIZATION: &[f64] = &[0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99, 1.0];
const REQUEST_UTILIZATION: &[f64] = &[0.0, 0.001, 0.003, 0.01, 0.03, 0.1, 0.25, 0.5, 0.75, 1.0];
const DEMAND: &[f64] = &[0.2, 0.4, 0.6, 0.8, 1.0, 1.2, 1.4, 1.7, 2.0, 2.8, 4.0, 6.0];

/// Metrics of one FlowSchema in one level.
#[derive(Clone, Debug)]
pub(crate) struct FlowMetrics {
    pub(crate) schema: Arc<str>,
    pub(crate) dispatched: u64,
    /// By [`RejectReason`].
    pub(crate) rejected: [u64; RejectReason::ALL.len()],
    pub(crate) waiting: i64,
    pub(crate) waiting_seats: i64,
    pub(crate) executing: i64,
    pub(crate) executing_seats: i64,
    pub(crate) no_accommodation: u64,
    pub(crate) queue_length: Histogram,
    pub(crate) waited_executed: Histogram,
    pub(crate) waited_rejected: Histogram,
    pub(crate) execution: Histogram,
    pub(crate) seats: Histogram,
    pub(crate) watches: Histogram,
}

impl FlowMetrics {
    fn new(schema: Arc<str>) -> Self {
        Self {
            schema,
            dispatched: 0,
            rejected: [0; RejectReason::ALL.len()],
            waiting: 0,
            waiting_seats: 0,
            executing: 0,
            executing_seats: 0,
            no_accommodation: 0,
            queue_length: Histogram::new(LENGTHS),
            waited_executed: Histogram::new(SECONDS),
            waited_rejected: Histogram::new(SECONDS),
            execution: Histogram::new(SECONDS),
            seats: Histogram::new(SEATS),
            watches: Histogram::new(WATCHES),
        }
    }

    pub(crate) fn estimated(&mut self, seats: usize) {
        self.seats.observe(seats as f64);
    }

    pub(crate) fn watched(&mut self, watches: usize) {
        self.watches.observe(watches as f64);
    }

    pub(crate) fn enqueue(&mut self, seats: usize, length: usize) {
        self.waiting += 1;
        self.waiting_seats += seats as i64;
        self.queue_length.observe(length as f64);
    }

    pub(crate) fn dequeue(&mut self, seats: usize) {
        self.waiting -= 1;
        self.waiting_seats -= seats as i64;
    }

    pub(crate) fn reject(&mut self, reason: RejectReason) {
        self.rejected[reason as usize] += 1;
    }

    pub(crate) fn waited(&mut self, time: Duration, executes: bool) {
        let histogram = if executes { &mut self.waited_executed } else { &mut self.waited_rejected };
        histogram.observe(time.as_secs_f64());
    }

    pub(crate) fn no_accommodation(&mut self) {
        self.no_accommodation += 1;
    }

    pub(crate) fn start(&mut self, seats: usize) {
        self.dispatched += 1;
        self.executing += 1;
        self.executing_seats += seats as i64;
    }

    pub(crate) fn finish(&mut self, served: Duration) {
        self.executing -= 1;
        self.execution.observe(served.as_secs_f64());
    }

    pub(crate) fn release(&mut self, seats: usize) {
        self.executing_seats -= seats as i64;
    }
}

/// Metrics of a level.
#[derive(Clone, Debug)]
pub(crate) struct LevelMetrics {
    pub(crate) flows: Vec<FlowMetrics>,
    pub(crate) seat_utilization: TimedRatio,
    pub(crate) waiting_utilization: TimedRatio,
    pub(crate) executing_utilization: TimedRatio,
    pub(crate) demand: TimedRatio,
}

impl LevelMetrics {
    pub(crate) fn new(now: Instant) -> Self {
        Self {
            flows: Vec::new(),
            seat_utilization: TimedRatio::new(SEAT_UTILIZATION, now),
            waiting_utilization: TimedRatio::new(REQUEST_UTILIZATION, now),
            executing_utilization: TimedRatio::new(REQUEST_UTILIZATION, now),
            demand: TimedRatio::new(DEMAND, now),
        }
    }

    /// Returns the index of a FlowSchema, which it keeps.
    pub(crate) fn index_of(&mut self, schema: &Arc<str>) -> usize {
        let known = self.flows.iter().position(|flow| flow.schema == *schema);
        known.unwrap_or_else(|| {
            self.flows.push(FlowMetrics::new(schema.clone()));
            self.flows.len() - 1
        })
    }

    /// Returns the metrics of a FlowSchema, by an index that [`Self::index_of`] returned.
    pub(crate) fn flow(&mut self, index: usize) -> &mut FlowMetrics {
        &mut self.flows[index]
    }

    /// Sets the denominators of ratios.
    pub(crate) fn set_limits(&mut self, now: Instant, waiting_max: usize, seats: usize) {
        self.waiting_utilization.set_denominator(now, waiting_max);
        self.executing_utilization.set_denominator(now, seats);
        self.seat_utilization.set_denominator(now, seats);
        self.demand.set_denominator(now, seats);
    }

    /// Records the current numbers of a level.
    pub(crate) fn note(
        &mut self,
        now: Instant,
        waiting: usize,
        executing: usize,
        seats: usize,
        demand: usize,
    ) {
        self.waiting_utilization.set(now, waiting);
        self.executing_utilization.set(now, executing);
        self.seat_utilization.set(now, seats);
        self.demand.set(now, demand);
    }
}
