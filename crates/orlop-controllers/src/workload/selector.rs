//! Label selectors.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use orlop_client::core::{Selector, SelectorExt};

/// A selector of objects by their labels.
#[derive(Clone, Debug)]
pub(crate) struct Labels {
    selector: Selector,
}

impl Labels {
    /// Returns the meaning of a selector. `None` for one that selects nothing: an absent or an invalid one.
    pub(crate) fn of(selector: Option<&LabelSelector>) -> Option<Self> {
        let selector = Selector::try_from(selector?.clone()).ok()?;
        Some(Self { selector })
    }

    /// Returns the meaning of a map of labels.
    pub(crate) fn of_map(labels: &BTreeMap<String, String>) -> Self {
        Self { selector: labels.clone().into_iter().collect() }
    }

    /// Returns whether it selects everything.
    pub(crate) fn selects_all(&self) -> bool {
        self.selector.selects_all()
    }

    /// Returns whether it selects labels.
    pub(crate) fn matches(&self, labels: Option<&BTreeMap<String, String>>) -> bool {
        match labels {
            Some(labels) => self.selector.matches(labels),
            None => self.selector.matches(&BTreeMap::new()),
        }
    }

    /// Returns whether it selects an object.
    pub(crate) fn selects<K: orlop_client::Resource>(&self, object: &K) -> bool {
        self.matches(object.meta().labels.as_ref())
    }
}
