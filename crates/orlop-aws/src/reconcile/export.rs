//! Secrets that a kind writes, such as an exported certificate.

use base64::Engine as _;
use serde_json::{Map, Value, json};

use crate::{
    client::{Failure, Result, Session},
    cluster::{Cluster, Resource},
    kind::{Kind, Object, Observed},
};

/// Writes what a Secret is to have, if it is something else by now or the Secret lost it. Returns the annotation that
/// notes what was written.
pub(super) async fn write(
    cluster: &Cluster,
    kind: &dyn Kind,
    aws: &Session,
    object: &Object,
    observed: &Observed,
) -> Result<Option<(&'static str, String)>> {
    let Some(export) = kind.exports(object, observed) else { return Ok(None) };
    let field = |name: &str| object.spec(&format!("{}.{name}", export.field));
    let resource = Resource::new("", "v1", ("Secret", "secrets"), true);
    let place = (field("namespace").unwrap_or(&object.namespace), field("name").unwrap_or_default());
    let Some(secret) = cluster.get(&resource, place.0, place.1).await? else {
        return Err(Failure::Recoverable("kubernetes secret not found".to_owned()));
    };
    let (annotation, note) = &export.note;
    let known = object.annotations.get(*annotation).and_then(Value::as_str) == Some(note);
    let is_kept = |key: &String| secret.pointer("/data").is_some_and(|data| data.get(key).is_some());
    if known && export.keys.iter().all(is_kept) {
        return Ok(None);
    }
    let values = kind.export(aws, observed).await?;
    let encode = |value: String| json!(base64::engine::general_purpose::STANDARD.encode(value));
    let data: Map<_, _> = export.keys.into_iter().zip(values.into_iter().map(encode)).collect();
    cluster.merge(&resource, place, &json!({"data": data})).await?;
    Ok(Some(export.note))
}
