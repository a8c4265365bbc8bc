//! Processes killed at random moments: nothing acknowledged is lost, no revision is reused or missing, and
//! who watches goes on where they were.
//!
//! `ORLOP_KILL_CYCLES` says how often (10 unless told), `ORLOP_SEED` replays what the clients ask.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use std::{
    collections::HashMap,
    io::{BufRead, BufReader},
    process::{Child, ChildStdout, Command, Stdio},
    time::{Duration, Instant},
};

use orlop_check::{
    Client, Clock, Entry, Failure, Hint, History, Operation, Outcome, Random, Request, RequestGenerator,
    WatchRecord, WatchSpec, check, decode_outcome, seed,
};
use orlop_store::{Config, Endpoint, Error, Filter, KeyRange, Op, Put, Read, Revision, Store, Txn};
use orlop_testbed::Cluster;
use tokio::time::timeout;

const TIMEOUT: Duration = Duration::from_secs(30);
/// Limit on the rounds that a slow machine needs beyond the configured ones.
const DEADLINE: Duration = Duration::from_secs(180);
/// Revisions that the killed processes must have committed for the history to be worth checking.
const REVISIONS_MIN: Revision = 20;
const CLIENTS: u64 = 6;

fn cycles() -> u64 {
    std::env::var("ORLOP_KILL_CYCLES").ok().and_then(|text| text.parse().ok()).unwrap_or(10)
}

fn config(endpoint: &str) -> Config {
    let endpoint = Endpoint::parse(endpoint).unwrap();
    Config { retention: None, ring_bytes: 40_000, watcher_queue: 8, ..Config::new(endpoint) }
}

/// A process that writes, and the lines it says.
struct CrashClient {
    process: Child,
    lines: BufReader<ChildStdout>,
}

impl CrashClient {
    fn start(endpoint: &str, seed: u64, round: u64) -> Self {
        let mut process = Command::new(env!("CARGO_BIN_EXE_orlop-crash-client"))
            .args([endpoint, &seed.to_string(), &round.to_string(), &CLIENTS.to_string()])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(process.stdout.take().unwrap());
        Self { process, lines }
    }

    /// Kills it `moment` after its first words, and notes everything it said.
    fn kill_after(mut self, moment: Duration, notes: &mut Notes) {
        let mut line = String::new();
        let mut deadline = None;
        loop {
            line.clear();
            if self.lines.read_line(&mut line).unwrap() == 0 {
                break;
            }
            // A line without an end was cut off: it was never said.
            if let Some(whole) = line.strip_suffix('\n') {
                notes.note(whole);
            }
            let deadline = *deadline.get_or_insert_with(|| Instant::now() + moment);
            if Instant::now() >= deadline {
                // What is left in the pipe is read until it ends.
                let _ = self.process.kill();
            }
        }
        let _ = self.process.kill();
        self.process.wait().unwrap();
        assert!(deadline.is_some(), "the process said nothing");
    }
}

/// Requests and responses of all processes and of the test itself.
struct Notes {
    seed: u64,
    clock: Clock,
    history: History,
    /// Asked and not answered.
    open: HashMap<(u64, u64), (u64, Request)>,
}

impl Notes {
    fn new(seed: u64) -> Self {
        Self { seed, clock: Clock::default(), history: History::default(), open: HashMap::new() }
    }

    fn note(&mut self, line: &str) {
        let moment = self.clock.tick();
        let mut words = line.splitn(4, ' ');
        let kind = words.next().unwrap();
        let mut number = || words.next().unwrap().parse::<u64>().unwrap();
        let id = (number(), number());
        let rest = words.next().unwrap();
        match kind {
            "I" => {
                let (newest, key) = rest.split_once(' ').unwrap();
                let hint = Hint { newest: newest.parse().unwrap(), key: key.parse().unwrap() };
                self.open.insert(id, (moment, RequestGenerator::new(self.seed, id.0, id.1).request(hint)));
            }
            "C" => {
                self.open.insert(id, (moment, Request::Compact(rest.parse().unwrap())));
            }
            "R" => {
                let (invoked, request) = self.open.remove(&id).unwrap();
                let outcome = decode_outcome(rest).unwrap_or_else(|| panic!("{line}"));
                self.add(id.0, invoked, moment, request, outcome);
            }
            _ => panic!("{line}"),
        }
    }

    fn add(&mut self, client: u64, invoked: u64, returned: u64, request: Request, outcome: Outcome) {
        self.history.operations.push(Operation { client, invoked, returned, request, outcome });
    }

    /// Whatever was asked and not answered by a process that is gone is unknown for ever.
    fn close(&mut self) {
        for (id, (invoked, request)) in std::mem::take(&mut self.open) {
            self.add(id.0, invoked, u64::MAX, request, Outcome::Unknown);
        }
    }

    /// Writes once; the revision that made.
    async fn settle(&mut self, store: &Store, round: u64) -> Revision {
        let txn = Txn::of([Op::Put(Put::new("settled", format!("{round}")))]);
        let invoked = self.clock.tick();
        let result = store.txn(txn.clone()).await.unwrap();
        let (revision, returned) = (result.revision, self.clock.tick());
        self.add(9_999_998, invoked, returned, Request::Txn(txn), Outcome::Txn(result));
        revision
    }

    /// Reads everything; the revision it was read at.
    async fn read_all(&mut self, store: &Store) -> Revision {
        let read = Read { count: true, ..Read::new(KeyRange::all()) };
        let invoked = self.clock.tick();
        let result = store.read(read.clone()).await.unwrap();
        let (revision, returned) = (result.revision, self.clock.tick());
        self.add(9_999_999, invoked, returned, Request::Read(read), Outcome::Read(result));
        revision
    }

    /// Watches everything from `after` up to a revision, or to where history has been compacted.
    async fn watch(&mut self, store: &Store, after: Revision, up_to: Revision) -> Revision {
        let range = KeyRange::all();
        let spec = WatchSpec { range, filter: Filter::everything(), after: Some(after), previous: true };
        let invoked = self.clock.tick();
        let opened = Client::watch(store, spec.clone()).await;
        let opened_at = self.clock.tick();
        let mut record =
            WatchRecord { spec, invoked, opened: opened_at, entries: Vec::new(), drained: false };
        let mut position = after;
        let mut ended = None;
        match opened {
            Err(failure) => ended = Some(failure),
            Ok(mut stream) => {
                while position < up_to {
                    match timeout(TIMEOUT, stream.next()).await.expect("an event is missing") {
                        Ok(batch) => {
                            position = batch.revision;
                            record.entries.push((self.clock.tick(), Entry::Batch(batch)));
                        }
                        Err(failure) => {
                            ended = Some(failure);
                            break;
                        }
                    }
                }
            }
        }
        if let Some(failure) = ended {
            let Failure::Refused(Error::Expired { compacted }) = failure else { panic!("{failure:?}") };
            position = position.max(compacted - 1);
            let moment = if record.entries.is_empty() { opened_at } else { self.clock.tick() };
            record.entries.push((moment, Entry::Ended(failure)));
        }
        self.history.watches.push(record);
        position
    }

    fn explain(mut self, last: Revision) {
        self.history.last = last;
        let (operations, unknown) = (&self.history.operations, Outcome::Unknown);
        let lost = operations.iter().filter(|operation| operation.outcome == unknown).count();
        println!("{} operations, {lost} of unknown outcome, {last} revisions", operations.len());
        let model = check(&self.history)
            .unwrap_or_else(|problem| panic!("{problem}\nreplay with ORLOP_SEED={}", self.seed));
        assert_eq!(model.revision(), last);
    }
}

/// Decides how many times to kill the writer: as often as configured, and until enough was committed.
struct Rounds {
    done: u64,
    deadline: Instant,
}

impl Rounds {
    fn new() -> Self {
        Self { done: 0, deadline: Instant::now() + DEADLINE }
    }

    /// Returns the number of the next round, or `None` once `cycles` rounds have run and the killed processes
    /// have committed enough.
    fn next(&mut self, cycles: u64, committed: Revision) -> Option<u64> {
        if self.done >= cycles {
            if committed > REVISIONS_MIN {
                return None;
            }
            assert!(Instant::now() < self.deadline, "only {committed} revisions in {} rounds", self.done);
        }
        self.done += 1;
        Some(self.done - 1)
    }

    /// Returns the time until the kill. It grows once the configured rounds were too short on this machine.
    fn lifetime(&self, random: &mut Random, cycles: u64, micros_max: u64) -> Duration {
        let extra = self.done.saturating_sub(cycles);
        Duration::from_micros(random.below(micros_max) + extra * micros_max)
    }
}

/// Kills a writer again and again; after each time the store is opened and everything looked at.
async fn kill_and_look(endpoint: &str, cycles: u64) {
    let seed = seed();
    let mut random = Random::new(&[seed, 5_000]);
    let mut notes = Notes::new(seed);
    let (mut position, mut last) = (1, 1);
    let mut rounds = Rounds::new();
    // Each round's own write is not one of the killed process's.
    while let Some(round) = rounds.next(cycles, last - 1 - rounds.done as Revision) {
        let crash_client = CrashClient::start(endpoint, seed, round);
        crash_client.kill_after(rounds.lifetime(&mut random, cycles, 150_000), &mut notes);
        notes.close();
        let store = Store::open(config(endpoint)).await.unwrap();
        // On a server, what the dead process sent may still be on its way: a write goes after all of it.
        let revision = notes.settle(&store, round).await.max(notes.read_all(&store).await);
        assert!(revision >= last, "the revision went back from {last} to {revision}");
        last = revision;
        while position < last {
            position = notes.watch(&store, position, last).await;
        }
        store.close().await;
    }
    notes.explain(last);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_process_loses_no_acknowledged_write() {
    let folder = tempfile::tempdir().unwrap();
    kill_and_look(folder.path().join("store.db").to_str().unwrap(), cycles()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_process_loses_no_acknowledged_write_on_postgresql() {
    let cluster = Cluster::shared().unwrap();
    let endpoint = cluster.url(&cluster.create_database().unwrap());
    kill_and_look(&endpoint, cycles().div_ceil(2)).await;
}

/// As above, while another process has the file open and watches it all the time.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_process_does_not_affect_another_on_the_same_file() {
    let folder = tempfile::tempdir().unwrap();
    let endpoint = folder.path().join("store.db").to_str().unwrap().to_owned();
    let seed = seed();
    let mut random = Random::new(&[seed, 6_000]);
    let mut notes = Notes::new(seed);
    let store = Store::open(config(&endpoint)).await.unwrap();
    let (mut position, mut last) = (1, 1);
    let mut rounds = Rounds::new();
    while let Some(round) = rounds.next(cycles(), last - 1) {
        let crash_client = CrashClient::start(&endpoint, seed, round);
        let moment = rounds.lifetime(&mut random, cycles(), 100_000);
        notes = tokio::task::spawn_blocking(move || {
            crash_client.kill_after(moment, &mut notes);
            notes
        })
        .await
        .unwrap();
        notes.close();
        last = notes.read_all(&store).await;
        while position < last {
            position = notes.watch(&store, position, last).await;
        }
    }
    notes.explain(last);
}
