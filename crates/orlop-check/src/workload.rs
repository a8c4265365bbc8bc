//! Contending clients, a compactor, and watchers that open, close and resume.

use std::{collections::HashMap, sync::Arc, time::Duration};

use bytes::Bytes;
use orlop_store::{Filter, KeyRange, OpResult, Revision, TxnResult};
use tokio::{
    sync::watch,
    task::JoinSet,
    time::{Instant, sleep, timeout},
};

use crate::{
    Answer, Client, Clock, Entry, Failure, Hint, History, Operation, Outcome, Random, Request,
    RequestGenerator, WatchRecord, WatchSpec, WatchStream,
};

/// Time for watchers to deliver everything once the writers are done.
const TIMEOUT: Duration = Duration::from_secs(30);

/// A random run.
#[derive(Clone, Debug)]
pub struct Workload {
    /// Seed of all requests.
    pub seed: u64,
    /// Number of clients that write and read.
    pub writers: u64,
    /// Operations per client.
    pub operations: u64,
    /// Number of clients that watch.
    pub watchers: u64,
    /// Interval of compactions.
    pub compact_every: Option<Duration>,
    /// Percentage of operations whose caller times out early.
    pub abandoned_percent: u64,
}

impl Workload {
    /// Returns the defaults: a short run.
    pub fn new(seed: u64) -> Self {
        Self {
            seed,
            writers: 6,
            operations: 250,
            watchers: 6,
            compact_every: Some(Duration::from_millis(50)),
            abandoned_percent: 3,
        }
    }

    /// Runs the workload through clients of one empty store.
    pub async fn run(&self, clients: &[Arc<dyn Client>]) -> History {
        let clock = Arc::new(Clock::default());
        let client = |number: u64| clients[number as usize % clients.len()].clone();
        // The newest revision that writers have observed.
        let (newest, seen) = watch::channel(1);
        let (finish, finished) = watch::channel(None);
        let newest = Arc::new(newest);
        let mut writers = JoinSet::new();
        for number in 0..self.writers {
            writers.spawn(write(self.clone(), number, client(number), clock.clone(), newest.clone()));
        }
        let mut watchers = JoinSet::new();
        for number in 0..self.watchers {
            let session = WatchSession {
                client: client(number),
                clock: clock.clone(),
                seen: seen.clone(),
                finished: finished.clone(),
                random: Random::new(&[self.seed, 1_000 + number]),
            };
            watchers.spawn(session.run(self.seed, number));
        }
        let compactor =
            tokio::spawn(compact(self.clone(), client(0), clock.clone(), seen.clone(), finished.clone()));
        let mut history = History::default();
        while let Some(operations) = writers.join_next().await {
            history.operations.extend(operations.unwrap_or_default());
        }
        // Abandoned operations may still be under way.
        for client in clients {
            history.last = history.last.max(barrier(&**client).await);
        }
        finish.send_replace(Some(history.last));
        while let Some(records) = watchers.join_next().await {
            history.watches.extend(records.unwrap_or_default());
        }
        history.operations.extend(compactor.await.unwrap_or_default());
        history
    }
}

/// Returns the newest revision after a barrier through the queue of writes.
async fn barrier(client: &dyn Client) -> Revision {
    loop {
        // An empty transaction changes nothing and waits for everything queued before it.
        if let Ok(result) = client.txn(orlop_store::Txn::default()).await {
            return result.revision;
        }
        sleep(Duration::from_millis(10)).await;
    }
}

async fn write(
    workload: Workload,
    number: u64,
    client: Arc<dyn Client>,
    clock: Arc<Clock>,
    newest: Arc<watch::Sender<Revision>>,
) -> Vec<Operation> {
    let mut random = Random::new(&[workload.seed, 2_000 + number]);
    let mut state = ClientState::default();
    let mut operations = Vec::new();
    for count in 0..workload.operations {
        let generator = RequestGenerator::new(workload.seed, number, count);
        let request = generator.clone().request(state.hint(generator.key()));
        let abandoned = random.percent(workload.abandoned_percent);
        let limit = if abandoned { Duration::from_micros(random.below(800)) } else { TIMEOUT };
        let invoked = clock.tick();
        let outcome = timeout(limit, send(&*client, &request)).await.unwrap_or(Outcome::Unknown);
        let returned = clock.tick();
        state.observe(&request, &outcome);
        newest.send_if_modified(|revision| {
            let moved = *revision < state.newest;
            *revision = state.newest.max(*revision);
            moved
        });
        operations.push(Operation { client: number, invoked, returned, request, outcome });
    }
    operations
}

/// Sends one request.
pub async fn send(client: &dyn Client, request: &Request) -> Outcome {
    let answer: Answer<Outcome> = match request.clone() {
        Request::Txn(txn) => client.txn(txn).await.map(Outcome::Txn),
        Request::Read(read) => client.read(read).await.map(Outcome::Read),
        Request::Compact(revision) => client.compact(revision).await.map(|()| Outcome::Compacted),
    };
    answer.unwrap_or_else(Outcome::from)
}

/// State that one client has observed.
#[derive(Debug, Default)]
pub struct ClientState {
    newest: Revision,
    keys: HashMap<Bytes, Revision>,
}

impl ClientState {
    /// Returns the observed state for a request about a key.
    pub fn hint(&self, key: &Bytes) -> Hint {
        Hint { newest: self.newest, key: self.keys.get(key).copied().unwrap_or(0) }
    }

    /// Updates the state from an outcome.
    pub fn observe(&mut self, request: &Request, outcome: &Outcome) {
        match (request, outcome) {
            (Request::Txn(txn), Outcome::Txn(result)) => {
                self.newest = self.newest.max(result.revision);
                for op in if result.succeeded { &txn.then } else { &txn.otherwise } {
                    if let orlop_store::Op::Put(put) = op {
                        self.keys.insert(put.key.clone(), result.revision);
                    }
                }
                self.observe_reads(result);
            }
            (Request::Read(read), Outcome::Read(result)) => {
                self.newest = self.newest.max(result.revision);
                if read.revision.is_none() {
                    self.keys.extend(result.kvs.iter().map(|kv| (kv.key.clone(), kv.revision)));
                }
            }
            _ => {}
        }
    }

    fn observe_reads(&mut self, result: &TxnResult) {
        for result in &result.results {
            if let OpResult::Read(read) = result {
                self.keys.extend(read.kvs.iter().map(|kv| (kv.key.clone(), kv.revision)));
            }
        }
    }
}

async fn compact(
    workload: Workload,
    client: Arc<dyn Client>,
    clock: Arc<Clock>,
    seen: watch::Receiver<Revision>,
    finished: watch::Receiver<Option<Revision>>,
) -> Vec<Operation> {
    let Some(every) = workload.compact_every else { return Vec::new() };
    let mut random = Random::new(&[workload.seed, 3_000]);
    let mut operations = Vec::new();
    while finished.borrow().is_none() {
        sleep(every).await;
        let revision = *seen.borrow() - random.between(-2, 60);
        if revision < 2 {
            continue;
        }
        let request = Request::Compact(revision);
        let invoked = clock.tick();
        let outcome = send(&*client, &request).await;
        operations.push(Operation { client: 3_000, invoked, returned: clock.tick(), request, outcome });
    }
    operations
}

/// A client that opens one watch after another.
struct WatchSession {
    client: Arc<dyn Client>,
    clock: Arc<Clock>,
    seen: watch::Receiver<Revision>,
    finished: watch::Receiver<Option<Revision>>,
    random: Random,
}

impl WatchSession {
    async fn run(mut self, seed: u64, number: u64) -> Vec<WatchRecord> {
        let mut records = Vec::new();
        let mut count = 0;
        // The first client watches everything from the start, and resumes.
        let mut resume = (number == 0).then_some(1);
        while self.finished.borrow().is_none() || count == 0 {
            let mut spec = RequestGenerator::new(seed, 1_000 + number, count).watch(*self.seen.borrow());
            count += 1;
            if let Some(after) = resume {
                let range = KeyRange::all();
                spec = WatchSpec { range, filter: Filter::everything(), after: Some(after), previous: true };
            }
            let record = self.watch(spec, resume.is_some()).await;
            if number == 0 || self.random.percent(40) {
                resume = Some(resume_position(&record));
            } else {
                resume = None;
            }
            records.push(record);
        }
        records
    }

    /// Opens one watch and reads it, for a while or until the end of the run.
    async fn watch(&mut self, spec: WatchSpec, patient: bool) -> WatchRecord {
        let invoked = self.clock.tick();
        let opened = self.client.watch(spec.clone()).await;
        let opened_at = self.clock.tick();
        let mut record =
            WatchRecord { spec, invoked, opened: opened_at, entries: Vec::new(), drained: false };
        let mut stream = match opened {
            Ok(stream) => stream,
            Err(failure) => {
                record.entries.push((opened_at, Entry::Ended(failure)));
                // Only that the start was compacted is known: retry a little later.
                sleep(Duration::from_millis(2)).await;
                return record;
            }
        };
        let until_end = patient || self.random.percent(25);
        let slow = self.random.percent(25);
        let mut batches = self.random.below(60);
        let mut deadline = None;
        loop {
            let finished = *self.finished.borrow();
            if let Some(last) = finished {
                let deadline = *deadline.get_or_insert_with(|| Instant::now() + TIMEOUT);
                record.drained = resume_position(&record) >= last || Instant::now() > deadline;
                if record.drained {
                    return record;
                }
            } else if !until_end && batches == 0 {
                return record;
            }
            if slow && finished.is_none() {
                sleep(Duration::from_millis(self.random.below(20))).await;
            }
            batches = batches.saturating_sub(1);
            if !self.listen(&mut *stream, &mut record).await {
                return record;
            }
        }
    }

    /// Takes the next batch, or progress when there is none. Returns whether the watch is open.
    async fn listen(&mut self, stream: &mut dyn WatchStream, record: &mut WatchRecord) -> bool {
        let wait = Duration::from_micros(self.random.below(3_000));
        let batch = timeout(wait, stream.next()).await;
        let quiet = batch.is_err();
        let mut failed = None;
        match batch {
            Ok(Ok(batch)) => record.entries.push((self.clock.tick(), Entry::Batch(batch))),
            Ok(Err(failure)) => failed = Some(failure),
            Err(_) => {}
        }
        if failed.is_none() && (quiet || self.random.percent(30)) {
            match stream.progress().await {
                Ok(revision) => record.entries.push((self.clock.tick(), Entry::Progress(revision))),
                Err(failure) => failed = Some(failure),
            }
        }
        let is_open = failed.is_none();
        if let Some(failure) = failed {
            record.entries.push((self.clock.tick(), Entry::Ended(failure)));
        }
        is_open
    }
}

/// Returns the revision to resume a watch after: the last delivered one, or the oldest in history.
fn resume_position(record: &WatchRecord) -> Revision {
    let mut position = record.spec.after.unwrap_or(0);
    for (_, entry) in &record.entries {
        match entry {
            Entry::Batch(batch) => position = position.max(batch.revision),
            Entry::Progress(revision) => position = position.max(*revision),
            Entry::Ended(Failure::Refused(orlop_store::Error::Expired { compacted })) => {
                position = position.max(compacted - 1);
            }
            Entry::Ended(_) => {}
        }
    }
    position
}
