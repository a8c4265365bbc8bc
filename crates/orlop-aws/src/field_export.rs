//! FieldExport: a field of an object, kept in a ConfigMap or a Secret.
//!
//! The path is the part of jq that names a field: `.status.endpoint`, `.status.items[0]`, `.metadata.labels["a.b"]`.

use std::{
    collections::HashMap,
    sync::{Mutex, PoisonError},
};

use base64::Engine as _;
use orlop_controllers::runtime::Action;
use serde_json::{Value, json};

use crate::{
    cluster::{Change, Cluster, Resource, merge_patch, text},
    conditions::{Conditions, RECOVERABLE, SYNCED, TERMINAL, status_of},
    kinds::KINDS,
    references::resource_of,
};

pub(crate) fn resource() -> Resource {
    Resource::new("services.k8s.aws", "v1alpha1", ("FieldExport", "fieldexports"), true)
}

/// Group, kind and name of a source.
type Source = (String, String, String);

/// Exports, and what each exports from.
#[derive(Debug)]
pub(crate) struct FieldExports {
    cluster: Cluster,
    /// The source of each export, by namespace and name.
    sources: Mutex<HashMap<(String, String), Source>>,
}

impl FieldExports {
    pub(crate) fn new(cluster: Cluster) -> Self {
        Self { cluster, sources: Mutex::default() }
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
        let Some(export) = self.cluster.get(&resource(), namespace, name).await? else {
            self.sources.lock().unwrap_or_else(PoisonError::into_inner).remove(&key);
            return Ok(Action::Done);
        };
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
        let old = export.get("status").cloned().unwrap_or_else(|| json!({}));
        let new = json!({"conditions": conditions.finish(&old["conditions"], None)});
        if let Some(patch) = merge_patch(&old, &new) {
            self.cluster.merge_status(&resource(), (namespace, name), &json!({"status": patch})).await?;
        }
        Ok(Action::Done)
    }

    async fn export(
        &self,
        namespace: &str,
        export: &Value,
        (group, kind, name): &Source,
    ) -> orlop_client::Result<Result<(), Problem>> {
        let field = |pointer: &str| text(export, pointer).unwrap_or_default();
        let Some(path) = parse(field("/spec/from/path")) else {
            return Ok(Err(Problem::Terminal("unable to parse path".to_owned())));
        };
        let known = KINDS.iter().find(|known| known.about().group() == *group && known.about().kind == *kind);
        let Some(known) = known else {
            return Ok(Err(Problem::Later(format!("{kind}.{group} is not a kind of this controller"))));
        };
        let source = resource_of(known.about().service.name, kind);
        let Some(object) = self.cluster.get(&source, namespace, name).await? else {
            return Ok(Err(Problem::Later(format!("{kind} {name} does not exist"))));
        };
        let empty = Vec::new();
        let conditions = object.pointer("/status/conditions").and_then(Value::as_array).unwrap_or(&empty);
        if status_of(conditions, SYNCED) != Some("True") {
            return Ok(Err(Problem::Later(format!("{kind} {name} is not synced"))));
        }
        let value = match path.iter().try_fold(&object, |value, step| step.of(value)) {
            None | Some(Value::Null) => {
                return Ok(Err(Problem::Recoverable("path does not exist in this object".to_owned())));
            }
            Some(Value::String(text)) => text.clone(),
            Some(value @ (Value::Bool(_) | Value::Number(_))) => value.to_string(),
            Some(_) => return Ok(Err(Problem::Terminal("unable to execute query".to_owned()))),
        };
        let space = match field("/spec/to/namespace") {
            "" => namespace,
            other => other,
        };
        let secret = field("/spec/to/kind") == "secret";
        let (kind, plural) = if secret { ("Secret", "secrets") } else { ("ConfigMap", "configmaps") };
        let target = Resource::new("", "v1", (kind, plural), true);
        let to = field("/spec/to/name");
        let Some(existing) = self.cluster.get(&target, space, to).await? else {
            let message =
                format!("unable to get existing {}: {plural} \"{to}\" not found", kind.to_lowercase());
            return Ok(Err(Problem::Recoverable(message)));
        };
        let export_name = field("/metadata/name");
        let key = match field("/spec/to/key") {
            "" => format!("{namespace}.{export_name}"),
            key => key.to_owned(),
        };
        let value = if secret { base64::engine::general_purpose::STANDARD.encode(value) } else { value };
        if existing.pointer("/data").and_then(|data| data.get(&key)).and_then(Value::as_str) != Some(&value) {
            self.cluster.merge(&target, (space, to), &json!({"data": {key: value}})).await?;
        }
        Ok(Ok(()))
    }
}

enum Problem {
    /// The source's next change helps.
    Later(String),
    Recoverable(String),
    Terminal(String),
}

/// A step of a path.
#[derive(Debug, PartialEq)]
enum Step {
    Field(String),
    Item(usize),
}

impl Step {
    fn of<'a>(&self, value: &'a Value) -> Option<&'a Value> {
        match self {
            Self::Field(name) => value.get(name),
            Self::Item(at) => value.get(at),
        }
    }
}

/// Parses a path: `.a.b[0]["c.d"]`.
fn parse(text: &str) -> Option<Vec<Step>> {
    let mut steps = Vec::new();
    let mut rest = text.trim().strip_prefix('.')?;
    loop {
        rest = rest.strip_prefix('.').unwrap_or(rest);
        if rest.is_empty() {
            return Some(steps);
        }
        if let Some(inner) = rest.strip_prefix('[') {
            let (index, after) = inner.split_once(']')?;
            steps.push(match index.strip_prefix('"').and_then(|name| name.strip_suffix('"')) {
                Some(name) => Step::Field(name.to_owned()),
                None => Step::Item(index.parse().ok()?),
            });
            rest = after;
        } else {
            let end = rest.find(['.', '[']).unwrap_or(rest.len());
            let name = &rest[..end];
            if !name.chars().all(|c| c.is_alphanumeric() || c == '_') {
                return None;
            }
            steps.push(Step::Field(name.to_owned()));
            rest = &rest[end..];
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_name_fields_items_and_quoted_keys() {
        let field = |name: &str| Step::Field(name.to_owned());
        assert_eq!(parse(".status.a[0]"), Some(vec![field("status"), field("a"), Step::Item(0)]));
        assert_eq!(
            parse(".metadata.labels[\"a.b\"]"),
            Some(vec![field("metadata"), field("labels"), field("a.b")])
        );
        assert_eq!(parse("status"), None);
        assert_eq!(parse(".a | b"), None);
    }
}
