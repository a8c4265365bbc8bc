//! Conversion of custom resources between versions, and to a changed schema.

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

use crate::{
    object::new_uid,
    registry::Convert,
    storage::ObjectStore,
    webhook::{CONVERSION_BYTES_MAX, Webhook},
};

/// Timeout of a webhook.
const WEBHOOK_TIMEOUT: Duration = Duration::from_secs(30);

/// Conversion strategy of a definition.
#[derive(Clone)]
pub(super) enum ConversionStrategy {
    /// Only apiVersion changes.
    Rename,
    /// A webhook converts.
    Webhook(Arc<ConversionWebhook>),
}

/// A conversion webhook, and the ConversionReview versions that it understands.
pub(super) struct ConversionWebhook {
    webhook: Webhook,
    review_versions: Vec<String>,
    /// Weak: the registry, which owns this, is part of it.
    objects: Weak<ObjectStore>,
}

impl ConversionStrategy {
    pub(super) fn of(definition: &Definition, objects: Weak<ObjectStore>) -> Self {
        match &definition.conversion {
            Conversion::None => Self::Rename,
            Conversion::Webhook(orlop_crd::Webhook { target, ca_bundle, review_versions }) => {
                let webhook = Webhook::new(target.clone(), ca_bundle.clone(), CONVERSION_BYTES_MAX);
                Self::Webhook(Arc::new(ConversionWebhook {
                    webhook,
                    review_versions: review_versions.clone(),
                    objects,
                }))
            }
        }
    }

    pub(super) fn only_renames(&self) -> bool {
        matches!(self, Self::Rename)
    }
}

/// Converts stored objects to a version and back.
pub(super) struct Converter {
    served: Arc<Version>,
    stored: Arc<Version>,
    /// All versions: an object may be stored in any.
    versions: Vec<Arc<Version>>,
    strategy: ConversionStrategy,
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
        strategy: ConversionStrategy,
    ) -> Self {
        Self { served, stored, versions, strategy }
    }

    fn version(&self, api_version: &str) -> Option<&Arc<Version>> {
        self.versions.iter().find(|version| version.api_version() == api_version)
    }

    /// Converts objects to a version. They get the defaults of the version that they are in, not of the wanted one.
    async fn convert_to(&self, mut objects: Vec<Value>, version: &Version) -> Result<Vec<Value>, Status> {
        let wanted = version.api_version();
        let needs_conversion = |object: &Value| conversion::needs_conversion(object, &wanted);
        for object in &mut objects {
            let own = object["apiVersion"].as_str().and_then(|api_version| self.version(api_version));
            own.inspect(|own| {
                restrict_to_schema(object, own);
                apply_defaults(object, own.schema());
            });
        }
        match &self.strategy {
            ConversionStrategy::Rename => {
                objects.iter_mut().for_each(|object| conversion::set_api_version(object, &wanted));
            }
            ConversionStrategy::Webhook(webhook) => {
                let unconverted: Vec<usize> = (0..objects.len())
                    .filter(|index| objects.get(*index).is_some_and(needs_conversion))
                    .collect();
                let sent = unconverted.iter().filter_map(|index| objects.get(*index).cloned()).collect();
                let converted = webhook.convert(version, sent).await?;
                for (index, converted) in unconverted.into_iter().zip(converted) {
                    objects[index] = converted;
                }
            }
        }
        objects.iter_mut().for_each(|object| restrict_to_schema(object, version));
        Ok(objects)
    }
}

#[async_trait]
impl Convert for Converter {
    async fn served(&self, objects: Vec<Value>) -> Result<Vec<Value>, Status> {
        self.convert_to(objects, &self.served).await
    }

    async fn stored(&self, object: Value) -> Result<Value, Status> {
        let converted = self.convert_to(vec![object], &self.stored).await?;
        let converted = converted.into_iter().next();
        let mut converted = converted.ok_or_else(|| Status::internal("a conversion lost its object"))?;
        // Kubernetes adds these on every read. Stored once, the object is served as it is.
        apply_defaults(&mut converted, self.stored.schema());
        Ok(converted)
    }

    fn versions(&self) -> Option<&dyn VersionConverter> {
        Some(self)
    }

    fn blocks(&self) -> bool {
        !self.strategy.only_renames()
    }

    fn indexed_as(&self, field: &str) -> Option<String> {
        let same = self.strategy.only_renames() || self.served.name == self.stored.name;
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
        if let ConversionStrategy::Webhook(webhook) = &self.strategy {
            object = webhook.convert_blocking(version, object)?;
        }
        conversion::set_api_version(&mut object, api_version);
        prune(&mut object, version.schema(), Root::Resource);
        Ok(object)
    }
}

/// Restricts an object to a version's schema. Losses are not reported.
fn restrict_to_schema(object: &mut Value, version: &Version) {
    let schema = version.schema();
    // `Drop` never fails.
    let _ = coerce_metadata(object, schema, Malformed::Drop);
    prune(object, schema, Root::Resource);
    canonicalize(object, schema);
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.entry("generation").or_insert_with(|| 1.into());
    }
}

impl ConversionWebhook {
    /// Converts objects to a version, in order, in one call.
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
        let answer = self.webhook.post(&store, &review, WEBHOOK_TIMEOUT).await;
        let answer = answer.map_err(|why| failed(&kind, &why))?;
        conversion::objects_of_response(&review, &kind, answer).map_err(|why| Status::plain(&why))
    }
}

impl ConversionWebhook {
    /// Converts one object for managed fields, whose computation is synchronous. Must run on a blocking thread, as
    /// off-loaded requests do: it blocks for as long as the webhook takes.
    fn convert_blocking(&self, version: &Version, object: Value) -> Result<Value, ConversionError> {
        let failed = |why: &str| ConversionError::Failed(why.to_owned());
        let runtime = Handle::current();
        if runtime.runtime_flavor() == RuntimeFlavor::CurrentThread {
            return Err(failed("managed fields in another version need a multi-threaded runtime"));
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
