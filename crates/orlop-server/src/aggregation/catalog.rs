//! An immutable set of APIServices.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use orlop_aggregator::{
    ApiService, BackendKey,
    api_service::{GROUP, name_of},
    priorities::Priority,
};
use orlop_auth::pki::Credential;

use super::backend::Backend;

/// A remote APIService and the server behind it.
#[derive(Debug)]
pub(crate) struct Remote {
    pub(crate) service: Arc<ApiService>,
    pub(crate) backend: Arc<Backend>,
}

/// The APIServices of a cluster.
#[derive(Clone, Debug, Default)]
pub(crate) struct Catalog {
    services: BTreeMap<String, Arc<ApiService>>,
    /// Remote ones by `group/version`, as in paths; the core group by the empty string.
    remotes: HashMap<String, Arc<Remote>>,
    /// Servers, which outlive changes of their APIServices.
    backends: HashMap<BackendKey, Arc<Backend>>,
}

impl Catalog {
    /// Returns true if any group version is served by another server.
    pub(crate) fn has_remotes(&self) -> bool {
        !self.remotes.is_empty()
    }

    /// Returns all APIServices by name.
    pub(crate) fn services(&self) -> &BTreeMap<String, Arc<ApiService>> {
        &self.services
    }

    /// Returns the remote ones.
    pub(crate) fn remotes(&self) -> impl Iterator<Item = &Arc<Remote>> {
        self.remotes.values()
    }

    /// Returns the extension API servers.
    pub(crate) fn backends(&self) -> impl Iterator<Item = &Arc<Backend>> {
        self.backends.values()
    }

    /// Returns the server of a group version, if it is another one.
    pub(crate) fn remote(&self, group: &str, version: &str) -> Option<&Arc<Remote>> {
        if self.remotes.is_empty() { None } else { self.remotes.get(&route_key(group, version)) }
    }

    /// Returns the priorities of a group version with an APIService.
    pub(crate) fn priority(&self, group: &str, version: &str) -> Option<Priority> {
        let service = self.services.get(&name_of(group, version))?;
        Some(Priority { group: service.group_priority, version: service.version_priority })
    }

    /// Returns the server that a path belongs to, if it is another one.
    pub(super) fn find(&self, path: &str) -> Option<Arc<Remote>> {
        if let Some(document) = path.strip_prefix("/openapi/v3/apis/") {
            let remote = self.remotes.get(document)?;
            return remote.backend.documents().serves_v3(document).then(|| remote.clone());
        }
        if let Some(rest) = path.strip_prefix("/apis/") {
            let mut slashes = rest.match_indices('/').map(|(index, _)| index);
            slashes.next()?;
            let end = slashes.next().unwrap_or(rest.len());
            return self.remotes.get(rest.get(..end)?).cloned();
        }
        let is_core = path == "/api" || path.starts_with("/api/");
        if is_core { self.remotes.get("").cloned() } else { None }
    }

    // --- changes ---

    pub(super) fn clear(&mut self) {
        self.services.clear();
        self.remotes.clear();
    }

    /// Sets or removes an APIService. A server that is already known is kept, with its connections.
    pub(super) fn set(
        &mut self,
        name: &str,
        service: Option<ApiService>,
        identity: impl FnOnce() -> Option<Credential>,
    ) {
        if let Some(old) = self.services.remove(name) {
            self.remotes.remove(&route_key(&old.group, &old.version));
        }
        let Some(service) = service.map(Arc::new) else { return };
        self.services.insert(name.to_owned(), service.clone());
        let Some(key) = &service.backend else { return };
        // The aggregator's own group is never served by another: nobody could take it back.
        if service.group == GROUP {
            return;
        }
        let known = self.backends.entry(key.clone());
        let backend = known.or_insert_with(|| Arc::new(Backend::new(key.clone(), identity()))).clone();
        let key = route_key(&service.group, &service.version);
        self.remotes.insert(key, Arc::new(Remote { service, backend }));
    }

    /// Forgets servers without an APIService.
    pub(super) fn forget_unused(&mut self) {
        let Self { remotes, backends, .. } = self;
        backends.retain(|key, _| remotes.values().any(|remote| remote.backend.key == *key));
    }
}

/// Returns the part of a path that tells a group version.
fn route_key(group: &str, version: &str) -> String {
    match group {
        "" => String::new(),
        group => format!("{group}/{version}"),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use serde_json::json;

    use super::*;

    fn remote(group: &str, version: &str) -> ApiService {
        let object = json!({"spec": {"group": group, "version": version, "groupPriorityMinimum": 7,
            "versionPriority": 8, "service": {"namespace": "n", "name": "s"}}});
        ApiService::parse(&name_of(group, version), &object)
    }

    #[test]
    fn paths_lead_to_remote_group_versions() {
        let mut catalog = Catalog::default();
        assert!(!catalog.has_remotes());
        catalog.set("v1.a.example", Some(remote("a.example", "v1")), || None);
        let found =
            |catalog: &Catalog, path: &str| catalog.find(path).map(|found| found.service.name.clone());
        for path in ["/apis/a.example/v1", "/apis/a.example/v1/", "/apis/a.example/v1/lamps/x?y=z"] {
            assert_eq!(found(&catalog, path).as_deref(), Some("v1.a.example"), "{path}");
        }
        for path in [
            "/apis/a.example",
            "/apis/a.example/v2",
            "/apis/a.example/v10/lamps",
            "/apis",
            "/api/v1/pods",
            "/openapi/v3/apis/a.example/v1",
        ] {
            assert_eq!(found(&catalog, path), None, "{path}");
        }
        assert_eq!(catalog.priority("a.example", "v1"), Some(Priority { group: 7, version: 8 }));

        let before = catalog.remote("a.example", "v1").unwrap().backend.clone();
        catalog.set("v1.a.example", Some(remote("a.example", "v1")), || None);
        assert!(Arc::ptr_eq(&before, &catalog.remote("a.example", "v1").unwrap().backend));
        catalog.set("v1.", Some(remote("", "v1")), || None);
        assert_eq!(found(&catalog, "/api/v1/pods").as_deref(), Some("v1."));
        catalog.set("v1.apiregistration.k8s.io", Some(remote(GROUP, "v1")), || None);
        assert_eq!(found(&catalog, "/apis/apiregistration.k8s.io/v1/apiservices"), None);

        catalog.set("v1.a.example", None, || None);
        catalog.set("v1.", None, || None);
        catalog.forget_unused();
        assert!(!catalog.has_remotes() && catalog.backends().next().is_none());
    }
}
