//! The kinds of a cluster, as webhooks and policies see them.

use std::sync::Arc;

use async_trait::async_trait;
use orlop_admission::matching::{Equivalent, ObjectInterfaces};
use orlop_api::{
    group_version::{GroupVersionKind, GroupVersionResource},
    schema::{Schema, builtin, check_types},
    status::Status,
};
use serde_json::Value;

use crate::{
    registry::{self, Kind},
    storage::ObjectStore,
};

/// The kinds of one cluster.
#[derive(Debug)]
pub(crate) struct ClusterInterfaces {
    objects: Arc<ObjectStore>,
}

impl ClusterInterfaces {
    pub(crate) fn new(objects: Arc<ObjectStore>) -> Self {
        Self { objects }
    }

    /// Returns the kind of exactly this version.
    fn kind(&self, gvk: &GroupVersionKind) -> Option<Arc<Kind>> {
        let kinds = self.objects.registry.kinds();
        kinds.serving(gvk).filter(|kind| kind.gvk.version == gvk.version).cloned()
    }

    fn served_kind(&self, gvk: &GroupVersionKind) -> Result<Arc<Kind>, Status> {
        self.kind(gvk).ok_or_else(|| Status::internal(&format!("no kind is known for {gvk}")))
    }
}

#[async_trait]
impl ObjectInterfaces for ClusterInterfaces {
    fn equivalents(&self, resource: &GroupVersionResource, subresource: &str) -> Vec<Equivalent> {
        let kinds = self.objects.registry.kinds();
        let Some(kind) = kinds.get(&resource.group, &resource.version, &resource.resource) else {
            return Vec::new();
        };
        let stored = kind.stored_kind();
        let of_same_objects =
            kinds.iter().filter(|other| other.resource == resource.resource).filter(|other| {
                let other = other.stored_kind();
                other.gvk.group == stored.gvk.group && other.resource == stored.resource
            });
        let equivalent = |kind: &Arc<Kind>| {
            let gvk = match subresource {
                "" => &kind.gvk,
                name => &kind.subresource(name)?.gvk,
            };
            let resource = kind.gvk.group_version().with_resource(&kind.resource);
            Some(Equivalent { resource, kind: gvk.clone() })
        };
        of_same_objects.filter_map(equivalent).collect()
    }

    async fn convert(&self, object: Value, to: &GroupVersionKind) -> Result<Value, Status> {
        let from = GroupVersionKind::of(&object);
        if from == *to {
            return Ok(object);
        }
        let (source, target) = (self.served_kind(&from)?, self.served_kind(to)?);
        source.convert_to(&target, object).await
    }

    fn decode(&self, mut object: Value, kind: &GroupVersionKind) -> Result<Value, String> {
        let found = GroupVersionKind::of(&object);
        if found != *kind {
            return Err(format!(
                "no kind {:?} is registered for version {:?} in scheme \"pkg/api/legacyscheme/scheme.go:30\"",
                found.kind,
                found.api_version()
            ));
        }
        match self.kind(kind) {
            Some(kind) => {
                if !kind.flags.custom {
                    check_types(&object, kind.schema.get()).map_err(|error| error.to_string())?;
                }
                registry::prune(&mut object, kind.schema.get(), kind.flags.custom)
                    .map_err(|error| error.to_string())?;
                kind.set_defaults(&mut object);
            }
            // A kind that only subresources take, such as Scale.
            None => {
                if let Some(entry) = builtin::type_of(&kind.group, &kind.version, &kind.kind) {
                    check_types(&object, entry.schema()).map_err(|error| error.to_string())?;
                }
            }
        }
        Ok(object)
    }

    fn with_schema(&self, kind: &GroupVersionKind, work: &mut dyn FnMut(&Schema)) {
        match self.kind(kind) {
            Some(kind) => work(kind.schema.get()),
            None => {
                if let Some(entry) = builtin::type_of(&kind.group, &kind.version, &kind.kind) {
                    work(entry.schema());
                }
            }
        }
    }
}
