//! Shared by the kinds of apigatewayv2: paths, tags, and collections whose identifiers AWS assigns.

use serde_json::{Value, json};

use crate::{
    client::{APIGATEWAYV2, Result, Session, optional, path},
    fields::{Case, Difference, Type, from_json, to_json},
    kind::{Descriptor, Object, Observed, differs, tag_changes, tag_map},
};

/// IAM actions: API Gateway names them by HTTP method. Only an API is ever put, when its definition is imported.
pub(super) const ACTIONS: &[&str] =
    &["apigateway:GET", "apigateway:POST", "apigateway:PATCH", "apigateway:DELETE"];

/// Returns the body of a create or update of a resource of an API, which its path names.
pub(super) fn body(descriptor: &Descriptor, object: &Object) -> Value {
    let mut body = to_json(&descriptor.spec, &object.spec, Case::Camel);
    if let Some(fields) = body.as_object_mut() {
        fields.remove("apiId");
    }
    body
}

/// Returns the body of an update: what left the spec is sent as what its absence means, and entries that left a map as
/// empty texts, which removes them.
pub(super) fn update_body(
    descriptor: &Descriptor,
    object: &Object,
    observed: &Observed,
    changed: &[Difference],
) -> Value {
    let mut body = body(descriptor, object);
    for field in descriptor.spec.iter().filter(|field| differs(changed, &field.name)) {
        let name = field.wire_name(Case::Camel);
        match &field.kind {
            Type::Object(_) => {}
            Type::Map(item) => {
                let Type::Leaf(_) = **item else { continue };
                let mut entries = body[&name].as_object().cloned().unwrap_or_default();
                for (key, _) in observed.spec[&field.name].as_object().into_iter().flatten() {
                    entries.entry(key.clone()).or_insert(json!(""));
                }
                body[name] = Value::Object(entries);
            }
            _ if body.get(&name).is_none() => {
                if let Some(absent) = field.absent_value() {
                    body[name] = absent;
                }
            }
            _ => {}
        }
    }
    body
}

/// Drops the entries of maps that were removed by an empty text.
pub(super) fn without_empty_entries(descriptor: &Descriptor, spec: &mut Value) {
    for field in descriptor.spec.iter().filter(|field| matches!(&field.kind, Type::Map(_))) {
        if let Some(entries) = spec.get_mut(&field.name).and_then(Value::as_object_mut) {
            entries.retain(|_, value| value != "");
        }
    }
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

/// Brings tags in line. Returns true if something else differs too.
pub(super) async fn sync_tags(
    aws: &Session,
    arn: &str,
    object: &Object,
    observed: &Observed,
    changed: &[Difference],
) -> Result<bool> {
    if differs(changed, "tags") {
        let (add, remove) = tag_changes(object, observed);
        let address = path(&["v2", "tags", arn]);
        if !remove.is_empty() {
            let keys: Vec<_> = remove.iter().map(|key| ("tagKeys", key.as_str())).collect();
            aws.rest_query(&APIGATEWAYV2, "UntagResource", "DELETE", &address, &keys, None).await?;
        }
        if !add.is_empty() {
            let body = json!({"tags": tag_map(&add)});
            aws.rest(&APIGATEWAYV2, "TagResource", "POST", &address, Some(body)).await?;
        }
    }
    Ok(changed.iter().any(|difference| difference.field != "tags"))
}

/// A collection below an API or a domain name whose items have identifiers that AWS assigns. They are stored in `status`.
#[derive(Debug)]
pub(super) struct Collection {
    pub(super) descriptor: &'static Descriptor,
    /// Collection of the parent, and the field of `spec` that identifies it.
    pub(super) parent: (&'static str, &'static str),
    pub(super) name: &'static str,
    /// Field of `status` and of answers with the identifier.
    pub(super) id: (&'static str, &'static str),
    pub(super) get: &'static str,
    pub(super) list: &'static str,
    pub(super) create: &'static str,
    pub(super) update: &'static str,
    pub(super) delete: &'static str,
}

impl Collection {
    fn segments<'a>(&self, object: &'a Object) -> [&'a str; 3] {
        [self.parent.0, object.need(self.parent.1), self.name]
    }

    fn item<'a>(&self, object: &'a Object) -> Option<[&'a str; 4]> {
        let [parent, of, name] = self.segments(object);
        Some([parent, of, name, object.status(self.id.0)?])
    }

    fn status_of(&self, answer: &Value) -> Value {
        json!({self.id.0: answer[self.id.1]})
    }

    pub(super) async fn read(&self, aws: &Session, object: &Object) -> Result<Option<Observed>> {
        let Some(item) = self.item(object) else { return Ok(None) };
        let Some(answer) = optional(call(aws, self.get, "GET", &item, None).await, &[])? else {
            return Ok(None);
        };
        let mut spec = from_json(&self.descriptor.spec, &answer, Case::Camel);
        without_empty_entries(self.descriptor, &mut spec);
        spec[self.parent.1] = json!(item[1]);
        let status = from_json(&self.descriptor.status, &answer, Case::Camel);
        let arn = Some(arn(aws, &format!("/{}", item.join("/"))));
        Ok(Some(Observed { spec, status, arn, ..Observed::default() }))
    }

    pub(super) async fn create(&self, aws: &Session, object: &Object, body: Value) -> Result<Value> {
        let answer = call(aws, self.create, "POST", &self.segments(object), Some(body)).await?;
        Ok(self.status_of(&answer))
    }

    /// Finds the first item that is as wanted and that no other object holds.
    pub(super) async fn find(
        &self,
        aws: &Session,
        object: &Object,
        is_wanted: impl Fn(&Value) -> bool + Send,
    ) -> Result<Option<Value>> {
        let all = list(aws, self.list, &self.segments(object)).await?;
        let is_held = |item: &Value| object.claimed.iter().any(|claimed| item[self.id.1] == claimed.as_str());
        let found = all.iter().find(|item| !is_held(item) && is_wanted(item));
        Ok(found.map(|item| self.status_of(item)))
    }

    pub(super) async fn update(&self, aws: &Session, object: &Object, body: Value) -> Result<()> {
        if let Some(item) = self.item(object) {
            call(aws, self.update, "PATCH", &item, Some(body)).await?;
        }
        Ok(())
    }

    pub(super) async fn delete(&self, aws: &Session, object: &Object) -> Result<()> {
        if let Some(item) = self.item(object) {
            optional(call(aws, self.delete, "DELETE", &item, None).await, &[])?;
        }
        Ok(())
    }
}
