//! Objects from one version to another, and up to date with a schema that has changed.

use std::{
    fmt,
    sync::{Arc, Weak},
    time::Duration,
};

use async_trait::async_trait;
use orlop_api::{
    apply::{ConversionError, TypeRef, VersionConverter},
    group_version::GroupVersionKind,
    schema::{Malformed, Root, apply_defaults, canonicalize, coerce_metadata, prune},
    status::Status,
};
use orlop_crd::{Conversion, Definition, Version, conversion};
use serde_json::Value;
use tokio::runtime::{Handle, RuntimeFlavor};

use crate::{object::new_uid, registry::Convert, storage::ObjectStore, webhook::Webhook};

/// How long a webhook may take.
const TIMEOUT: Duration = Duration::from_secs(30);

/// How objects of a definition get from one version to another.
#[derive(Clone)]
pub(super) enum Way {
    /// Only the name of the version changes.
    Rename,
    /// A webhook is asked.
    Webhook(Arc<Remote>),
}

/// A webhook, and the versions of reviews that it understands.
pub(super) struct Remote {
    webhook: Webhook,
    review_versions: Vec<String>,
    /// Weak: the registry, which owns this, is part of it.
    objects: Weak<ObjectStore>,
}

impl Way {
    pub(super) fn of(definition: &Definition, objects: Weak<ObjectStore>) -> Self {
        match &definition.conversion {
            Conversion::None => Self::Rename,
            Conversion::Webhook(orlop_crd::Webhook { target, ca_bundle, review_versions }) => {
                let webhook = Webhook::new(target.clone(), ca_bundle.clone());
                Self::Webhook(Arc::new(Remote { webhook, review_versions: review_versions.clone(), objects }))
            }
        }
    }

    pub(super) fn only_renames(&self) -> bool {
        matches!(self, Self::Rename)
    }
}

/// Turns stored objects into a version and back.
pub(super) struct Converter {
    served: Arc<Version>,
    stored: Arc<Version>,
    /// Every version there is: an object may have been stored in any.
    versions: Vec<Arc<Version>>,
    way: Way,
}

impl fmt::Debug for Converter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Converter").field("served", &self.served.name).finish_non_exhaustive()
    }
}

impl Converter {
    pub(super) fn new(
        served: Arc<Version>,
        stored: Arc<Version>,
        versions: Vec<Arc<Version>>,
        way: Way,
    ) -> Self {
        Self { served, stored, versions, way }
    }

    fn version(&self, api_version: &str) -> Option<&Arc<Version>> {
        self.versions.iter().find(|version| version.api_version() == api_version)
    }

    async fn bring(&self, mut objects: Vec<Value>, version: &Version) -> Result<Vec<Value>, Status> {
        let wanted = version.api_version();
        let of_others = |object: &Value| conversion::needs_conversion(object, &wanted);
        for object in objects.iter_mut().filter(|object| of_others(object)) {
            let own = object["apiVersion"].as_str().and_then(|api_version| self.version(api_version));
            own.inspect(|own| make_good(object, own));
        }
        match &self.way {
            Way::Rename => objects.iter_mut().for_each(|object| conversion::set_api_version(object, &wanted)),
            Way::Webhook(remote) => {
                let strangers: Vec<usize> =
                    (0..objects.len()).filter(|index| objects.get(*index).is_some_and(of_others)).collect();
                let sent = strangers.iter().filter_map(|index| objects.get(*index).cloned()).collect();
                let converted = remote.convert(version, sent).await?;
                for (index, converted) in strangers.into_iter().zip(converted) {
                    objects[index] = converted;
                }
            }
        }
        objects.iter_mut().for_each(|object| make_good(object, version));
        Ok(objects)
    }
}

#[async_trait]
impl Convert for Converter {
    async fn served(&self, objects: Vec<Value>) -> Result<Vec<Value>, Status> {
        self.bring(objects, &self.served).await
    }

    async fn stored(&self, object: Value) -> Result<Value, Status> {
        let converted = self.bring(vec![object], &self.stored).await?;
        converted.into_iter().next().ok_or_else(|| Status::internal("a conversion lost its object"))
    }

    fn versions(&self) -> Option<&dyn VersionConverter> {
        Some(self)
    }

    fn indexed_as(&self, field: &str) -> Option<String> {
        let same = self.way.only_renames() || self.served.name == self.stored.name;
        let indexed = self.stored.selectable().names().any(|name| name == field);
        (same && indexed).then(|| field.to_owned())
    }
}

impl VersionConverter for Converter {
    fn type_of(&self, api_version: &str) -> Option<TypeRef<'_>> {
        self.version(api_version).map(|version| TypeRef::resource(version.schema()))
    }

    fn convert(&self, object: &Value, api_version: &str) -> Result<Value, ConversionError> {
        let missing = || ConversionError::MissingVersion(api_version.to_owned());
        let version = self.version(api_version).ok_or_else(missing)?;
        let mut object = object.clone();
        if !conversion::needs_conversion(&object, api_version) {
            return Ok(object);
        }
        if let Way::Webhook(remote) = &self.way {
            object = remote.convert_now(version, object)?;
        }
        conversion::set_api_version(&mut object, api_version);
        prune(&mut object, version.schema(), Root::Resource);
        Ok(object)
    }
}

/// Brings an object that was written before up to date with a version's schema, as if it were written now.
/// Nobody is told what that loses.
fn make_good(object: &mut Value, version: &Version) {
    let schema = version.schema();
    // With `Drop` there is nothing to refuse.
    let _ = coerce_metadata(object, schema, Malformed::Drop);
    prune(object, schema, Root::Resource);
    canonicalize(object, schema);
    apply_defaults(object, schema);
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.entry("generation").or_insert_with(|| 1.into());
    }
}

impl Remote {
    /// Objects in a version, in the same order, all in one call.
    async fn convert(&self, version: &Version, objects: Vec<Value>) -> Result<Vec<Value>, Status> {
        let Some(first) = objects.first() else { return Ok(objects) };
        let kind = GroupVersionKind::of(first);
        let store = self.objects.upgrade().ok_or_else(|| Status::internal("the cluster is closed"))?;
        let review = conversion::conversion_request(
            &self.review_versions,
            &new_uid(),
            &version.api_version(),
            objects,
        );
        let review = review.map_err(|why| failed(&kind, &why))?;
        let answer = self.webhook.post(&store, &review, TIMEOUT).await;
        let answer = answer.map_err(|why| failed(&kind, &why))?;
        conversion::objects_of_response(&review, &kind, answer).map_err(|why| Status::plain(&why))
    }
}

impl Remote {
    /// The same for one object, where nothing can be waited for: who owns which fields is worked out at once.
    fn convert_now(&self, version: &Version, object: Value) -> Result<Value, ConversionError> {
        let failed = |why: &str| ConversionError::Failed(why.to_owned());
        let runtime = Handle::current();
        if runtime.runtime_flavor() == RuntimeFlavor::CurrentThread {
            return Err(failed(
                "fields that are owned in another version need a runtime with several threads",
            ));
        }
        let converting = self.convert(version, vec![object]);
        let converted = tokio::task::block_in_place(|| runtime.block_on(converting));
        let converted = converted.map_err(|status| failed(&status.message))?;
        converted.into_iter().next().ok_or_else(|| failed("a conversion lost its object"))
    }
}

fn failed(kind: &GroupVersionKind, why: &str) -> Status {
    let GroupVersionKind { group, version, kind } = kind;
    Status::plain(format!("conversion webhook for {group}/{version}, Kind={kind} failed: {why}"))
}
