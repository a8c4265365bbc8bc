//! Shared by the kinds of apigatewayv2: paths, tags.

use serde_json::{Value, json};

use crate::{
    client::{APIGATEWAYV2, Result, Session, path},
    fields::{Case, to_json},
    kind::{About, Object, Observed, tag_changes, tag_map, tags_of},
};

/// IAM actions: API Gateway names them by HTTP method.
pub(super) const ACTIONS: &[&str] =
    &["apigateway:GET", "apigateway:POST", "apigateway:PATCH", "apigateway:PUT", "apigateway:DELETE"];

/// Returns the body of a create or update of a resource of an API, which its path names.
pub(super) fn body(about: &About, object: &Object) -> Value {
    let mut body = to_json(&about.spec, &object.spec, Case::Camel);
    if let Some(fields) = body.as_object_mut() {
        fields.remove("apiId");
    }
    body
}

pub(crate) async fn call(
    aws: &Session,
    operation: &'static str,
    method: &'static str,
    segments: &[&str],
    body: Option<Value>,
) -> Result<Value> {
    let mut all = vec!["v2"];
    all.extend(segments);
    aws.rest(&APIGATEWAYV2, operation, method, &path(&all), body).await
}

/// Reads every page of a list.
pub(crate) async fn list(aws: &Session, operation: &'static str, segments: &[&str]) -> Result<Vec<Value>> {
    let mut all = vec!["v2"];
    all.extend(segments);
    let address = path(&all);
    let mut items = Vec::new();
    let mut next: Option<String> = None;
    for _ in 0..100 {
        let mut query = vec![("maxResults", "500")];
        if let Some(token) = &next {
            query.push(("nextToken", token));
        }
        let mut page = aws.rest_query(&APIGATEWAYV2, operation, "GET", &address, &query, None).await?;
        if let Value::Array(found) = page["items"].take() {
            items.extend(found);
        }
        next = page["nextToken"].as_str().filter(|token| !token.is_empty()).map(str::to_owned);
        if next.is_none() {
            break;
        }
    }
    Ok(items)
}

/// Returns the ARN of a resource, which the service does not.
pub(super) fn arn(aws: &Session, resource: &str) -> String {
    format!("arn:{}:apigateway:{}::{resource}", aws.partition, aws.region)
}

/// Brings tags in line.
pub(super) async fn sync_tags(aws: &Session, arn: &str, object: &Object, observed: &Observed) -> Result<()> {
    let (add, remove) = tag_changes(&tags_of(object.spec.get("tags")), &tags_of(observed.spec.get("tags")));
    let address = path(&["v2", "tags", arn]);
    if !remove.is_empty() {
        let keys: Vec<_> = remove.iter().map(|key| ("tagKeys", key.as_str())).collect();
        aws.rest_query(&APIGATEWAYV2, "UntagResource", "DELETE", &address, &keys, None).await?;
    }
    if !add.is_empty() {
        let body = json!({"tags": tag_map(&add)});
        aws.rest(&APIGATEWAYV2, "TagResource", "POST", &address, Some(body)).await?;
    }
    Ok(())
}
