//! Tools of the functions of phases: the object, AWS, children.

use serde_json::{Value, json};

use super::step::Step;
use crate::{
    client::{Failure, Result, Session},
    cluster::{Cluster, text},
    conditions::{RECOVERABLE, SYNCED, TERMINAL, status_of},
    kind::at,
    references::{Target, resource_of},
};

/// Tag with the object that a resource was created for. Unlike a UID it outlives the object: what an earlier one left
/// behind is recognized as its own.
pub(super) const OWNER_TAG: &str = "services.k8s.aws/bridge-owner";
/// Label of children.
pub(crate) const CREATED_BY: (&str, &str) = ("app.kubernetes.io/created-by", "ack-bridge");
const ADOPTION: [&str; 2] = ["services.k8s.aws/adoption-policy", "services.k8s.aws/adoption-fields"];
const REGION: &str = "services.k8s.aws/region";

/// One pass over one object, as its phases see it.
#[derive(Debug)]
pub(crate) struct Work<'a> {
    pub(crate) aws: &'a Session,
    pub(super) cluster: &'a Cluster,
    pub(super) object: &'a Value,
    /// Status fields; what a phase sets here is written at the end of the pass.
    pub(crate) status: Value,
    /// Value of [`OWNER_TAG`].
    pub(crate) owner: String,
    /// Objects whose changes wake this one.
    pub(super) targets: Vec<Target>,
}

/// A child, or the step that stands in its way.
#[derive(Debug)]
pub(super) enum Child {
    Is(Value),
    Blocked(Step),
}

impl Work<'_> {
    pub(super) fn namespace(&self) -> &str {
        text(self.object, "/metadata/namespace").unwrap_or_default()
    }

    fn uid(&self) -> &str {
        text(self.object, "/metadata/uid").unwrap_or_default()
    }

    /// Returns a value of `spec`.
    pub(super) fn spec_value(&self, path: &str) -> Option<&Value> {
        at(&self.object["spec"], path)
    }

    /// Returns a text of `spec`.
    pub(super) fn spec(&self, path: &str) -> Option<&str> {
        self.spec_value(path).and_then(Value::as_str).filter(|text| !text.is_empty())
    }

    /// Returns a text of `status`.
    pub(super) fn status(&self, path: &str) -> Option<&str> {
        at(&self.status, path).and_then(Value::as_str).filter(|text| !text.is_empty())
    }

    /// True if resources of others may be taken over.
    pub(super) fn may_adopt(&self) -> bool {
        let policy = self.object.pointer("/metadata/annotations/services.k8s.aws~1adoption-policy");
        policy.and_then(Value::as_str) == Some("adopt-or-create")
    }

    /// Reads an object of ACK's, whose changes wake this one from now on.
    pub(super) async fn read(
        &mut self,
        (service, kind): (&str, &str),
        namespace: &str,
        name: &str,
    ) -> Result<Option<Value>> {
        self.targets.push((service.to_owned(), kind.to_owned(), namespace.to_owned(), name.to_owned()));
        Ok(self.cluster.get(&resource_of(service, kind), namespace, name).await?)
    }

    /// Reads a child. One of the same name that is not ours does not count.
    pub(super) async fn child(&mut self, of: (&str, &str), name: &str) -> Result<Option<Value>> {
        let namespace = self.namespace().to_owned();
        let found = self.read(of, &namespace, name).await?;
        Ok(found.filter(|child| self.owns(child)))
    }

    fn owns(&self, child: &Value) -> bool {
        let owners = child.pointer("/metadata/ownerReferences").and_then(Value::as_array);
        owners.into_iter().flatten().any(|owner| owner["uid"] == self.uid())
    }

    /// Makes a child as it should be. `adopt` names a resource that it shall take over.
    ///
    /// Its deletion leaves AWS alone, so that no finalizer but the Bridge's own holds up a deletion; the phases clean up.
    pub(super) async fn apply_child(
        &mut self,
        of: (&str, &str),
        name: &str,
        adopt: Option<Value>,
        spec: Value,
    ) -> Result<Child> {
        let namespace = self.namespace().to_owned();
        let existing = self.read(of, &namespace, name).await?;
        if let Some(found) = &existing {
            if !self.owns(found) {
                let text = format!("{} {name} exists and belongs to something else", of.1);
                return Ok(Child::Blocked(Step::refused("ChildConflict", text)));
            }
            if text(found, "/metadata/deletionTimestamp").is_some() {
                let text = format!("{} {name} is being deleted", of.1);
                return Ok(Child::Blocked(Step::wait(15, "InProgress", text)));
            }
        }
        let noted = |key: &str| existing.as_ref()?.pointer("/metadata/annotations")?.get(key).cloned();
        let mut annotations = json!({"services.k8s.aws/deletion-policy": "retain"});
        match adopt {
            Some(fields) if existing.is_none() => {
                annotations[ADOPTION[0]] = json!("adopt-or-create");
                annotations[ADOPTION[1]] = json!(fields.to_string());
            }
            _ => {
                for key in ADOPTION {
                    if let Some(value) = noted(key) {
                        annotations[key] = value;
                    }
                }
            }
        }
        let region = self.object.pointer("/metadata/annotations").and_then(|all| all.get(REGION));
        if let Some(region) = region {
            annotations[REGION] = region.clone();
        }
        let field = |pointer: &str| text(self.object, pointer).unwrap_or_default();
        let resource = resource_of(of.0, of.1);
        let desired = json!({"apiVersion": resource.api_version(), "kind": of.1,
            "metadata": {"name": name, "namespace": namespace, "labels": {CREATED_BY.0: CREATED_BY.1}, "annotations": annotations,
                "ownerReferences": [{"apiVersion": field("/apiVersion"), "kind": field("/kind"),
                    "name": field("/metadata/name"), "uid": self.uid(), "controller": true, "blockOwnerDeletion": true}]},
            "spec": spec});
        if let Some(found) = existing
            && includes(&found, &desired)
        {
            return Ok(Child::Is(found));
        }
        Ok(Child::Is(self.cluster.apply(&resource, (&namespace, name), &desired).await?))
    }

    /// Deletes a child and retains its AWS resource. True once it is gone.
    pub(super) async fn delete_child(&mut self, of: (&str, &str), name: &str) -> Result<bool> {
        let Some(child) = self.child(of, name).await? else { return Ok(true) };
        if text(&child, "/metadata/deletionTimestamp").is_none() {
            let namespace = self.namespace().to_owned();
            self.cluster.delete(&resource_of(of.0, of.1), (&namespace, name)).await?;
        }
        Ok(self.child(of, name).await?.is_none())
    }

    /// Decides by a child whose resource AWS does not have.
    pub(super) async fn await_child(
        &mut self,
        of: (&str, &str),
        name: &str,
        child: &Value,
        seconds: u64,
    ) -> Result<Step> {
        let kind = of.1;
        if status(child, SYNCED) == Some("True") {
            // It was deleted out of band, which ACK's resync may see hours later: a new child creates a new one.
            self.delete_child(of, name).await?;
            let text = format!("{kind} {name} is gone from AWS and will be created again");
            return Ok(Step::wait(1, "Creating", text));
        }
        let failed = [TERMINAL, RECOVERABLE].into_iter().any(|bad| status(child, bad) == Some("True"));
        let text = format!("{kind} is being created: {kind} {name}{}", explain(child));
        Ok(match failed {
            true => Step::Missing { reason: "Error", message: text },
            false => Step::wait(seconds, "Creating", text),
        })
    }

    /// Reads an object of ACK's that `spec` refers to, once it is synced.
    pub(super) async fn reference(
        &mut self,
        of: (&str, &str),
        namespace: Option<&str>,
        name: &str,
    ) -> Result<Child> {
        let namespace = namespace.unwrap_or(self.namespace()).to_owned();
        let Some(found) = self.read(of, &namespace, name).await? else {
            let text = format!("reference not found: {} {namespace}/{name}", of.1);
            return Ok(Child::Blocked(Step::missing(text)));
        };
        if status(&found, SYNCED) != Some("True") {
            let text = format!("resource not ready: {} {namespace}/{name}{}", of.1, explain(&found));
            return Ok(Child::Blocked(Step::wait(15, "InProgress", text)));
        }
        Ok(Child::Is(found))
    }
}

/// Status of a condition of an object.
pub(super) fn status<'a>(object: &'a Value, kind: &str) -> Option<&'a str> {
    let list = object.pointer("/status/conditions").and_then(Value::as_array)?;
    status_of(list, kind)
}

/// Says what is wrong with an object of ACK's, in its own words.
pub(super) fn explain(object: &Value) -> String {
    let list = object.pointer("/status/conditions").and_then(Value::as_array);
    let bad = [TERMINAL, RECOVERABLE].into_iter().find_map(|kind| {
        let mut found = list.into_iter().flatten();
        found.find(|condition| condition["type"] == kind && condition["status"] == "True")
    });
    let said = bad.and_then(|condition| condition["message"].as_str());
    said.map(|said| format!(": {said}")).unwrap_or_default()
}

/// True if a value has every field of another, with its value.
fn includes(found: &Value, desired: &Value) -> bool {
    match (found, desired) {
        (Value::Object(found), Value::Object(desired)) => {
            desired.iter().all(|(key, value)| found.get(key).is_some_and(|known| includes(known, value)))
        }
        (Value::Array(found), Value::Array(desired)) => {
            found.len() == desired.len()
                && found.iter().zip(desired).all(|(found, desired)| includes(found, desired))
        }
        (found, desired) => found == desired,
    }
}

/// Returns the name of an object for a host name: dots become dashes, `*` becomes `wildcard`.
pub(super) fn child_name(domain: &str) -> String {
    domain.to_lowercase().replace('*', "wildcard").replace('.', "-")
}

/// A failure for a spec that lacks what a phase needs.
pub(super) fn missing_field(field: &str) -> Failure {
    Failure::Terminal(format!("missing field: {field}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn child_names_are_names_of_objects() {
        assert_eq!(child_name("*.example.com"), "wildcard-example-com");
        assert_eq!(child_name("api.Example.com"), "api-example-com");
    }

    #[test]
    fn fields_that_others_added_are_no_difference() {
        let found = json!({"spec": {"a": 1, "late": 2, "list": [{"b": 1, "c": 2}]}, "status": {}});
        assert!(includes(&found, &json!({"spec": {"a": 1, "list": [{"b": 1}]}})));
        assert!(!includes(&found, &json!({"spec": {"a": 2}})));
        assert!(!includes(&found, &json!({"spec": {"list": []}})));
    }
}
