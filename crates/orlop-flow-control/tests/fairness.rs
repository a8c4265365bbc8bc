//! Properties of fair queuing, through the public interface with a clock that the tests move.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use std::{sync::Arc, time::Duration};

use http::Method;
use orlop_api::{query::Query, user::UserInfo};
use orlop_auth::request::Attributes;
use orlop_flow_control::{
    Clock, Controller, FlowSchema, ListWork, ManualClock, PriorityLevel, RejectReason, Seats, Started,
    Ticket, dump_priority_levels, dump_queues, dump_requests,
};
use proptest::prelude::*;
use serde_json::{Value, json};

/// A server whose clock stands still until a test moves it.
struct Server {
    clock: Arc<ManualClock>,
    controller: Controller,
}

impl Server {
    /// Returns a server of which one level, `l`, has nearly all seats.
    fn new(seats: usize, response: Value) -> Self {
        let clock = Arc::new(ManualClock::default());
        let controller = Controller::new(seats, clock.clone());
        let server = Self { clock, controller };
        server.configure(&[level("l", 10_000, 0, response)], &[schema("s", "l", 100, "*")]);
        server
    }

    fn configure(&self, levels: &[Value], schemas: &[Value]) {
        let levels = levels.iter().map(|level| PriorityLevel::decode(level).unwrap()).collect();
        let schemas = schemas.iter().map(|schema| FlowSchema::decode(schema).unwrap()).collect();
        self.controller.configure(levels, schemas);
    }

    fn start(&self, user: &str, method: &Method, url: &str) -> Started {
        let attributes = request(user, method, url);
        let class = self.controller.classify(&attributes);
        self.controller.start(&class, &attributes, url, ListWork::default)
    }

    fn get(&self, user: &str) -> Started {
        self.start(user, &Method::GET, "/api/v1/namespaces/a/configmaps/x")
    }

    fn pass(&self, milliseconds: u64) {
        self.clock.advance(Duration::from_millis(milliseconds));
    }
}

fn request(user: &str, method: &Method, url: &str) -> Attributes {
    let (path, query) = url.split_once('?').unwrap_or((url, ""));
    let mut attributes = Attributes::of(method, path, &Query::parse(query));
    attributes.user = Arc::new(UserInfo::authenticated(user, []));
    attributes
}

fn level(name: &str, shares: u32, lendable: u32, response: Value) -> Value {
    json!({"metadata": {"name": name, "uid": format!("uid-{name}")}, "spec": {"type": "Limited", "limited": {
        "nominalConcurrencyShares": shares, "lendablePercent": lendable, "limitResponse": response}}})
}

fn queue(queues: u32, hand: u32, length: u32) -> Value {
    json!({"type": "Queue", "queuing": {"queues": queues, "handSize": hand, "queueLengthLimit": length}})
}

fn schema(name: &str, level: &str, precedence: u32, user: &str) -> Value {
    json!({"metadata": {"name": name, "uid": format!("uid-{name}")}, "spec": {
        "priorityLevelConfiguration": {"name": level}, "matchingPrecedence": precedence,
        "distinguisherMethod": {"type": "ByUser"},
        "rules": [{"subjects": [{"kind": "User", "user": {"name": user}}],
            "resourceRules": [{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"], "namespaces": ["*"],
                "clusterScope": true}],
            "nonResourceRules": [{"verbs": ["*"], "nonResourceURLs": ["*"]}]}]}})
}

fn executing(started: Started) -> Seats {
    match started {
        Started::Executing(seats) => seats,
        other => panic!("{other:?}"),
    }
}

fn waiting(started: Started) -> Ticket {
    match started {
        Started::Waiting(ticket) => ticket,
        other => panic!("{other:?}"),
    }
}

fn rejected(started: Started) -> RejectReason {
    match started {
        Started::Rejected(rejected) => rejected.reason,
        other => panic!("{other:?}"),
    }
}

/// Returns a column of the row of a level in the dump of levels.
fn column(server: &Server, level: &str, index: usize) -> u64 {
    let dump = dump_priority_levels(&server.controller);
    let row = dump.lines().find(|line| line.starts_with(&format!("{level},"))).unwrap();
    row.split(',').nth(index).unwrap().trim().parse().unwrap()
}

// === Single decisions ===

#[test]
fn requests_wait_in_order_when_seats_are_taken() {
    let server = Server::new(2, queue(1, 1, 2));
    let first = executing(server.get("a"));
    let second = executing(server.get("a"));
    let third = waiting(server.get("a"));
    let fourth = waiting(server.get("a"));
    assert_eq!(rejected(server.get("a")), RejectReason::QueueFull);
    drop(first);
    let third = third.try_dispatched().unwrap();
    let fourth = fourth.try_dispatched().unwrap_err();
    drop((second, third));
    drop(fourth.try_dispatched().unwrap());
    assert_eq!((column(&server, "l", 5), column(&server, "l", 6), column(&server, "l", 7)), (0, 4, 1));
}

#[test]
fn first_request_of_a_flow_does_not_wait_for_those_of_another() {
    // Hashes are random, and hands of one card may collide.
    let server = (0..100).map(|_| Server::new(2, queue(64, 1, 50))).find(|server| {
        let _flood = [executing(server.get("flood")), executing(server.get("flood"))];
        matches!(server.get("polite"), Started::Executing(_))
    });
    let server = server.unwrap();
    let flood = [executing(server.get("flood")), executing(server.get("flood"))];
    let more = [waiting(server.get("flood")), waiting(server.get("flood"))];
    for _ in 0..10 {
        let polite = executing(server.get("polite"));
        let second = waiting(server.get("polite"));
        drop(polite);
        drop(second.try_dispatched().unwrap());
        server.pass(1);
    }
    drop((flood, more));
}

#[test]
fn level_without_queues_rejects() {
    let server = Server::new(1, json!({"type": "Reject"}));
    let only = executing(server.get("a"));
    assert_eq!(rejected(server.get("a")), RejectReason::ConcurrencyLimit);
    drop(only);
    executing(server.get("a"));
}

#[test]
fn requests_of_the_process_have_seats_of_their_own() {
    let server = Server::new(1, json!({"type": "Reject"}));
    let client = executing(server.get("a"));
    let own = server.controller.in_process().clone();
    let attributes = request("system:apiserver", &Method::GET, "/api/v1/pods");
    let start = || server.controller.start(&own, &attributes, "/api/v1/pods", ListWork::default);
    let held: Vec<Seats> = (0..200).map(|_| executing(start())).collect();
    let next = waiting(start());
    assert_eq!(rejected(server.get("a")), RejectReason::ConcurrencyLimit);
    drop(client);
    // Their queue does not keep clients out.
    drop(executing(server.get("a")));
    drop(held);
    drop(next.try_dispatched().unwrap());
    assert!(own.schema_uid.is_empty() && own.level_uid.is_empty());
}

#[test]
fn masters_are_exempt() {
    let server = Server::new(1, json!({"type": "Reject"}));
    server.configure(&[level("l", 10_000, 0, json!({"type": "Reject"}))], &[]);
    let mut attributes = request("admin", &Method::GET, "/api/v1/pods");
    attributes.user = Arc::new(UserInfo::master("admin"));
    let class = server.controller.classify(&attributes);
    assert_eq!((&*class.schema, class.level_name()), ("exempt", "exempt"));
    let start = || server.controller.start(&class, &attributes, "/", ListWork::default);
    let held: Vec<Seats> = (0..100).map(|_| executing(start())).collect();
    assert_eq!(column(&server, "exempt", 5), 100);
    drop(held);
}

#[tokio::test]
async fn request_that_waits_too_long_is_rejected_with_a_delay() {
    let server = Server::new(1, queue(1, 1, 10));
    let first = executing(server.get("a"));
    let ticket = waiting(server.get("a"));
    let rejected = ticket.dispatched(async {}).await.unwrap_err();
    assert_eq!((rejected.reason, rejected.retry_after_seconds), (RejectReason::TimeOut, 1));
    drop(first);
    executing(server.get("a"));
    assert_eq!((column(&server, "l", 4), column(&server, "l", 8)), (0, 1));
}

#[tokio::test]
async fn dispatch_wins_over_a_time_out_at_the_same_moment() {
    let server = Server::new(1, queue(1, 1, 10));
    let first = executing(server.get("a"));
    let ticket = waiting(server.get("a"));
    drop(first);
    drop(ticket.dispatched(std::future::ready(())).await.unwrap());
    assert_eq!(column(&server, "l", 5), 0);
}

#[test]
fn dropped_tickets_return_their_place_and_their_seats() {
    let server = Server::new(1, queue(1, 1, 2));
    let first = executing(server.get("a"));
    let second = waiting(server.get("a"));
    let third = waiting(server.get("a"));
    drop(second);
    drop(first);
    // The third was dispatched, and its client left before it noticed.
    drop(third);
    executing(server.get("a"));
    assert_eq!((column(&server, "l", 4), column(&server, "l", 9)), (0, 1));
}

#[test]
fn schemas_match_by_precedence_then_name_and_dangling_ones_not_at_all() {
    let server = Server::new(10, queue(8, 2, 10));
    let levels = [level("l", 10, 0, queue(8, 2, 10)), level("m", 10, 0, queue(8, 2, 10))];
    server.configure(
        &levels,
        &[
            schema("z", "m", 50, "jane"),
            schema("y", "l", 50, "jane"),
            schema("gone", "absent", 2, "jane"),
            schema("late", "m", 60, "*"),
        ],
    );
    let class = |user: &str| {
        let class = server.controller.classify(&request(user, &Method::GET, "/api/v1/pods"));
        (
            class.schema.to_string(),
            class.level_name().to_owned(),
            class.level_uid.to_str().unwrap().to_owned(),
        )
    };
    assert_eq!(class("jane"), ("y".to_owned(), "l".to_owned(), "uid-l".to_owned()));
    assert_eq!(class("joe"), ("late".to_owned(), "m".to_owned(), "uid-m".to_owned()));
    let mut updates = server.controller.dangling_updates();
    updates.retain(|update| update.status == "True");
    assert_eq!((updates.len(), updates[0].schema.as_str(), updates[0].reason), (1, "gone", "NotFound"));
    assert_eq!(
        updates[0].message,
        "This FlowSchema references the PriorityLevelConfiguration object named \"absent\" but there is no such object"
    );
    // Nothing configured: everybody is caught.
    server.configure(&[], &[]);
    assert_eq!(class("jane").0, "catch-all");
}

#[test]
fn removed_level_drains_and_goes() {
    let server = Server::new(4, queue(8, 2, 10));
    let held = executing(server.get("a"));
    server.configure(&[level("m", 10, 0, queue(8, 2, 10))], &[schema("s", "m", 100, "*")]);
    let names = || dump_priority_levels(&server.controller);
    assert!(names().lines().any(|line| line.starts_with("l,") && line.contains("true")), "{}", names());
    drop(held);
    server.controller.divide_seats();
    assert!(!names().lines().any(|line| line.starts_with("l,")), "{}", names());
}

#[test]
fn wide_request_executes_alone_in_a_narrow_level() {
    let server = Server::new(2, queue(8, 1, 10));
    let all = request("a", &Method::GET, "/api/v1/configmaps");
    server.controller.statistics.record(&all, 10_000, 10_000_000);
    let list = || server.start("a", &Method::GET, "/api/v1/configmaps");
    // A level of two seats lets one request take one.
    let held = [executing(list()), executing(list())];
    let third = waiting(list());
    drop(held);
    drop(third.try_dispatched().unwrap());
}

#[test]
fn seats_of_a_write_linger_while_its_event_is_sent() {
    let server = Server::new(20, queue(8, 1, 10));
    let watch = request("w", &Method::GET, "/api/v1/configmaps?watch=1");
    let open: Vec<_> = (0..400).map(|_| server.controller.watches.register(&watch, "")).collect();
    let put = || server.start("a", &Method::PUT, "/api/v1/namespaces/a/configmaps/x");
    // 40 seats' work of 5 ms on three at a time takes 66.7 ms.
    for _ in 0..6 {
        drop(executing(put()));
    }
    let ticket = waiting(put());
    let due = server.controller.release_due().unwrap();
    assert_eq!(due.duration_since(server.clock.now()).as_millis(), 66);
    server.pass(60);
    assert!(server.controller.release_due().is_some());
    let ticket = ticket.try_dispatched().unwrap_err();
    server.pass(7);
    assert_eq!(server.controller.release_due(), None);
    drop(ticket.try_dispatched().unwrap());
    drop(open);
}

#[test]
fn dumps_show_levels_queues_and_requests() {
    let server = Server::new(1, queue(1, 1, 10));
    let first = executing(server.get("jane"));
    let second = waiting(server.get("joe"));
    let queues = dump_queues(&server.controller);
    assert!(queues.starts_with("PriorityLevelName, Index,"), "{queues}");
    assert_eq!(
        queues.lines().nth(1).unwrap().split_whitespace().collect::<Vec<_>>()[..4],
        ["l,", "0,", "1,", "1,"]
    );
    let requests = dump_requests(&server.controller, true);
    let rows: Vec<Vec<&str>> =
        requests.lines().map(|line| line.split(',').map(str::trim).collect()).collect();
    assert_eq!(rows.len(), 3, "{requests}");
    assert_eq!(rows[0].len(), 18);
    assert_eq!((rows[1][0], rows[1][1], rows[1][3], rows[1][10]), ("l", "s", "0", "joe"));
    assert_eq!((rows[2][3], rows[2][10], rows[2][11]), ("-1", "jane", "get"));
    assert_eq!(rows[2][12..], ["/api/v1/namespaces/a/configmaps/x", "a", "x", "v1", "configmaps", ""]);
    drop((first, second));
    assert_eq!(dump_requests(&server.controller, false).lines().count(), 1);
}

// === Lending and borrowing ===

#[test]
fn idle_levels_lend_their_seats_and_get_them_back() {
    let server = Server::new(100, queue(64, 4, 50));
    let levels = [level("l", 50, 0, queue(64, 4, 500)), level("m", 50, 80, queue(64, 4, 500))];
    server.configure(&levels, &[schema("s", "l", 100, "busy"), schema("t", "m", 101, "idle")]);
    let mut held: Vec<Started> = (0..200).map(|_| server.get("busy")).collect();
    let count = |held: &[Started]| held.iter().filter(|one| matches!(one, Started::Executing(_))).count();
    // Before any demand is known, seats are divided by what levels must keep: 48, 10 and 5 of 101.
    assert_eq!(count(&held), 77);
    server.pass(10_000);
    server.controller.divide_seats();
    // 48 each by their shares of 105; the idle level keeps its fifth, and lends the rest.
    let borrowed = column(&server, "l", 5);
    assert!((80..=88).contains(&borrowed), "{borrowed}");
    held.extend((0..100).map(|_| server.get("idle")));
    server.pass(10_000);
    server.controller.divide_seats();
    held.truncate(200);
    drop(held);
    assert_eq!(column(&server, "l", 5), 0);
    server.pass(10_000);
    server.controller.divide_seats();
    let held: Vec<Started> = (0..60).map(|_| server.get("idle")).collect();
    assert!(count(&held) >= 40, "{}", count(&held));
}

// === Properties ===

/// One step of a random history.
#[derive(Clone, Debug)]
enum Step {
    Arrive { user: u8, write: bool },
    Finish(usize),
    Cancel(usize),
    Pass(u64),
    Limit(u32),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        6 => (0u8..5, any::<bool>()).prop_map(|(user, write)| Step::Arrive { user, write }),
        4 => any::<usize>().prop_map(Step::Finish),
        2 => any::<usize>().prop_map(Step::Cancel),
        3 => (0u64..50).prop_map(Step::Pass),
        1 => (1u32..40).prop_map(Step::Limit),
    ];
    prop::collection::vec(step, 1..200)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn seats_are_exceeded_by_one_for_each_queue_at_most_and_always_returned(steps in steps(), seats in 1usize..30) {
        let server = Server::new(seats, queue(16, 3, 5));
        let watch = request("w", &Method::GET, "/api/v1/configmaps?watch=1");
        let open: Vec<_> = (0..60).map(|_| server.controller.watches.register(&watch, "")).collect();
        let (mut running, mut queued): (Vec<Seats>, Vec<Ticket>) = (Vec::new(), Vec::new());
        let mut limit_was_reduced = false;
        for step in steps {
            match step {
                Step::Arrive { user, write } => {
                    let method = if write { Method::PUT } else { Method::GET };
                    let started =
                        server.start(&format!("u{user}"), &method, "/api/v1/namespaces/a/configmaps/x");
                    match started {
                        Started::Executing(seats) => running.push(seats),
                        Started::Waiting(ticket) => queued.push(ticket),
                        Started::Rejected(_) => {}
                    }
                }
                Step::Finish(index) if !running.is_empty() => drop(running.swap_remove(index % running.len())),
                Step::Cancel(index) if !queued.is_empty() => drop(queued.swap_remove(index % queued.len())),
                Step::Pass(milliseconds) => {
                    server.pass(milliseconds);
                    server.controller.release_due();
                }
                Step::Limit(shares) => {
                    limit_was_reduced = true;
                    server.configure(
                        &[level("l", shares, 0, queue(8, 2, 4)), level("m", 20, 0, queue(8, 2, 4))],
                        &[schema("s", "l", 100, "*")],
                    );
                }
                Step::Finish(_) | Step::Cancel(_) => {}
            }
            let mut still = Vec::new();
            for ticket in queued.drain(..) {
                match ticket.try_dispatched() {
                    Ok(seats) => running.push(seats),
                    Err(ticket) => still.push(ticket),
                }
            }
            queued = still;
            prop_assert_eq!(column(&server, "l", 5), running.len() as u64);
            prop_assert_eq!(column(&server, "l", 4), queued.len() as u64);
            if !limit_was_reduced {
                // Each takes at least one seat, and a wide one more.
                prop_assert!(running.len() <= seats + 16);
            }
        }
        drop((running, queued));
        server.pass(60_000);
        server.controller.release_due();
        prop_assert_eq!((column(&server, "l", 4), column(&server, "l", 5)), (0, 0));
        let queues = dump_queues(&server.controller);
        prop_assert_eq!(queues.lines().count(), 1, "{}", queues);
        drop(open);
    }

}

proptest! {
    // Each case simulates seconds.
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// Flows that always want more get equal seat-seconds, whatever their requests take and however many they send.
    #[test]
    fn busy_flows_get_equal_seat_seconds(
        durations in prop::collection::vec(1u64..40, 2..5),
        // Twice the seats and more: a flow must have requests waiting while others of it are replaced.
        outstanding in prop::collection::vec(24usize..60, 5),
        seats in 4usize..12,
    ) {
        // One queue for each flow. Hashes are random: hands of one card may collide, if seldom.
        let (server, mut users) = loop {
            let server = Server::new(seats, queue(4096, 1, 1000));
            let mut users: Vec<Busy> = durations
                .iter()
                .enumerate()
                .map(|(index, duration)| Busy::new(format!("u{index}"), *duration, outstanding[index]))
                .collect();
            pass_millisecond(&server, &mut users);
            // The dump has a heading.
            if dump_queues(&server.controller).lines().count() == users.len() + 1 {
                break (server, users);
            }
        };
        for _ in 0..4000 {
            pass_millisecond(&server, &mut users);
        }
        let used: Vec<f64> = users.iter().map(|user| user.used as f64).collect();
        let fair = used.iter().sum::<f64>() / used.len() as f64;
        let longest = *durations.iter().max().unwrap() as f64;
        // A flow may be ahead by what it has started when the others come: its seats times its longest request.
        let bound = seats as f64 * longest * 2.0 + fair * 0.05;
        for one in &used {
            prop_assert!((one - fair).abs() <= bound, "{used:?} of {fair}, bound {bound}");
        }
    }

    /// A polite request beside a flood waits a few rounds of requests, however many requests the flood has waiting.
    #[test]
    fn a_flood_does_not_starve_another_flow(
        flood in 50usize..300, duration in 5u64..50, seats in 2usize..12,
    ) {
        let server = Server::new(seats, queue(4096, 4, 500));
        let mut greedy = [Busy::new("greedy".to_owned(), duration, flood)];
        let mut longest = 0;
        let mut polite: Option<(u64, Started)> = None;
        for now in 0..2000u64 {
            match polite.take() {
                None if now % 37 == 0 => polite = Some((now, server.get("polite"))),
                None => {}
                Some((since, started)) => match started {
                    // It executes for a millisecond.
                    Started::Executing(_) => longest = longest.max(now - since - 1),
                    Started::Waiting(ticket) => {
                        polite = Some((since, ticket.try_dispatched().map_or_else(Started::Waiting, Started::Executing)));
                    }
                    Started::Rejected(reason) => prop_assert!(false, "{reason:?}"),
                },
            }
            pass_millisecond(&server, &mut greedy);
        }
        // A request is charged for its real time when it ends, so a flood can be ahead by what it executes. That ends
        // within two rounds, after the one that was under way.
        prop_assert!(longest <= 3 * duration + 2, "waited {longest} ms beside requests of {duration} ms");
    }
}

/// A user who always has a number of requests outstanding, each of which takes a time.
struct Busy {
    name: String,
    duration: u64,
    outstanding: usize,
    /// Milliseconds left of each that executes.
    running: Vec<(u64, Seats)>,
    queued: Vec<Ticket>,
    /// Seat-milliseconds.
    used: u64,
}

impl Busy {
    fn new(name: String, duration: u64, outstanding: usize) -> Self {
        Self { name, duration, outstanding, running: Vec::new(), queued: Vec::new(), used: 0 }
    }

    /// Ends the requests whose time is over.
    fn finish(&mut self) {
        for (left, _) in &mut self.running {
            *left -= 1;
        }
        self.used += self.running.len() as u64;
        self.running.retain(|(left, _)| *left > 0);
    }

    /// Notices the requests that were dispatched.
    fn notice(&mut self) {
        let mut still = Vec::new();
        for ticket in self.queued.drain(..) {
            match ticket.try_dispatched() {
                Ok(seats) => self.running.push((self.duration, seats)),
                Err(ticket) => still.push(ticket),
            }
        }
        self.queued = still;
    }

    /// Sends requests up to the number that should be outstanding.
    fn send(&mut self, server: &Server) {
        while self.running.len() + self.queued.len() < self.outstanding {
            match server.get(&self.name) {
                Started::Executing(seats) => self.running.push((self.duration, seats)),
                Started::Waiting(ticket) => self.queued.push(ticket),
                Started::Rejected(_) => break,
            }
        }
    }
}

/// Lets users send requests, and a millisecond pass.
fn pass_millisecond(server: &Server, users: &mut [Busy]) {
    users.iter_mut().for_each(|user| user.send(server));
    users.iter_mut().for_each(Busy::notice);
    server.pass(1);
    users.iter_mut().for_each(Busy::finish);
    users.iter_mut().for_each(Busy::notice);
}
