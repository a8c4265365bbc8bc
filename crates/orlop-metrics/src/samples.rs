//! The last two scrapes of every node, and the use between them. Pure.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use k8s_openapi::jiff::Timestamp;
use serde_json::{Value, json};

use crate::exposition::{Counters, Scrape};

/// Use of cpu and memory within a window.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Usage {
    cores: f64,
    memory_bytes: f64,
}

impl Usage {
    fn between(before: &Counters, after: &Counters, window: Duration) -> Option<Self> {
        // A counter that falls is one of a new container.
        let cpu = after.cpu_seconds - before.cpu_seconds;
        (cpu >= 0.0 && !window.is_zero())
            .then(|| Self { cores: cpu / window.as_secs_f64(), memory_bytes: after.memory_bytes })
    }

    /// Returns the usage as quantities.
    pub(crate) fn to_json(self) -> Value {
        let cpu = format!("{}n", (self.cores * 1e9) as u64);
        json!({"cpu": cpu, "memory": format!("{}Ki", (self.memory_bytes / 1024.0) as u64)})
    }
}

/// A moment of a node.
#[derive(Clone, Debug)]
struct Moment {
    at: Timestamp,
    scrape: Scrape,
}

/// Metrics of a node or of the containers of a pod.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Measured<T> {
    pub(crate) at: Timestamp,
    pub(crate) window: Duration,
    pub(crate) usage: T,
}

/// Scrapes by node.
#[derive(Debug, Default)]
pub(crate) struct Samples(BTreeMap<String, (Option<Moment>, Moment)>);

impl Samples {
    /// Adds a scrape of a node.
    pub(crate) fn add(&mut self, node: &str, at: Timestamp, scrape: Scrape) {
        let moment = Moment { at, scrape };
        match self.0.get_mut(node) {
            Some((before, last)) => *before = Some(std::mem::replace(last, moment)),
            None => drop(self.0.insert(node.to_owned(), (None, moment))),
        }
    }

    /// Forgets all nodes but some.
    pub(crate) fn retain(&mut self, nodes: &BTreeSet<String>) {
        self.0.retain(|node, _| nodes.contains(node));
    }

    /// Returns the metrics of a node.
    pub(crate) fn node(&self, name: &str) -> Option<Measured<Usage>> {
        let (before, last) = self.0.get(name)?;
        let before = before.as_ref()?;
        let window = window(before, last)?;
        let usage = Usage::between(&before.scrape.node, &last.scrape.node, window)?;
        Some(Measured { at: last.at, window, usage })
    }

    /// Returns the metrics of a pod's containers, by name. `None` unless there are some.
    pub(crate) fn pod(&self, namespace: &str, name: &str) -> Option<Measured<Vec<(String, Usage)>>> {
        self.0.values().find_map(|(before, last)| {
            let before = before.as_ref()?;
            let window = window(before, last)?;
            let first = (namespace.to_owned(), name.to_owned(), String::new());
            let own = last.scrape.containers.range(first..);
            let usage: Vec<(String, Usage)> = own
                .take_while(|((found_namespace, found, _), _)| found_namespace == namespace && found == name)
                .filter_map(|(key, after)| {
                    let usage = Usage::between(before.scrape.containers.get(key)?, after, window)?;
                    Some((key.2.clone(), usage))
                })
                .collect();
            (!usage.is_empty()).then_some(Measured { at: last.at, window, usage })
        })
    }
}

fn window(before: &Moment, last: &Moment) -> Option<Duration> {
    Duration::try_from(last.at.duration_since(before.at)).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scrape(cpu: f64) -> Scrape {
        let counters = Counters { cpu_seconds: cpu, memory_bytes: 4096.0 };
        let key = |pod: &str| ("a".to_owned(), pod.to_owned(), "c".to_owned());
        Scrape { node: counters, containers: [(key("p"), counters), (key("q"), counters)].into() }
    }

    #[test]
    fn usage_is_the_difference_of_two_scrapes() {
        let mut samples = Samples::default();
        let at = |seconds| Timestamp::from_second(seconds).unwrap();
        samples.add("n", at(100), scrape(10.0));
        assert_eq!(samples.node("n"), None);
        samples.add("n", at(110), scrape(15.0));
        let node = samples.node("n").unwrap();
        assert_eq!(node.usage.to_json(), json!({"cpu": "500000000n", "memory": "4Ki"}));
        let pod = samples.pod("a", "p").unwrap();
        assert_eq!((pod.window.as_secs(), pod.usage.len(), pod.at), (10, 1, at(110)));
        assert_eq!(samples.pod("a", "other"), None);
        // A container that has begun again has no usage until the next.
        samples.add("n", at(120), scrape(1.0));
        assert_eq!((samples.node("n"), samples.pod("a", "p")), (None, None));
        samples.retain(&BTreeSet::new());
        assert_eq!(samples.node("n"), None);
    }
}
