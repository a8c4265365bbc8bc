//! Pods that wait to be scheduled, by priority and then arrival. Pure.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, HashMap},
};

use tokio::time::{Duration, Instant};

use crate::runtime::Key;

/// Shortest pause after a failed attempt.
const BACKOFF_MIN: Duration = Duration::from_secs(1);
/// Longest pause after failed attempts.
const BACKOFF_MAX: Duration = Duration::from_secs(10);
/// Time after which a pod is tried again although nothing seems to have changed.
const UNSCHEDULABLE_MAX: Duration = Duration::from_secs(300);

/// A place in the queue: higher priorities first, then earlier arrivals.
type Place = (Reverse<i32>, u64);

/// State of a pod that waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// To be tried now.
    Active(Place),
    /// To be tried at a time.
    Backoff(Instant, u64),
    /// To be tried when the cluster changes.
    Unschedulable(Instant),
    /// Being tried. `true` if the cluster has changed since.
    InFlight(bool),
}

#[derive(Debug)]
struct Entry {
    priority: i32,
    attempts: u32,
    /// Time of the last failure.
    failed: Option<Instant>,
    state: State,
}

/// Pods that wait to be scheduled.
#[derive(Debug, Default)]
pub(super) struct Queue {
    entries: HashMap<Key, Entry>,
    active: BTreeMap<Place, Key>,
    backoff: BTreeMap<(Instant, u64), Key>,
    next: u64,
}

impl Queue {
    /// Adds a pod, or tries one that has changed again.
    pub(super) fn add(&mut self, key: Key, priority: i32) {
        match self.entries.get_mut(&key) {
            None => {
                let entry = Entry { priority, attempts: 0, failed: None, state: State::InFlight(false) };
                self.entries.insert(key.clone(), entry);
                self.activate(&key);
            }
            Some(entry) => {
                entry.priority = priority;
                match &mut entry.state {
                    State::InFlight(changed) => *changed = true,
                    State::Unschedulable(_) => self.retry(&key, Instant::now()),
                    State::Active(_) | State::Backoff(..) => {}
                }
            }
        }
    }

    /// Removes a pod that is bound or gone.
    pub(super) fn remove(&mut self, key: &Key) {
        if let Some(entry) = self.entries.remove(key) {
            match entry.state {
                State::Active(place) => drop(self.active.remove(&place)),
                State::Backoff(due, number) => drop(self.backoff.remove(&(due, number))),
                State::Unschedulable(_) | State::InFlight(_) => {}
            }
        }
    }

    /// Takes the next pod to try.
    pub(super) fn pop(&mut self, now: Instant) -> Option<Key> {
        while let Some(entry) = self.backoff.first_entry().filter(|entry| entry.key().0 <= now) {
            let key = entry.remove();
            self.activate(&key);
        }
        let late: Vec<Key> = self
            .entries
            .iter()
            .filter(|(_, entry)| {
                matches!(entry.state, State::Unschedulable(since) if now >= since + UNSCHEDULABLE_MAX)
            })
            .map(|(key, _)| key.clone())
            .collect();
        late.iter().for_each(|key| self.activate(key));
        let (_, key) = self.active.pop_first()?;
        if let Some(entry) = self.entries.get_mut(&key) {
            entry.attempts = entry.attempts.saturating_add(1);
            entry.state = State::InFlight(false);
        }
        Some(key)
    }

    /// Returns when the next pod is due without a change of the cluster.
    pub(super) fn due(&self) -> Option<Instant> {
        let backoff = self.backoff.keys().next().map(|(due, _)| *due);
        let unschedulable = self.entries.values().filter_map(|entry| match entry.state {
            State::Unschedulable(since) => Some(since + UNSCHEDULABLE_MAX),
            _ => None,
        });
        backoff.into_iter().chain(unschedulable).min()
    }

    /// Puts a pod back that no node can run now.
    pub(super) fn unschedulable(&mut self, key: &Key, now: Instant) {
        let Some(entry) = self.entries.get_mut(key) else { return };
        entry.failed = Some(now);
        match entry.state {
            // The cluster has changed meanwhile: what was decided may be wrong.
            State::InFlight(true) => self.retry(key, now),
            _ => entry.state = State::Unschedulable(now),
        }
    }

    /// Puts a pod back whose attempt failed for another reason.
    pub(super) fn failed(&mut self, key: &Key, now: Instant) {
        if let Some(entry) = self.entries.get_mut(key) {
            entry.failed = Some(now);
            self.retry(key, now);
        }
    }

    /// Tries all pods again that no node could run: the cluster has changed.
    pub(super) fn wake(&mut self, now: Instant) {
        let waiting: Vec<Key> = self
            .entries
            .iter_mut()
            .filter_map(|(key, entry)| match &mut entry.state {
                State::InFlight(changed) => {
                    *changed = true;
                    None
                }
                State::Unschedulable(_) => Some(key.clone()),
                _ => None,
            })
            .collect();
        waiting.iter().for_each(|key| self.retry(key, now));
    }

    /// Activates a pod once its back-off is over.
    fn retry(&mut self, key: &Key, now: Instant) {
        let Some(entry) = self.entries.get_mut(key) else { return };
        let pause = BACKOFF_MIN.saturating_mul(1 << entry.attempts.saturating_sub(1).min(8)).min(BACKOFF_MAX);
        let due = entry.failed.map_or(now, |failed| failed + pause);
        if due <= now {
            self.activate(key);
            return;
        }
        self.next += 1;
        entry.state = State::Backoff(due, self.next);
        self.backoff.insert((due, self.next), key.clone());
    }

    fn activate(&mut self, key: &Key) {
        let Some(entry) = self.entries.get_mut(key) else { return };
        self.next += 1;
        let place = (Reverse(entry.priority), self.next);
        entry.state = State::Active(place);
        self.active.insert(place, key.clone());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(name: &str) -> Key {
        Key::new("default", name)
    }

    #[test]
    fn priority_comes_before_arrival() {
        let mut queue = Queue::default();
        let now = Instant::now();
        queue.add(key("a"), 0);
        queue.add(key("b"), 10);
        queue.add(key("c"), 0);
        let order: Vec<_> = std::iter::from_fn(|| queue.pop(now)).map(|key| key.name).collect();
        assert_eq!(order, ["b", "a", "c"]);
    }

    #[test]
    fn unschedulable_pod_waits_for_a_change_and_its_back_off() {
        let mut queue = Queue::default();
        let now = Instant::now();
        queue.add(key("a"), 0);
        assert_eq!(queue.pop(now), Some(key("a")));
        queue.unschedulable(&key("a"), now);
        assert_eq!(queue.pop(now + Duration::from_secs(200)), None);
        queue.wake(now);
        assert_eq!(queue.pop(now), None);
        assert_eq!(queue.due(), Some(now + Duration::from_secs(1)));
        assert_eq!(queue.pop(now + Duration::from_secs(1)), Some(key("a")));
        queue.wake(now);
        queue.unschedulable(&key("a"), now);
        assert!(queue.pop(now + Duration::from_secs(2)).is_some(), "the change came during the attempt");
        queue.unschedulable(&key("a"), now);
        assert!(queue.pop(now + UNSCHEDULABLE_MAX).is_some(), "at the latest after five minutes");
        queue.remove(&key("a"));
        assert_eq!(queue.due(), None);
    }
}
