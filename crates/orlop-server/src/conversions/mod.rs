//! Built-in kinds that are another's objects in another form.

mod autoscaler;
mod event;

use std::sync::Arc;

use crate::registry::Convert;

/// Another kind's objects: whose, and how they are converted.
pub(crate) struct Translation {
    /// The group and version of the kind that stores them; its plural name is the same.
    pub(crate) stored: (&'static str, &'static str),
    /// How they are converted.
    pub(crate) convert: Arc<dyn Convert>,
}

/// How a built-in kind is kept, where it is another's.
pub(crate) fn translation(group: &str, version: &str, plural: &str) -> Option<Translation> {
    match (group, version, plural) {
        ("autoscaling", "v1", "horizontalpodautoscalers") => {
            Some(Translation { stored: ("autoscaling", "v2"), convert: Arc::new(autoscaler::FirstVersion) })
        }
        ("events.k8s.io", "v1", "events") => {
            Some(Translation { stored: ("", "v1"), convert: Arc::new(event::NewApi) })
        }
        _ => None,
    }
}
