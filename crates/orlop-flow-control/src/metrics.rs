//! Metrics under Kubernetes' names, so that dashboards and alerts work unchanged.

use std::{fmt::Error, sync::Arc};

use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, EncodeMetric, NoLabelSet},
    metrics::{MetricType, counter::ConstCounter, gauge::ConstGauge},
};

use crate::{
    books::Entry, controller::Controller, histogram::Histogram, level_metrics::FlowMetrics,
    rejection::RejectReason,
};

/// Collector of the metrics of a server's flow control.
#[derive(Debug)]
pub struct Collected(pub Arc<Controller>);

/// Metrics of a level at one moment.
struct Snapshot {
    level: String,
    flows: Vec<FlowMetrics>,
    waiting_utilization: Histogram,
    executing_utilization: Histogram,
    seat_utilization: Histogram,
    demand: Histogram,
    virtual_time: f64,
    limits: Option<Limits>,
    seats: usize,
}

struct Limits {
    nominal: usize,
    lower: usize,
    upper: usize,
    high_watermark: f64,
    average: f64,
    deviation: f64,
    smoothed: f64,
    target: f64,
}

impl Limits {
    fn of(entry: &Entry) -> Self {
        let demand = entry.demand;
        Self {
            nominal: entry.nominal,
            lower: entry.lower,
            upper: entry.upper,
            high_watermark: demand.high_watermark,
            average: demand.average,
            deviation: demand.deviation,
            smoothed: demand.smoothed,
            target: demand.target,
        }
    }
}

fn snapshots(controller: &Controller) -> Vec<Snapshot> {
    let mut snapshots = Vec::new();
    controller.each_level(|level, entry| {
        let now = level.now();
        let mut set = level.lock();
        set.advance(now);
        let metrics = &mut set.metrics;
        snapshots.push(Snapshot {
            level: level.name.to_string(),
            flows: metrics.flows.clone(),
            waiting_utilization: metrics.waiting_utilization.read(now),
            executing_utilization: metrics.executing_utilization.read(now),
            seat_utilization: metrics.seat_utilization.read(now),
            demand: metrics.demand.read(now),
            virtual_time: set.virtual_time().as_f64(),
            limits: entry.map(Limits::of),
            seats: set.seats_max(),
        });
    });
    snapshots
}

impl Collector for Collected {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> Result<(), Error> {
        let snapshots = snapshots(&self.0);
        let mut page = Page { encoder, snapshots: &snapshots };
        page.flow_counters()?;
        page.flow_gauges()?;
        page.flow_histograms()?;
        page.level_histograms()?;
        page.level_gauges()?;
        let help = "Fair fraction of server's concurrency to allocate to each priority level that can use it";
        let name = "apiserver_flowcontrol_seat_fair_frac";
        let family = page.encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
        ConstGauge::new(self.0.fair_fraction()).encode(family)
    }
}

struct Page<'e, 's> {
    encoder: DescriptorEncoder<'e>,
    snapshots: &'s [Snapshot],
}

impl Page<'_, '_> {
    fn flow_counters(&mut self) -> Result<(), Error> {
        let help = "Number of requests rejected by API Priority and Fairness subsystem";
        let name = "apiserver_flowcontrol_rejected_requests";
        let mut family = self.encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
        for (level, flow) in flows(self.snapshots) {
            for reason in RejectReason::ALL {
                let count = flow.rejected[reason as usize];
                if count > 0 {
                    let labels = [
                        ("flow_schema", &*flow.schema),
                        ("priority_level", level),
                        ("reason", reason.as_str()),
                    ];
                    ConstCounter::new(count).encode(family.encode_family(&labels)?)?;
                }
            }
        }
        type Read = fn(&FlowMetrics) -> u64;
        let counters: [(&str, &str, Read); 2] = [
            (
                "apiserver_flowcontrol_dispatched_requests",
                "Number of requests executed by API Priority and Fairness subsystem",
                |flow| flow.dispatched,
            ),
            (
                "apiserver_flowcontrol_request_dispatch_no_accommodation",
                "Number of times a dispatch attempt resulted in a non accommodation due to lack of available seats",
                |flow| flow.no_accommodation,
            ),
        ];
        for (name, help, value) in counters {
            let mut family = self.encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
            for (level, flow) in flows(self.snapshots).filter(|(_, flow)| value(flow) > 0) {
                let labels = [("flow_schema", &*flow.schema), ("priority_level", level)];
                ConstCounter::new(value(flow)).encode(family.encode_family(&labels)?)?;
            }
        }
        Ok(())
    }

    fn flow_gauges(&mut self) -> Result<(), Error> {
        type Read = fn(&FlowMetrics) -> i64;
        let gauges: [(&str, &str, Read); 4] = [
            (
                "apiserver_flowcontrol_current_inqueue_requests",
                "Number of requests currently pending in queues of the API Priority and Fairness subsystem",
                |flow| flow.waiting,
            ),
            (
                "apiserver_flowcontrol_current_inqueue_seats",
                "Number of seats currently pending in queues of the API Priority and Fairness subsystem",
                |flow| flow.waiting_seats,
            ),
            (
                "apiserver_flowcontrol_current_executing_requests",
                "Number of requests in initial (for a WATCH) or any (for a non-WATCH) execution stage in the API \
                 Priority and Fairness subsystem",
                |flow| flow.executing,
            ),
            (
                "apiserver_flowcontrol_current_executing_seats",
                "Concurrency (number of seats) occupied by the currently executing (initial stage for a WATCH, any \
                 stage otherwise) requests in the API Priority and Fairness subsystem",
                |flow| flow.executing_seats,
            ),
        ];
        for (name, help, value) in gauges {
            let mut family = self.encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
            for (level, flow) in flows(self.snapshots) {
                let labels = [("flow_schema", &*flow.schema), ("priority_level", level)];
                ConstGauge::new(value(flow)).encode(family.encode_family(&labels)?)?;
            }
        }
        Ok(())
    }

    fn flow_histograms(&mut self) -> Result<(), Error> {
        type Series = (&'static [(&'static str, &'static str)], fn(&FlowMetrics) -> &Histogram);
        let histograms: [(&str, &str, &[Series]); 5] = [
            (
                "apiserver_flowcontrol_request_queue_length_after_enqueue",
                "Length of queue in the API Priority and Fairness subsystem, as seen by each request after it is \
                 enqueued",
                &[(&[], |flow| &flow.queue_length)],
            ),
            (
                "apiserver_flowcontrol_request_wait_duration_seconds",
                "Length of time a request spent waiting in its queue",
                &[
                    (&[("execute", "true")], |flow| &flow.waited_executed),
                    (&[("execute", "false")], |flow| &flow.waited_rejected),
                ],
            ),
            (
                "apiserver_flowcontrol_request_execution_seconds",
                "Duration of initial stage (for a WATCH) or any (for a non-WATCH) stage of request execution in the \
                 API Priority and Fairness subsystem",
                &[(&[("type", "regular")], |flow| &flow.execution)],
            ),
            (
                "apiserver_flowcontrol_work_estimated_seats",
                "Number of estimated seats (maximum of initial and final seats) associated with requests in API \
                 Priority and Fairness",
                &[(&[], |flow| &flow.seats)],
            ),
            (
                "apiserver_flowcontrol_watch_count_samples",
                "count of watchers for mutating requests in API Priority and Fairness",
                &[(&[], |flow| &flow.watches)],
            ),
        ];
        for (name, help, series) in histograms {
            let mut family = self.encoder.encode_descriptor(name, help, None, MetricType::Histogram)?;
            for (level, flow) in flows(self.snapshots) {
                for (more, read) in series {
                    let histogram = read(flow);
                    if histogram.is_empty() {
                        continue;
                    }
                    let mut labels = more.to_vec();
                    labels.extend([("flow_schema", &*flow.schema), ("priority_level", level)]);
                    let (sum, count, buckets) = histogram.read();
                    family
                        .encode_family(&labels)?
                        .encode_histogram::<NoLabelSet>(sum, count, &buckets, None)?;
                }
            }
        }
        Ok(())
    }

    fn level_histograms(&mut self) -> Result<(), Error> {
        type Series = (&'static [(&'static str, &'static str)], fn(&Snapshot) -> &Histogram);
        let histograms: [(&str, &str, &[Series]); 3] = [
            (
                "apiserver_flowcontrol_priority_level_seat_utilization",
                "Observations, at the end of every nanosecond, of utilization of seats for any stage of execution \
                 (but only initial stage for WATCHes)",
                &[(&[("phase", "executing")], |snapshot| &snapshot.seat_utilization)],
            ),
            (
                "apiserver_flowcontrol_priority_level_request_utilization",
                "Observations, at the end of every nanosecond, of number of requests (as a fraction of the relevant \
                 limit) waiting or in any stage of execution (but only initial stage for WATCHes)",
                &[
                    (&[("phase", "waiting")], |snapshot| &snapshot.waiting_utilization),
                    (&[("phase", "executing")], |snapshot| &snapshot.executing_utilization),
                ],
            ),
            (
                "apiserver_flowcontrol_demand_seats",
                "Observations, at the end of every nanosecond, of (the number of seats each priority level could \
                 use) / (nominal number of seats for that level)",
                &[(&[], |snapshot| &snapshot.demand)],
            ),
        ];
        for (name, help, series) in histograms {
            let mut family = self.encoder.encode_descriptor(name, help, None, MetricType::Histogram)?;
            for snapshot in self.snapshots {
                for (more, read) in series {
                    let mut labels = more.to_vec();
                    labels.push(("priority_level", snapshot.level.as_str()));
                    let (sum, count, buckets) = read(snapshot).read();
                    family
                        .encode_family(&labels)?
                        .encode_histogram::<NoLabelSet>(sum, count, &buckets, None)?;
                }
            }
        }
        Ok(())
    }

    fn level_gauges(&mut self) -> Result<(), Error> {
        type Read = fn(&Snapshot) -> Option<f64>;
        let gauges: [(&str, &str, Read); 10] = [
            (
                "apiserver_flowcontrol_nominal_limit_seats",
                "Nominal number of execution seats configured for each priority level",
                |snapshot| snapshot.limits.as_ref().map(|limits| limits.nominal as f64),
            ),
            (
                "apiserver_flowcontrol_lower_limit_seats",
                "Configured lower bound on number of execution seats available to each priority level",
                |snapshot| snapshot.limits.as_ref().map(|limits| limits.lower as f64),
            ),
            (
                "apiserver_flowcontrol_upper_limit_seats",
                "Configured upper bound on number of execution seats available to each priority level",
                |snapshot| snapshot.limits.as_ref().map(|limits| limits.upper as f64),
            ),
            (
                "apiserver_flowcontrol_current_limit_seats",
                "current derived number of execution seats available to each priority level",
                |snapshot| Some(snapshot.seats as f64),
            ),
            (
                "apiserver_flowcontrol_demand_seats_high_watermark",
                "High watermark, over last adjustment period, of demand_seats",
                |snapshot| snapshot.limits.as_ref().map(|limits| limits.high_watermark),
            ),
            (
                "apiserver_flowcontrol_demand_seats_average",
                "Time-weighted average, over last adjustment period, of demand_seats",
                |snapshot| snapshot.limits.as_ref().map(|limits| limits.average),
            ),
            (
                "apiserver_flowcontrol_demand_seats_stdev",
                "Time-weighted standard deviation, over last adjustment period, of demand_seats",
                |snapshot| snapshot.limits.as_ref().map(|limits| limits.deviation),
            ),
            ("apiserver_flowcontrol_demand_seats_smoothed", "Smoothed seat demands", |snapshot| {
                snapshot.limits.as_ref().map(|limits| limits.smoothed)
            }),
            ("apiserver_flowcontrol_target_seats", "Seat allocation targets", |snapshot| {
                snapshot.limits.as_ref().map(|limits| limits.target)
            }),
            ("apiserver_flowcontrol_current_r", "R(time of last change)", |snapshot| {
                Some(snapshot.virtual_time)
            }),
        ];
        for (name, help, read) in gauges {
            let mut family = self.encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
            for snapshot in self.snapshots {
                if let Some(value) = read(snapshot) {
                    let labels = [("priority_level", snapshot.level.as_str())];
                    ConstGauge::new(value).encode(family.encode_family(&labels)?)?;
                }
            }
        }
        Ok(())
    }
}

fn flows(snapshots: &[Snapshot]) -> impl Iterator<Item = (&str, &FlowMetrics)> {
    snapshots.iter().flat_map(|snapshot| snapshot.flows.iter().map(|flow| (snapshot.level.as_str(), flow)))
}
