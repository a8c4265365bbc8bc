//! client-go's event correlation: a burst limit of each object, aggregation of similar events, and repetitions
//! that raise a count. Pure.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};

use k8s_openapi::jiff::{SignedDuration, Timestamp};

use super::Record;

/// Events about one object before its rate is limited.
const BURST: f64 = 25.0;
/// Time in which one more event about an object becomes possible.
const REFILL_S: f64 = 300.0;
/// Different messages of otherwise equal events before they are aggregated.
const SIMILAR_MAX: usize = 10;
/// Time that similar events are counted for.
const SIMILAR_WINDOW: SignedDuration = SignedDuration::from_mins(10);
/// Entries that are remembered of each sort.
const ENTRIES_MAX: usize = 4096;

/// Identity of an event for counting repetitions.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct EventKey {
    object: String,
    warning: bool,
    reason: Cow<'static, str>,
    /// Empty for an aggregate.
    message: String,
}

/// Treatment of an occurrence.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// Too many about this object.
    Drop,
    /// The first of its kind.
    Create { name: String, message: String, key: EventKey },
    /// One more of an event that exists.
    Repeat { name: String, message: String, count: i32, key: EventKey },
}

#[derive(Debug, Default)]
pub(super) struct Correlator {
    /// Tokens left of each object, and when that was computed.
    tokens: HashMap<String, (f64, Timestamp)>,
    similar: HashMap<EventKey, (HashSet<String>, Timestamp)>,
    written: HashMap<EventKey, (String, i32)>,
}

impl Correlator {
    pub(super) fn correlate(&mut self, record: &Record) -> Outcome {
        let object = record.regarding.uid.clone().filter(|uid| !uid.is_empty()).unwrap_or_else(|| {
            let name = record.regarding.name.as_deref().unwrap_or_default();
            format!("{}/{name}", record.regarding.namespace.as_deref().unwrap_or_default())
        });
        if !self.take_token(&object, record.at) {
            return Outcome::Drop;
        }
        let aggregate = EventKey {
            object,
            warning: record.warning,
            reason: record.reason.clone(),
            message: String::new(),
        };
        let (message, key) = if self.is_aggregated(&aggregate, &record.message, record.at) {
            (format!("(combined from similar events): {}", record.message), aggregate)
        } else {
            (record.message.clone(), EventKey { message: record.message.clone(), ..aggregate })
        };
        if let Some((name, count)) = self.written.get_mut(&key) {
            *count = count.saturating_add(1);
            return Outcome::Repeat { name: name.clone(), message, count: *count, key };
        }
        let prefix = record.regarding.name.as_deref().unwrap_or("event");
        let name = format!("{prefix}.{:x}", record.at.as_nanosecond());
        bound(&mut self.written);
        self.written.insert(key.clone(), (name.clone(), 1));
        Outcome::Create { name, message, key }
    }

    /// Forgets an event that does not exist.
    pub(super) fn forget(&mut self, key: &EventKey) {
        self.written.remove(key);
    }

    fn take_token(&mut self, object: &str, now: Timestamp) -> bool {
        bound(&mut self.tokens);
        let (tokens, at) = self.tokens.entry(object.to_owned()).or_insert((BURST, now));
        let elapsed = now.duration_since(*at).as_secs_f64().max(0.0);
        *tokens = (*tokens + elapsed / REFILL_S).min(BURST);
        *at = now;
        let allowed = *tokens >= 1.0;
        if allowed {
            *tokens -= 1.0;
        }
        allowed
    }

    fn is_aggregated(&mut self, key: &EventKey, message: &str, now: Timestamp) -> bool {
        bound(&mut self.similar);
        let (messages, at) = self.similar.entry(key.clone()).or_insert_with(|| (HashSet::new(), now));
        if now.duration_since(*at) > SIMILAR_WINDOW {
            messages.clear();
        }
        *at = now;
        if messages.len() < SIMILAR_MAX {
            messages.insert(message.to_owned());
        }
        messages.len() >= SIMILAR_MAX
    }
}

/// Empties a map that is full: what follows counts anew, which is better than growing.
fn bound<K, V>(map: &mut HashMap<K, V>) {
    if map.len() >= ENTRIES_MAX {
        map.clear();
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::ObjectReference;

    use super::*;

    fn record(message: &str, at_s: i64) -> Record {
        let regarding =
            ObjectReference { name: Some("web".into()), uid: Some("1".into()), ..ObjectReference::default() };
        let at = Timestamp::from_second(1_000_000 + at_s).unwrap();
        Record {
            regarding,
            warning: false,
            reason: "Created".into(),
            action: "",
            message: message.to_owned(),
            at,
        }
    }

    #[test]
    fn equal_events_are_counted() {
        let mut correlator = Correlator::default();
        let Outcome::Create { name, key, .. } = correlator.correlate(&record("a", 0)) else { panic!() };
        match correlator.correlate(&record("a", 1)) {
            Outcome::Repeat { name: again, count: 2, .. } => assert_eq!(again, name),
            other => panic!("{other:?}"),
        }
        correlator.forget(&key);
        assert!(matches!(correlator.correlate(&record("a", 2)), Outcome::Create { .. }));
    }

    #[test]
    fn similar_events_are_combined_and_bursts_end() {
        let mut correlator = Correlator::default();
        let outcomes: Vec<Outcome> =
            (0..40).map(|number| correlator.correlate(&record(&format!("pod {number}"), 0))).collect();
        let created = outcomes.iter().filter(|outcome| matches!(outcome, Outcome::Create { .. })).count();
        let dropped = outcomes.iter().filter(|outcome| **outcome == Outcome::Drop).count();
        assert_eq!((created, dropped), (10, 15));
        assert!(outcomes.iter().any(|outcome| matches!(outcome, Outcome::Repeat { message, .. }
            if message == "(combined from similar events): pod 20")));
        assert_ne!(correlator.correlate(&record("pod 41", 301)), Outcome::Drop, "a token came back");
    }
}
