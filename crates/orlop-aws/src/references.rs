//! References to other objects, and keys of Secrets.

use std::collections::BTreeMap;

use base64::Engine as _;
use serde_json::{Value, json};

use crate::{
    client::Failure,
    cluster::{Cluster, Resource},
    conditions::{SYNCED, TERMINAL, status_of},
    fields::{Field, Leaf, Type},
    kind::{Descriptor, Reference, at, group_of, set},
    kinds,
};

/// An object that is referred to.
pub(crate) type Target = (String, String, String, String);

/// Outcome of resolving.
#[derive(Debug, Default)]
pub(crate) struct Resolved {
    /// There are references.
    pub(crate) any: bool,
    /// Objects that are referred to: their changes wake this one.
    pub(crate) targets: Vec<Target>,
    /// A reference leads to another namespace.
    pub(crate) crosses: bool,
}

/// A reference that does not resolve.
#[derive(Debug)]
pub(crate) enum Unresolved {
    /// It may resolve later by itself.
    Later(String),
    /// Something must be changed first.
    Refused(String),
    /// The spec itself is wrong.
    Invalid(String),
    Failed(Failure),
}

/// Returns the resource of a service's kind. Kinds of other controllers follow the usual plural.
pub(crate) fn resource_of(service: &str, kind: &str) -> Resource {
    let plural = match kinds::find(service, kind) {
        Some(known) => known.descriptor().plural.to_owned(),
        None => format!("{}s", kind.to_lowercase()),
    };
    Resource::new(&group_of(service), "v1alpha1", (kind, &plural), true)
}

/// Replaces references of a spec with the identifiers that they stand for.
pub(crate) async fn resolve(
    cluster: &Cluster,
    descriptor: &Descriptor,
    namespace: &str,
    cross_namespace: bool,
    spec: &mut Value,
    out: &mut Resolved,
) -> Result<(), Unresolved> {
    for reference in descriptor.references {
        let given = at(spec, reference.reference).cloned();
        let named = at(spec, reference.field).is_some();
        let pair = || format!("{},{}", title(reference.field), title(reference.reference));
        match (&given, named) {
            (None, true) => continue,
            (None, false) if reference.required => {
                return Err(Unresolved::Invalid(format!(
                    "resource reference wrapper or ID required: {}",
                    pair()
                )));
            }
            (None, false) => continue,
            (Some(_), true) => {
                let text =
                    format!("both resource reference wrapper and ID cannot be used together: {}", pair());
                return Err(Unresolved::Invalid(text));
            }
            (Some(_), false) => {}
        }
        out.any = true;
        let given = given.unwrap_or_default();
        let items = if reference.list { given.as_array().cloned().unwrap_or_default() } else { vec![given] };
        let mut values = Vec::new();
        for item in &items {
            values.push(resolve_one(cluster, reference, namespace, cross_namespace, item, out).await?);
        }
        let value =
            if reference.list { Value::Array(values) } else { values.into_iter().next().unwrap_or_default() };
        set(spec, reference.field, value);
    }
    Ok(())
}

async fn resolve_one(
    cluster: &Cluster,
    reference: &Reference,
    namespace: &str,
    cross_namespace: bool,
    item: &Value,
    out: &mut Resolved,
) -> Result<Value, Unresolved> {
    let name = at(item, "from.name").and_then(Value::as_str).unwrap_or_default();
    if name.is_empty() {
        let text = format!("provided resource reference is nil or empty: {}", title(reference.reference));
        return Err(Unresolved::Invalid(text));
    }
    let target_namespace = at(item, "from.namespace").and_then(Value::as_str).unwrap_or(namespace);
    if target_namespace != namespace {
        if !cross_namespace {
            return Err(Unresolved::Refused(format!(
                "cross-namespace resource reference is not allowed. Set --enable-cross-namespace=true to allow it. \
                 sourceNamespace:{namespace}, targetNamespace:{target_namespace}"
            )));
        }
        out.crosses = true;
    }
    let (service, kind) = reference.target;
    out.targets.push((service.to_owned(), kind.to_owned(), target_namespace.to_owned(), name.to_owned()));
    let resource = resource_of(service, kind);
    let found = cluster
        .get(&resource, target_namespace, name)
        .await
        .map_err(|error| Unresolved::Failed(error.into()))?;
    let described = format!("resource:{kind}, namespace:{target_namespace}, name:{name}");
    let Some(target) = found else {
        return Err(Unresolved::Later(format!("the referenced resource does not exist. {described}")));
    };
    let empty = Vec::new();
    let conditions = target.pointer("/status/conditions").and_then(Value::as_array).unwrap_or(&empty);
    if status_of(conditions, TERMINAL) == Some("True") {
        return Err(Unresolved::Refused(format!(
            "the referenced resource has 'ACK.Terminal' condition 'True'. Cannot be referenced. {described}"
        )));
    }
    if status_of(conditions, SYNCED) != Some("True") {
        return Err(Unresolved::Later(format!("the referenced resource is not synced yet. {described}")));
    }
    let value = at(&target, reference.value).and_then(Value::as_str).filter(|value| !value.is_empty());
    match value {
        Some(value) => Ok(json!(format!("{}{value}", reference.prefix))),
        None => Err(Unresolved::Later(format!(
            "the referenced resource is missing the target field. {described}, targetField:{}",
            title(reference.value)
        ))),
    }
}

/// Writes a path as Go writes it: `Status.APIID`.
fn title(path: &str) -> String {
    let parts = path.split('.').map(|part| match part {
        "arn" => "ARN".to_owned(),
        _ if part.starts_with("api") => part.replacen("api", "API", 1),
        _ => {
            let mut chars = part.chars();
            chars.next().map(|first| first.to_uppercase().chain(chars).collect()).unwrap_or_default()
        }
    });
    parts.collect::<Vec<String>>().join(".")
}

/// Reads the keys of Secrets that fields name.
pub(crate) async fn secrets(
    cluster: &Cluster,
    descriptor: &Descriptor,
    namespace: &str,
    spec: &Value,
) -> Result<BTreeMap<String, String>, Failure> {
    let mut values = BTreeMap::new();
    let resource = Resource::new("", "v1", ("Secret", "secrets"), true);
    let is_read = |field: &&Field| matches!(field.kind, Type::Leaf(Leaf::Secret)) && !field.ignored;
    for field in descriptor.spec.iter().filter(is_read) {
        let Some(desired) = spec.get(&field.name) else { continue };
        let text = |name: &str| desired.get(name).and_then(Value::as_str).unwrap_or_default();
        let space = if text("namespace").is_empty() { namespace } else { text("namespace") };
        let Some(secret) = cluster.get(&resource, space, text("name")).await? else {
            return Err(Failure::Terminal("kubernetes secret not found".to_owned()));
        };
        if secret
            .get("type")
            .and_then(Value::as_str)
            .is_some_and(|kind| kind != "Opaque" && kind != "kubernetes.io/tls")
        {
            return Err(Failure::Terminal("only opaque secrets can be used".to_owned()));
        }
        let encoded = secret.pointer("/data").and_then(|data| data.get(text("key"))).and_then(Value::as_str);
        let decoded = encoded.and_then(|data| base64::engine::general_purpose::STANDARD.decode(data).ok());
        let Some(value) = decoded.and_then(|bytes| String::from_utf8(bytes).ok()) else {
            return Err(Failure::Terminal(format!(
                "kubernetes secret {} has no key {}",
                text("name"),
                text("key")
            )));
        };
        values.insert(field.name.clone(), value);
    }
    Ok(values)
}

#[cfg(test)]
mod tests {
    use super::title;

    #[test]
    fn paths_are_written_as_go_writes_them() {
        assert_eq!(title("status.apiID"), "Status.APIID");
        assert_eq!(title("roleRef"), "RoleRef");
        assert_eq!(title("status.ackResourceMetadata.arn"), "Status.AckResourceMetadata.ARN");
    }
}
