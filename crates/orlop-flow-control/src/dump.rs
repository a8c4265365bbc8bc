//! Dumps of what is in force, as `/debug/api_priority_and_fairness` shows them.

use std::time::{Instant, SystemTime, UNIX_EPOCH};

use orlop_api::time::Time;

use crate::{
    controller::Controller,
    level::FIELD_END,
    queue_set::{QueueSet, Request, State},
};

/// Returns a row for each priority level.
pub fn dump_priority_levels(controller: &Controller) -> String {
    let mut table = Table::new(&[
        "PriorityLevelName",
        "ActiveQueues",
        "IsIdle",
        "IsQuiescing",
        "WaitingRequests",
        "ExecutingRequests",
        "DispatchedRequests",
        "RejectedRequests",
        "TimedoutRequests",
        "CancelledRequests",
    ]);
    controller.each_level(|level, entry| {
        let set = level.lock();
        let active = set.queues().iter().filter(|queue| !queue.waiting.is_empty()).count();
        table.row(vec![
            level.name.to_string(),
            active.to_string(),
            set.is_idle().to_string(),
            entry.is_some_and(|entry| entry.is_quiescing).to_string(),
            set.waiting().to_string(),
            set.executing().to_string(),
            set.totals.dispatched.to_string(),
            set.totals.rejected.to_string(),
            set.totals.timed_out.to_string(),
            set.totals.cancelled.to_string(),
        ]);
    });
    table.into_text()
}

/// Returns a row for each queue that has requests.
pub fn dump_queues(controller: &Controller) -> String {
    let mut table = Table::new(&[
        "PriorityLevelName",
        "Index",
        "PendingRequests",
        "ExecutingRequests",
        "SeatsInUse",
        "NextDispatchR",
        "InitialSeatsSum",
        "MaxSeatsSum",
        "TotalWorkSum",
    ]);
    controller.each_level(|level, _| {
        let set = level.lock();
        for queue in set.queues() {
            let waiting = queue.waiting.iter().filter_map(|slot| set.request(*slot));
            let initial: usize = waiting.map(|request| request.estimate.initial_seats).sum();
            table.row(vec![
                level.name.to_string(),
                queue.index.to_string(),
                queue.waiting.len().to_string(),
                queue.executing.to_string(),
                queue.seats_in_use.to_string(),
                queue.next_dispatch.to_string(),
                initial.to_string(),
                queue.waiting_seats.to_string(),
                queue.waiting_work.to_string(),
            ]);
        }
    });
    table.into_text()
}

/// Returns a row for each request that waits or executes, with what it asks for if `with_details`.
pub fn dump_requests(controller: &Controller, with_details: bool) -> String {
    let mut headers = vec![
        "PriorityLevelName",
        "FlowSchemaName",
        "QueueIndex",
        "RequestIndexInQueue",
        "FlowDistingsher",
        "ArriveTime",
        "InitialSeats",
        "FinalSeats",
        "AdditionalLatency",
        "StartTime",
    ];
    if with_details {
        headers.extend([
            "UserName",
            "Verb",
            "APIPath",
            "Namespace",
            "Name",
            "APIVersion",
            "Resource",
            "SubResource",
        ]);
    }
    let mut table = Table::new(&headers);
    let wall = Wall::at(controller.now());
    controller.each_level(|level, _| {
        let set = level.lock();
        let mut row = |place: [String; 2], request: &Request| {
            table.row(request_row(&level.name, &set, place, request, &wall, with_details));
        };
        for queue in set.queues() {
            for (index, request) in queue.waiting.iter().filter_map(|slot| set.request(*slot)).enumerate() {
                row([queue.index.to_string(), index.to_string()], request);
            }
        }
        for (_, request) in set.requests().filter(|(_, request)| request.state == State::Executing) {
            let queue = request.queue.map_or("-1".to_owned(), |index| index.to_string());
            row([queue, "-1".to_owned()], request);
        }
    });
    table.into_text()
}

fn request_row(
    level: &str,
    set: &QueueSet,
    [queue, index]: [String; 2],
    request: &Request,
    wall: &Wall,
    with_details: bool,
) -> Vec<String> {
    let schema = set.metrics.flows.get(request.flow).map_or("", |flow| &flow.schema);
    let started = match request.state {
        State::Executing => wall.text(request.started),
        _ => "0001-01-01T00:00:00Z".to_owned(),
    };
    let mut columns = vec![
        level.to_owned(),
        schema.to_owned(),
        queue,
        index,
        request.distinguisher.clone(),
        wall.text(request.arrived),
        request.estimate.initial_seats.to_string(),
        request.estimate.final_seats.to_string(),
        orlop_duration::format_duration(request.estimate.additional_latency),
        started,
    ];
    if with_details {
        let mut fields: Vec<&str> = request.details.split(FIELD_END).collect();
        fields.resize(9, "");
        let group_version =
            if fields[5].is_empty() { fields[6].to_owned() } else { format!("{}/{}", fields[5], fields[6]) };
        columns.extend(fields[..5].iter().map(|field| (*field).to_owned()));
        columns.extend([group_version, fields[7].to_owned(), fields[8].to_owned()]);
    }
    columns
}

/// The wall clock at a moment of the monotonic one.
struct Wall {
    moment: Instant,
    time: SystemTime,
}

impl Wall {
    fn at(moment: Instant) -> Self {
        Self { moment, time: SystemTime::now() }
    }

    fn text(&self, moment: Instant) -> String {
        let time = self.time - self.moment.saturating_duration_since(moment);
        let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
        Time { unix_seconds: since.as_secs() as i64, nanoseconds: since.subsec_nanos() }.to_micro()
    }
}

/// A table whose columns are aligned and end in commas, as Go's tabwriter makes it.
struct Table(Vec<Vec<String>>);

impl Table {
    fn new(headers: &[&str]) -> Self {
        Self(vec![headers.iter().map(|header| (*header).to_owned()).collect()])
    }

    fn row(&mut self, columns: Vec<String>) {
        self.0.push(columns);
    }

    fn into_text(self) -> String {
        let columns = self.0.first().map_or(0, Vec::len);
        let width = |column: usize| {
            let widths = self.0.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count() + 1);
            widths.max().unwrap_or(0).max(7) + 1
        };
        let widths: Vec<usize> = (0..columns).map(width).collect();
        let mut text = String::new();
        for row in &self.0 {
            let last = row.len().saturating_sub(1);
            for (index, (cell, width)) in row.iter().zip(&widths).enumerate() {
                if index == last {
                    text.push_str(cell);
                } else {
                    text.push_str(&format!("{:<width$}", format!("{cell},")));
                }
            }
            text.push('\n');
        }
        text
    }
}
