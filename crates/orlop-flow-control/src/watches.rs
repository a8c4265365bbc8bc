//! Open watches, counted by what they watch, to estimate the work of writes.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
};

use orlop_auth::request::Attributes;

/// The open watches of a server.
#[derive(Clone, Debug, Default)]
pub struct Watches(Arc<Mutex<Counts>>);

/// Watches by resource, group, namespace and name; an empty namespace or name is all of them. Nested, so that nothing is
/// allocated to look one up.
#[derive(Debug, Default)]
struct Counts(HashMap<String, HashMap<String, Scopes>>);

/// Watches of a resource by namespace and name.
type Scopes = HashMap<String, HashMap<String, usize>>;

/// An open watch; counted until dropped.
#[derive(Debug)]
pub struct Watched {
    watches: Watches,
    resource: String,
    group: String,
    namespace: String,
    name: String,
}

impl Watches {
    /// Counts a watch. `indexed` is the value that it selects of an indexed field, which few events have: such a watch
    /// is not counted.
    pub fn register(&self, attributes: &Attributes, indexed: &str) -> Option<Watched> {
        if !indexed.is_empty() {
            return None;
        }
        let watched = Watched {
            watches: self.clone(),
            resource: attributes.resource.clone(),
            group: attributes.group.clone(),
            namespace: attributes.namespace.clone(),
            name: attributes.name.clone(),
        };
        let mut counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let groups = counts.0.entry(watched.resource.clone()).or_default();
        let namespaces = groups.entry(watched.group.clone()).or_default();
        let names = namespaces.entry(watched.namespace.clone()).or_default();
        *names.entry(watched.name.clone()).or_default() += 1;
        Some(watched)
    }

    /// Returns the number of watches that a write wakes: of all objects, of its namespace's, and of the object itself.
    pub(crate) fn interested_in(&self, attributes: &Attributes) -> usize {
        let counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let groups = counts.0.get(attributes.resource.as_str());
        let Some(namespaces) = groups.and_then(|groups| groups.get(attributes.group.as_str())) else {
            return 0;
        };
        let count = |namespace: &str, name: &str| {
            namespaces.get(namespace).and_then(|names| names.get(name)).copied().unwrap_or(0)
        };
        let (namespace, name) = (attributes.namespace.as_str(), attributes.name.as_str());
        let mut interested = count("", "");
        if !namespace.is_empty() {
            interested += count(namespace, "");
        }
        if !name.is_empty() {
            interested += count(namespace, name);
        }
        interested
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        let mut counts = self.watches.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(groups) = counts.0.get_mut(&self.resource) else { return };
        let Some(namespaces) = groups.get_mut(&self.group) else { return };
        let Some(names) = namespaces.get_mut(&self.namespace) else { return };
        if let Some(count) = names.get_mut(&self.name) {
            *count -= 1;
            if *count == 0 {
                names.remove(&self.name);
            }
        }
        // What nobody watches takes no memory.
        if names.is_empty() {
            namespaces.remove(&self.namespace);
        }
        if namespaces.is_empty() {
            groups.remove(&self.group);
        }
        if groups.is_empty() {
            counts.0.remove(&self.resource);
        }
    }
}

#[cfg(test)]
mod tests {
    use http::Method;
    use orlop_api::query::Query;

    use super::*;

    #[test]
    fn a_write_interests_watches_of_all_its_namespace_and_itself() {
        let watches = Watches::default();
        let of = |path: &str| Attributes::of(&Method::GET, path, &Query::default());
        let open: Vec<_> = [
            "/api/v1/pods",
            "/api/v1/namespaces/a/pods",
            "/api/v1/namespaces/b/pods",
            "/api/v1/namespaces/a/pods/x",
            "/api/v1/nodes",
        ]
        .map(|path| watches.register(&of(path), ""))
        .into();
        assert!(watches.register(&of("/api/v1/pods"), "node-1").is_none());
        assert_eq!(watches.interested_in(&of("/api/v1/namespaces/a/pods/x")), 3);
        assert_eq!(watches.interested_in(&of("/api/v1/namespaces/a/pods")), 2);
        assert_eq!(watches.interested_in(&of("/api/v1/namespaces/c/pods/x")), 1);
        assert_eq!(watches.interested_in(&of("/api/v1/secrets")), 0);
        drop(open);
        assert!(watches.0.lock().unwrap().0.is_empty());
    }
}
