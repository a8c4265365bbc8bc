//! Builds the registry's kinds from `orlop-kinds`' declarations and the generated table of resources.

use std::sync::Arc;

use async_trait::async_trait;
use orlop_api::{
    group_version::{GroupVersion, GroupVersionKind},
    schema::builtin::{self, Resource},
    status::Status,
};
use orlop_kinds::BuiltinConverter;
use serde_json::Value;

use super::{Convert, Kind, KindSchema, Retirement, StaticOrBoxed, Storage, Subresource};

/// Returns every built-in kind.
pub(super) fn kinds() -> Vec<Arc<Kind>> {
    let (mut stored, mut converted) = (Vec::new(), Vec::new());
    for (kind, converter) in builtin::resources().iter().filter_map(kind) {
        match converter {
            Some(converter) => converted.push((kind, Arc::new(converter))),
            None => stored.push(kind),
        }
    }
    for (kind, converter) in &converted {
        if let Some(storage_kind) = stored.iter_mut().find(|stored| is_stored_as(kind, converter, stored)) {
            storage_kind.storage = storage_kind.storage.clone().with_converter(converter.clone());
        }
    }
    let mut kinds: Vec<Arc<Kind>> = stored.into_iter().map(Arc::new).collect();
    for (mut kind, converter) in converted {
        let storage_kind = kinds.iter().find(|stored| is_stored_as(&kind, &converter, stored)).cloned();
        if let Some(storage_kind) = storage_kind {
            kind.storage = Storage::translated(storage_kind, converter.clone()).with_converter(converter);
        }
        kinds.push(Arc::new(kind));
    }
    kinds
}

/// Returns whether `stored` is the storage version of `kind`.
fn is_stored_as(kind: &Kind, converter: &BuiltinConverter, stored: &Kind) -> bool {
    (stored.gvk.group.as_str(), stored.gvk.version.as_str()) == converter.storage_version()
        && stored.resource == kind.resource
}

/// Builds the kind of a resource, with its converter where it is stored in another version.
fn kind(resource: &Resource) -> Option<(Kind, Option<BuiltinConverter>)> {
    let entry = builtin::type_of(resource.group, resource.version, resource.kind)?;
    let declaration = orlop_kinds::builtin_kind(resource.group, resource.plural)?;
    let gvk = GroupVersionKind::new(resource.group, resource.version, resource.kind);
    let owned = |list: &[&str]| list.iter().map(|text| (*text).to_owned()).collect();
    let subresources = resource.subresources.iter().map(|subresource| Subresource {
        name: subresource.name.to_owned(),
        gvk: match GroupVersion::parse(subresource.api_version) {
            Ok(version) if !subresource.api_version.is_empty() => version.with_kind(subresource.kind),
            _ => gvk.group_version().with_kind(subresource.kind),
        },
        verbs: owned(&subresource.verbs),
    });
    let kind = Kind {
        list_kind: format!("{}List", resource.kind),
        resource: resource.plural.to_owned(),
        singular: resource.singular.to_owned(),
        namespaced: resource.namespaced,
        verbs: owned(&resource.verbs),
        short_names: owned(&resource.short_names),
        categories: owned(&resource.categories),
        subresources: subresources.collect(),
        schema: KindSchema::Builtin(entry),
        storage: Storage::own(&gvk),
        name_rule: declaration.name_rule,
        flags: declaration.flags,
        selectable_fields: owned(declaration.selectable_fields),
        immortal_names: declaration.immortal_names,
        update_scopes: declaration.update_scopes,
        columns: StaticOrBoxed::Static(declaration.columns),
        strategy: StaticOrBoxed::Static(declaration.strategy),
        retirement: Retirement::default(),
        gvk,
    };
    Some((kind, declaration.converter(resource.version)))
}

#[async_trait]
impl Convert for BuiltinConverter {
    async fn served(&self, objects: Vec<Value>) -> Result<Vec<Value>, Status> {
        let served = objects.into_iter().map(|object| self.to_served(object));
        served.collect::<Result<_, _>>().map_err(|error| Status::internal(&error.to_string()))
    }

    async fn stored(&self, object: Value) -> Result<Value, Status> {
        self.to_storage(object).map_err(|error| Status::internal(&error.to_string()))
    }

    fn indexed_as(&self, field: &str) -> Option<String> {
        Some(self.index_field(field))
    }
}
