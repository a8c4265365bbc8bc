//! FieldExport: copies a field of an object to a ConfigMap or a Secret.
//!
//! The exported key outlives its FieldExport, as with ACK, unless the annotation `services.k8s.aws/deletion-policy` of the
//! FieldExport is `delete`.

use std::{
    collections::HashMap,
    sync::{Mutex, PoisonError},
};

use base64::Engine as _;
use orlop_controllers::runtime::Action;
use serde_json::{Value, json};

use crate::{
    cluster::{Change, Resource, text},
    conditions::{Conditions, RECOVERABLE, SYNCED, TERMINAL, status_of},
    kinds::KINDS,
    objects::{Objects, has_finalizer},
    query::Query,
    references::resource_of,
};

const FINALIZER: &str = "finalizers.services.k8s.aws/FieldExport";

pub(crate) fn resource() -> Resource {
    Resource::new("services.k8s.aws", "v1alpha1", ("FieldExport", "fieldexports"), true)
}

/// Group, kind and name of a source.
type Source = (String, String, String);

/// Exports, and what each exports from.
#[derive(Debug)]
pub(crate) struct FieldExports {
    objects: Objects,
    /// The source of each export, by namespace and name.
    sources: Mutex<HashMap<(String, String), Source>>,
}

impl FieldExports {
    pub(crate) fn new(objects: Objects) -> Self {
        Self { objects, sources: Mutex::default() }
    }

    /// Returns the exports of an object that changed.
    pub(crate) fn of_source(&self, resource: &Resource, change: &Change) -> Vec<(String, String)> {
        let sources = self.sources.lock().unwrap_or_else(PoisonError::into_inner);
        let same = |(group, kind, name): &Source| {
            *group == resource.group && *kind == resource.kind && *name == change.name
        };
        let exports =
            sources.iter().filter(|((namespace, _), source)| *namespace == change.namespace && same(source));
        exports.map(|(export, _)| export.clone()).collect()
    }

    /// Exports once.
    pub(crate) async fn reconcile(&self, namespace: &str, name: &str) -> orlop_client::Result<Action> {
        let key = (namespace.to_owned(), name.to_owned());
        let Some(mut export) = self.objects.cluster.get(&resource(), namespace, name).await? else {
            self.sources.lock().unwrap_or_else(PoisonError::into_inner).remove(&key);
            return Ok(Action::Done);
        };
        let policy = export.pointer("/metadata/annotations/services.k8s.aws~1deletion-policy");
        let deletes = policy.and_then(Value::as_str) == Some("delete");
        let managed = has_finalizer(&export, FINALIZER);
        if text(&export, "/metadata/deletionTimestamp").is_some() {
            if managed {
                if deletes {
                    self.remove_key(namespace, &export).await?;
                }
                self.objects.remove_finalizer(&resource(), &export, FINALIZER).await?;
            }
            return Ok(Action::Done);
        }
        if deletes && !managed {
            export = self.objects.add_finalizer(&resource(), &export, FINALIZER).await?;
        }
        let field = |pointer: &str| text(&export, pointer).unwrap_or_default().to_owned();
        let source = (
            field("/spec/from/resource/group"),
            field("/spec/from/resource/kind"),
            field("/spec/from/resource/name"),
        );
        self.sources.lock().unwrap_or_else(PoisonError::into_inner).insert(key, source.clone());
        let mut conditions = Conditions::default();
        match self.export(namespace, &export, &source).await? {
            Ok(()) => conditions.set(SYNCED, "True", "", "the field was exported"),
            Err(Problem::Later(message)) => conditions.set(SYNCED, "False", "", &message),
            Err(Problem::Recoverable(message)) => conditions.set(RECOVERABLE, "True", "", &message),
            Err(Problem::Terminal(message)) => conditions.set(TERMINAL, "True", "", &message),
        }
        let old = export.pointer("/status/conditions").unwrap_or(&Value::Null);
        let status = json!({"conditions": conditions.finish(old, None)});
        self.objects.write_status(&resource(), &export, &status).await?;
        Ok(Action::Done)
    }

    /// Removes the exported key, if its target is still there.
    async fn remove_key(&self, namespace: &str, export: &Value) -> orlop_client::Result<()> {
        let target = Target::of(namespace, export);
        let place = (target.namespace.as_str(), target.name.as_str());
        let Some(existing) = self.objects.cluster.get(&target.resource, place.0, place.1).await? else {
            return Ok(());
        };
        if existing.pointer("/data").is_some_and(|data| data.get(&target.key).is_some()) {
            let patch = json!({"data": {target.key: null}});
            self.objects.cluster.merge(&target.resource, place, &patch).await?;
        }
        Ok(())
    }

    async fn export(
        &self,
        namespace: &str,
        export: &Value,
        (group, kind, name): &Source,
    ) -> orlop_client::Result<Result<(), Problem>> {
        let field = |pointer: &str| text(export, pointer).unwrap_or_default();
        let Some(query) = Query::parse(field("/spec/from/path")) else {
            return Ok(Err(Problem::Terminal("unable to parse path".to_owned())));
        };
        let known = KINDS
            .iter()
            .find(|known| known.descriptor().group() == *group && known.descriptor().kind == *kind);
        let Some(known) = known else {
            return Ok(Err(Problem::Later(format!("{kind}.{group} is not a kind of this controller"))));
        };
        let source = resource_of(known.descriptor().service.name, kind);
        let Some(object) = self.objects.cluster.get(&source, namespace, name).await? else {
            return Ok(Err(Problem::Later(format!("{kind} {name} does not exist"))));
        };
        let empty = Vec::new();
        let conditions = object.pointer("/status/conditions").and_then(Value::as_array).unwrap_or(&empty);
        if status_of(conditions, SYNCED) != Some("True") {
            return Ok(Err(Problem::Later(format!("{kind} {name} is not synced"))));
        }
        let value = match query.first(&object) {
            Ok(None) => {
                return Ok(Err(Problem::Recoverable("path does not exist in this object".to_owned())));
            }
            Ok(Some(Value::String(text))) => text.clone(),
            Ok(Some(value @ (Value::Bool(_) | Value::Number(_)))) => value.to_string(),
            Ok(Some(_)) | Err(_) => {
                return Ok(Err(Problem::Terminal("unable to execute query".to_owned())));
            }
        };
        let target = Target::of(namespace, export);
        let place = (target.namespace.as_str(), target.name.as_str());
        let Some(existing) = self.objects.cluster.get(&target.resource, place.0, place.1).await? else {
            let Resource { kind, plural, .. } = &target.resource;
            let message = format!(
                "unable to get existing {}: {plural} \"{}\" not found",
                kind.to_lowercase(),
                target.name
            );
            return Ok(Err(Problem::Recoverable(message)));
        };
        let value = match target.resource.kind.as_str() {
            "Secret" => base64::engine::general_purpose::STANDARD.encode(value),
            _ => value,
        };
        let current = existing.pointer("/data").and_then(|data| data.get(&target.key));
        if current.and_then(Value::as_str) != Some(&value) {
            let patch = json!({"data": {target.key.as_str(): value}});
            self.objects.cluster.merge(&target.resource, place, &patch).await?;
        }
        Ok(Ok(()))
    }
}

/// The ConfigMap or Secret of an export, and its key.
struct Target {
    resource: Resource,
    namespace: String,
    name: String,
    key: String,
}

impl Target {
    fn of(namespace: &str, export: &Value) -> Self {
        let field = |pointer: &str| text(export, pointer).filter(|text| !text.is_empty());
        let names = match field("/spec/to/kind") {
            Some("secret") => ("Secret", "secrets"),
            _ => ("ConfigMap", "configmaps"),
        };
        let default_key = || format!("{namespace}.{}", field("/metadata/name").unwrap_or_default());
        Self {
            resource: Resource::new("", "v1", names, true),
            namespace: field("/spec/to/namespace").unwrap_or(namespace).to_owned(),
            name: field("/spec/to/name").unwrap_or_default().to_owned(),
            key: field("/spec/to/key").map_or_else(default_key, str::to_owned),
        }
    }
}

enum Problem {
    /// The source's next change helps.
    Later(String),
    Recoverable(String),
    Terminal(String),
}
