//! A work queue as client-go's: it coalesces equal items, never runs one item twice at a time, and retries
//! each failed item with an exponential back-off of its own.

use std::{
    collections::{BTreeMap, HashMap, HashSet, VecDeque},
    fmt::{Debug, Display},
    future::Future,
    hash::Hash,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::{sync::Notify, task::JoinSet, time::Instant};

use super::metrics::ControllerMetrics;
use crate::backoff;

/// Outcome of a successful reconciliation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Nothing is left to do until the item is added again.
    Done,
    /// The item waits for something that no watch reports: requeue it with back-off.
    Requeue,
    /// The item is due again after this time.
    After(Duration),
}

impl Action {
    /// Returns the action that is due earlier.
    #[must_use]
    pub fn sooner(self, other: Self) -> Self {
        match (self, other) {
            (Self::Requeue, _) | (_, Self::Requeue) => Self::Requeue,
            (Self::After(one), Self::After(other)) => Self::After(one.min(other)),
            (Self::Done, other) => other,
            (after, Self::Done) => after,
        }
    }
}

/// Items to reconcile. `T` is a key, such as a namespace's name.
#[derive(Debug)]
pub struct WorkQueue<T> {
    state: Mutex<State<T>>,
    changed: Notify,
    metrics: ControllerMetrics,
}

#[derive(Debug)]
struct State<T> {
    /// Items to process now, in order, with the time they were added.
    ready: VecDeque<(T, Instant)>,
    /// Items in `ready`, and items that were added while they are processed.
    dirty: HashSet<T>,
    processing: HashSet<T>,
    /// Items in back-off, by the time they are due. The number tells items of the same time apart.
    delayed: BTreeMap<(Instant, u64), T>,
    /// Entry of each item in `delayed`.
    due: HashMap<T, Due>,
    next_number: u64,
    /// Consecutive failures of each item.
    failures: HashMap<T, u32>,
}

/// Entry of an item in the delayed ones.
#[derive(Clone, Copy, Debug)]
struct Due {
    key: (Instant, u64),
    source: DelaySource,
}

/// Origin of a delay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum DelaySource {
    /// `add_after`: something happens to the item at that time.
    Added,
    /// The outcome of a reconciliation, which the next outcome supersedes: an item that is added during its
    /// back-off must not come back at the shorter delay of the failure before.
    Outcome,
}

impl<T: Clone + Debug + Eq + Hash + Send + 'static> WorkQueue<T> {
    pub(super) fn new(metrics: ControllerMetrics) -> Self {
        let state = State {
            ready: VecDeque::new(),
            dirty: HashSet::new(),
            processing: HashSet::new(),
            delayed: BTreeMap::new(),
            due: HashMap::new(),
            next_number: 0,
            failures: HashMap::new(),
        };
        Self { state: Mutex::new(state), changed: Notify::new(), metrics }
    }

    /// Adds an item, unless it is queued already. One that is being processed is processed again afterwards.
    pub fn add(&self, item: T) {
        self.metrics.added();
        self.enqueue(&mut self.lock(), item);
    }

    /// Adds an item after a time, unless it is due earlier already.
    pub fn add_after(&self, item: T, delay: Duration) {
        self.metrics.added();
        let mut state = self.lock();
        Self::delay(&mut state, item, delay, DelaySource::Added);
        drop(state);
        self.changed.notify_one();
    }

    /// Runs `reconcile` for every item, at most `concurrency` at a time, for ever. A failure, or a panic,
    /// requeues the item with back-off.
    pub async fn run<F, E>(self: &Arc<Self>, concurrency: usize, reconcile: impl Fn(T) -> F)
    where
        F: Future<Output = Result<Action, E>> + Send + 'static,
        E: Display + Send + 'static,
    {
        let mut tasks = JoinSet::new();
        loop {
            tokio::select! {
                item = self.next(), if tasks.len() < concurrency => {
                    let work = reconcile(item.clone());
                    let processing = Processing { queue: self.clone(), item, started: Instant::now(), action: Action::Requeue };
                    tasks.spawn(processing.finish(work));
                }
                Some(ended) = tasks.join_next() => if let Err(error) = ended && error.is_panic() {
                    tracing::error!(%error, "a controller panicked; its item is requeued");
                },
            }
        }
    }

    /// Takes the next item that is due.
    async fn next(&self) -> T {
        loop {
            let due = {
                let mut state = self.lock();
                self.enqueue_due(&mut state);
                if let Some((item, added)) = state.ready.pop_front() {
                    state.dirty.remove(&item);
                    state.processing.insert(item.clone());
                    self.metrics.set_depth(state.ready.len());
                    self.metrics.started(added.elapsed());
                    return item;
                }
                state.delayed.keys().next().map(|(due, _)| *due)
            };
            match due {
                None => self.changed.notified().await,
                Some(due) => {
                    let _ = tokio::time::timeout_at(due, self.changed.notified()).await;
                }
            }
        }
    }

    fn enqueue_due(&self, state: &mut State<T>) {
        let now = Instant::now();
        while let Some(entry) = state.delayed.first_entry()
            && entry.key().0 <= now
        {
            let item = entry.remove();
            state.due.remove(&item);
            self.enqueue(state, item);
        }
    }

    fn enqueue(&self, state: &mut State<T>, item: T) {
        if !state.dirty.insert(item.clone()) || state.processing.contains(&item) {
            return;
        }
        state.ready.push_back((item, Instant::now()));
        self.metrics.set_depth(state.ready.len());
        self.changed.notify_one();
    }

    /// Delays an item. The earliest time counts, except that an outcome supersedes the one before.
    fn delay(state: &mut State<T>, item: T, delay: Duration, source: DelaySource) {
        let key = (Instant::now() + delay, state.next_number);
        if let Some(pending) = state.due.get(&item) {
            let superseded = pending.source == DelaySource::Outcome && source == DelaySource::Outcome;
            if pending.key <= key && !superseded {
                return;
            }
            state.delayed.remove(&pending.key);
        }
        state.next_number += 1;
        state.due.insert(item.clone(), Due { key, source });
        state.delayed.insert(key, item);
    }

    /// Ends the processing of an item: requeues it if it was added meanwhile, or later if `action` says so.
    fn done(&self, item: &T, action: Action) {
        let mut state = self.lock();
        state.processing.remove(item);
        match action {
            Action::Requeue => {
                let failures = state.failures.entry(item.clone()).or_default();
                let delay = backoff::delay(*failures);
                *failures = failures.saturating_add(1);
                self.metrics.retried();
                Self::delay(&mut state, item.clone(), delay, DelaySource::Outcome);
            }
            Action::After(delay) => {
                state.failures.remove(item);
                Self::delay(&mut state, item.clone(), delay, DelaySource::Outcome);
            }
            Action::Done => drop(state.failures.remove(item)),
        }
        if state.dirty.remove(item) {
            self.enqueue(&mut state, item.clone());
        }
        drop(state);
        self.changed.notify_one();
    }

    fn lock(&self) -> MutexGuard<'_, State<T>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// An item that is being processed. Dropped before it is finished, as in a panic, it counts as failed.
struct Processing<T: Clone + Debug + Eq + Hash + Send + 'static> {
    queue: Arc<WorkQueue<T>>,
    item: T,
    started: Instant,
    action: Action,
}

impl<T: Clone + Debug + Eq + Hash + Send + 'static> Processing<T> {
    async fn finish<E: Display>(mut self, work: impl Future<Output = Result<Action, E>>) {
        match work.await {
            Ok(action) => self.action = action,
            Err(error) => {
                self.queue.metrics.failed();
                tracing::debug!(%error, item = ?self.item, "reconciliation failed; requeued with back-off");
            }
        }
    }
}

impl<T: Clone + Debug + Eq + Hash + Send + 'static> Drop for Processing<T> {
    fn drop(&mut self) {
        self.queue.metrics.finished(self.started.elapsed());
        self.queue.done(&self.item, self.action);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;
    use crate::runtime::Metrics;

    fn queue() -> Arc<WorkQueue<&'static str>> {
        Arc::new(WorkQueue::new(Metrics::default().of("test-controller")))
    }

    /// Runs the queue until `enough` of what `reconcile` records.
    async fn run_until<F>(
        queue: &Arc<WorkQueue<&'static str>>,
        enough: impl Fn() -> bool,
        reconcile: impl Fn(&'static str) -> F,
    ) where
        F: Future<Output = Result<Action, String>> + Send + 'static,
    {
        let watch = async {
            while !enough() {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        let deadline = Duration::from_secs(600);
        tokio::select! {
            () = queue.run(4, reconcile) => {}
            done = tokio::time::timeout(deadline, watch) => done.expect("enough happens in time"),
        }
    }

    #[tokio::test(start_paused = true)]
    async fn failing_item_backs_off_and_delays_no_other() {
        let queue = queue();
        queue.add("bad");
        let (bad, good) = (Arc::new(Mutex::new(Vec::new())), Arc::new(AtomicUsize::new(0)));
        let (tries, count) = (bad.clone(), good.clone());
        let other = queue.clone();
        let enough = || {
            // Others keep coming while one fails.
            other.add("good");
            bad.lock().unwrap().len() >= 6
        };
        let began = Instant::now();
        run_until(&queue, enough, move |item| {
            let (tries, count) = (tries.clone(), count.clone());
            async move {
                if item == "good" {
                    count.fetch_add(1, Ordering::Relaxed);
                    return Ok(Action::Done);
                }
                tries.lock().unwrap().push(began.elapsed());
                Err("it does not work".to_owned())
            }
        })
        .await;
        let tries = bad.lock().unwrap().clone();
        let gaps: Vec<_> = tries.windows(2).map(|pair| pair[1] - pair[0]).collect();
        assert!(
            gaps.windows(2).all(|pair| pair[1] > pair[0] * 3 / 2),
            "each delay is about twice the last: {gaps:?}"
        );
        assert!(good.load(Ordering::Relaxed) > 100, "{good:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn back_off_is_bounded_and_reset_by_success() {
        let queue = queue();
        for _ in 0..40 {
            queue.done(&"item", Action::Requeue);
        }
        let (due, _) = *queue.lock().delayed.keys().last().unwrap();
        assert!(due <= Instant::now() + backoff::DELAY_MAX);
        queue.done(&"item", Action::Done);
        assert!(queue.lock().failures.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn items_coalesce_and_one_added_during_its_processing_runs_again() {
        let queue = queue();
        for _ in 0..3 {
            queue.add("item");
        }
        assert_eq!(queue.lock().ready.len(), 1);
        let (runs, running) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let (count, at_once, again) = (runs.clone(), running.clone(), queue.clone());
        run_until(
            &queue,
            || runs.load(Ordering::Relaxed) == 2,
            move |item| {
                let (count, at_once, again) = (count.clone(), at_once.clone(), again.clone());
                async move {
                    assert_eq!(
                        at_once.fetch_add(1, Ordering::Relaxed),
                        0,
                        "one item never runs twice at a time"
                    );
                    if count.load(Ordering::Relaxed) == 0 {
                        again.add(item);
                        again.add(item);
                        tokio::time::sleep(Duration::from_secs(1)).await;
                    }
                    at_once.fetch_sub(1, Ordering::Relaxed);
                    count.fetch_add(1, Ordering::Relaxed);
                    Ok(Action::Done)
                }
            },
        )
        .await;
        assert_eq!(runs.load(Ordering::Relaxed), 2);
        assert!(queue.lock().ready.is_empty() && queue.lock().dirty.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn item_whose_reconciliation_panics_is_requeued() {
        let queue = queue();
        queue.add("item");
        let runs = Arc::new(AtomicUsize::new(0));
        let count = runs.clone();
        run_until(
            &queue,
            || runs.load(Ordering::Relaxed) == 2,
            move |_| {
                let count = count.clone();
                async move {
                    if count.fetch_add(1, Ordering::Relaxed) == 0 {
                        panic!("on purpose");
                    }
                    Ok(Action::Done)
                }
            },
        )
        .await;
    }

    #[tokio::test(start_paused = true)]
    async fn earliest_of_several_delays_counts() {
        let queue = queue();
        let began = Instant::now();
        for delay in [600, 5, 60] {
            queue.add_after("item", Duration::from_secs(delay));
        }
        assert_eq!(queue.lock().delayed.len(), 1);
        let runs = Arc::new(Mutex::new(Vec::new()));
        let times = runs.clone();
        run_until(
            &queue,
            || runs.lock().unwrap().len() == 2,
            move |_| {
                times.lock().unwrap().push(began.elapsed().as_secs());
                async { Ok(Action::After(Duration::from_secs(7))) }
            },
        )
        .await;
        assert_eq!(*runs.lock().unwrap(), [5, 12]);
    }

    /// An item that was added during its back-off came back at the delay of the failure before.
    #[tokio::test(start_paused = true)]
    async fn outcome_supersedes_the_delay_of_the_outcome_before() {
        let queue = queue();
        queue.add("item");
        let began = Instant::now();
        let runs = Arc::new(Mutex::new(Vec::new()));
        let (times, again) = (runs.clone(), queue.clone());
        run_until(
            &queue,
            || runs.lock().unwrap().len() == 3,
            move |item| {
                let mut times = times.lock().unwrap();
                times.push(began.elapsed().as_secs());
                let first = times.len() == 1;
                if first {
                    again.add(item);
                }
                async move { Ok(Action::After(Duration::from_secs(if first { 100 } else { 200 }))) }
            },
        )
        .await;
        assert_eq!(*runs.lock().unwrap(), [0, 0, 200]);
    }

    #[tokio::test(start_paused = true)]
    async fn time_that_was_added_outlasts_a_longer_outcome() {
        let queue = queue();
        queue.add("item");
        let began = Instant::now();
        let runs = Arc::new(Mutex::new(Vec::new()));
        let (times, again) = (runs.clone(), queue.clone());
        run_until(
            &queue,
            || runs.lock().unwrap().len() == 2,
            move |item| {
                times.lock().unwrap().push(began.elapsed().as_secs());
                again.add_after(item, Duration::from_secs(10));
                async { Ok(Action::After(Duration::from_secs(200))) }
            },
        )
        .await;
        assert_eq!(*runs.lock().unwrap(), [0, 10]);
    }

    #[tokio::test(start_paused = true)]
    async fn requeue_is_a_retry_without_an_error() {
        let queue = queue();
        queue.add("item");
        let runs = Arc::new(AtomicUsize::new(0));
        let count = runs.clone();
        run_until(
            &queue,
            || runs.load(Ordering::Relaxed) == 3,
            move |_| {
                let last = count.fetch_add(1, Ordering::Relaxed) == 2;
                async move { Ok(if last { Action::Done } else { Action::Requeue }) }
            },
        )
        .await;
        assert!(queue.lock().delayed.is_empty());
    }
}
