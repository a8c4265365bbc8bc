//! A kind of ACK's, as declared by one file in `kinds`.

use std::{collections::BTreeMap, fmt::Debug, sync::LazyLock, time::Duration};

use async_trait::async_trait;
use serde_json::{Value, json};

use crate::{
    client::{Result, Service, Session},
    fields::{self, Difference, Field},
};

/// Tag with the UID of the object that an AWS resource was made for. A controller that was killed after a create finds
/// its resource again by it, and it distinguishes our resources from others of the same name.
pub(crate) const UID_TAG: &str = "services.k8s.aws/uid";

/// A field that may be given as a reference to another object.
#[derive(Debug)]
pub(crate) struct Reference {
    /// Path of the identifier below `spec`, such as `code.s3Bucket`. The reference is beside it.
    pub(crate) field: &'static str,
    /// Path of the reference below `spec`.
    pub(crate) reference: &'static str,
    /// Service and kind of the target.
    pub(crate) target: (&'static str, &'static str),
    /// Path of the identifier in the target, such as `status.apiID`.
    pub(crate) value: &'static str,
    /// Text before the identifier, such as `integrations/`.
    pub(crate) prefix: &'static str,
    /// One of the two must be given.
    pub(crate) required: bool,
    /// The reference is a list.
    pub(crate) list: bool,
}

impl Reference {
    /// Returns a reference that may be left out.
    pub(crate) const fn optional(
        field: &'static str,
        reference: &'static str,
        target: (&'static str, &'static str),
        value: &'static str,
    ) -> Self {
        Self { field, reference, target, value, prefix: "", required: false, list: false }
    }

    /// Returns a list of references that may be left out.
    pub(crate) const fn optional_list(
        field: &'static str,
        reference: &'static str,
        target: (&'static str, &'static str),
        value: &'static str,
    ) -> Self {
        Self { field, reference, target, value, prefix: "", required: false, list: true }
    }
}

/// Path of the ARN in a target.
pub(crate) const ARN: &str = "status.ackResourceMetadata.arn";

/// Static description of a kind.
#[derive(Debug)]
pub(crate) struct Descriptor {
    pub(crate) service: &'static Service,
    pub(crate) kind: &'static str,
    pub(crate) plural: &'static str,
    /// Fields of `spec` and `status`, in the notation of [`fields`].
    pub(crate) spec: LazyLock<Vec<Field>>,
    pub(crate) status: LazyLock<Vec<Field>>,
    /// Keys of the `adoption-fields` annotation, each with the path that it fills. Optional ones end in `?`.
    pub(crate) adoption: &'static [(&'static str, &'static str)],
    /// Identifying fields of `spec`: a change would make a second AWS resource.
    pub(crate) identity: &'static [&'static str],
    pub(crate) references: &'static [Reference],
    /// Codes of AWS that only a change of the object can help with.
    pub(crate) terminal: &'static [&'static str],
    /// Fields of `spec` that are late-initialized. Those that AWS may leave out end in `?`.
    pub(crate) late: &'static [&'static str],
    /// Path of tags in `spec`, and their form.
    pub(crate) tags: Tags,
    /// Resync period, if not the default.
    pub(crate) resync: Option<Duration>,
    /// Actions of the least-privilege policy.
    pub(crate) actions: &'static [&'static str],
    /// Printer columns: name, type, path.
    pub(crate) columns: &'static [(&'static str, &'static str, &'static str)],
}

/// Form of tags.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tags {
    None,
    /// `{key: value}` at a path.
    Map(&'static str),
    /// `[{key, value}]` at a path.
    List(&'static str),
}

impl Descriptor {
    pub(crate) fn group(&self) -> String {
        group_of(self.service.name)
    }

    pub(crate) fn finalizer(&self) -> String {
        format!("finalizers.{}/{}", self.group(), self.kind)
    }

    /// Returns the CustomResourceDefinition.
    pub(crate) fn definition(&self) -> Value {
        let mut status = fields::object_schema(&self.status);
        let text = json!({"type": "string"});
        status["properties"]["ackResourceMetadata"] = json!({"type": "object", "required": ["ownerAccountID", "region"],
            "properties": {"arn": text, "ownerAccountID": text, "region": text, "partition": text}});
        let mut columns: Vec<Value> = self
            .columns
            .iter()
            .map(|(name, kind, path)| json!({"name": name, "type": kind, "jsonPath": path}))
            .collect();
        let synced = ".status.conditions[?(@.type==\"ACK.ResourceSynced\")].status";
        columns.push(json!({"name": "Synced", "type": "string", "jsonPath": synced}));
        columns.push(json!({"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"}));
        let spec = fields::object_schema(&self.spec);
        fields::custom_resource_definition(
            &self.group(),
            (self.kind, self.plural),
            true,
            spec,
            status,
            Value::Array(columns),
            &[],
        )
    }
}

/// Returns the group of a service's kinds.
pub(crate) fn group_of(service: &str) -> String {
    format!("{service}.services.k8s.aws")
}

/// A resource as AWS has it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Observed {
    /// Fields of `spec`.
    pub(crate) spec: Value,
    /// Fields of `status`.
    pub(crate) status: Value,
    pub(crate) arn: Option<String>,
    /// Reason for not being synced although nothing differs, and the requeue delay.
    pub(crate) pending: Option<(String, Duration)>,
    /// A failure that AWS reports of its own work.
    pub(crate) failed: Option<String>,
}

/// An object as a kind sees it: references resolved, tags complete.
#[derive(Clone)]
pub(crate) struct Object {
    pub(crate) namespace: String,
    pub(crate) name: String,
    pub(crate) uid: String,
    pub(crate) annotations: Value,
    pub(crate) spec: Value,
    pub(crate) status: Value,
    /// Identifiers that other objects of the kind hold, for kinds without tags.
    pub(crate) claimed: Vec<String>,
    /// Values of the Secrets that fields of `spec` name, by field. They go to AWS and nowhere else.
    pub(crate) secrets: BTreeMap<String, String>,
}

impl Debug for Object {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Object")
            .field("namespace", &self.namespace)
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

impl Object {
    /// Returns a text of `spec`.
    pub(crate) fn spec(&self, path: &str) -> Option<&str> {
        at(&self.spec, path).and_then(Value::as_str).filter(|text| !text.is_empty())
    }

    /// Returns a text of `status`.
    pub(crate) fn status(&self, path: &str) -> Option<&str> {
        at(&self.status, path).and_then(Value::as_str).filter(|text| !text.is_empty())
    }

    /// Returns the ARN of `status`.
    pub(crate) fn arn(&self) -> Option<&str> {
        self.status("ackResourceMetadata.arn")
    }

    /// Returns a required text of `spec`; the schema or its reference has seen to it.
    pub(crate) fn need(&self, path: &str) -> &str {
        self.spec(path).unwrap_or_default()
    }
}

/// Returns a value by a path of names.
pub(crate) fn at<'a>(value: &'a Value, path: &str) -> Option<&'a Value> {
    path.split('.').try_fold(value, |value, name| value.get(name)).filter(|value| !value.is_null())
}

/// Sets a value by a path of names, with objects on the way.
pub(crate) fn set(value: &mut Value, path: &str, new: Value) {
    let mut current = value;
    for name in path.split('.') {
        if !current.is_object() {
            *current = json!({});
        }
        current = &mut current[name];
    }
    *current = new;
}

/// Something of a resource that goes to a Secret, and is not part of any read.
#[derive(Debug)]
pub(crate) struct Export {
    /// The field of `spec` that names the Secret, such as `exportTo`.
    pub(crate) field: &'static str,
    /// Keys of the Secret that are written.
    pub(crate) keys: Vec<String>,
    /// Annotation that records the last export, and its value now.
    pub(crate) note: (&'static str, String),
}

/// Outcome of a delete.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Deletion {
    Gone,
    /// The deletion is in progress; requeue after a time.
    Pending(Duration),
}

/// The calls and comparisons of a kind.
#[async_trait]
pub(crate) trait Kind: Debug + Send + Sync {
    fn descriptor(&self) -> &'static Descriptor;

    /// Refuses specs that no call could make sense of.
    fn validate(&self, _object: &Object) -> Result<()> {
        Ok(())
    }

    /// Reads the resource; `None` if it does not exist or its identifier is not known.
    async fn read(&self, aws: &Session, object: &Object) -> Result<Option<Observed>>;

    /// Creates the resource. Returns what of `status` identifies it, which is written before anything else happens.
    async fn create(&self, aws: &Session, object: &Object) -> Result<Value>;

    /// Finds a resource that a pass created whose status was never written.
    async fn find(&self, _aws: &Session, _object: &Object) -> Result<Option<Value>> {
        Ok(None)
    }

    /// Changes what differs. What needs another pass is a [`Failure::Wait`](crate::client::Failure::Wait).
    async fn update(
        &self,
        aws: &Session,
        object: &Object,
        observed: &Observed,
        changed: &[Difference],
    ) -> Result<()>;

    /// Deletes the resource.
    async fn delete(&self, aws: &Session, object: &Object, observed: &Observed) -> Result<Deletion>;

    /// Adds differences that the notation cannot express, and removes false ones.
    fn refine(&self, _object: &Object, _observed: &Observed, _changed: &mut Vec<Difference>) {}

    /// Annotations to set after a create or update, such as a hash of what cannot be read back.
    fn annotations(&self, _object: &Object) -> Vec<(&'static str, String)> {
        Vec::new()
    }

    /// Says what is to be in a Secret by now.
    fn exports(&self, _object: &Object, _observed: &Observed) -> Option<Export> {
        None
    }

    /// Returns the values of an export, in the order of its keys. They go to the Secret and nowhere else.
    async fn export(&self, _aws: &Session, _observed: &Observed) -> Result<Vec<String>> {
        Ok(Vec::new())
    }

    /// Turns a failure of a call into another: a wait where AWS is not ready yet.
    fn translate(&self, failure: crate::client::Failure) -> crate::client::Failure {
        failure
    }
}

/// Returns those fields that the object names, or that an annotation records from an earlier pass. What is read only on demand is
/// otherwise left in AWS when it leaves the spec.
pub(crate) fn recorded_fields(
    object: &Object,
    annotation: &str,
    fields: &[&'static str],
) -> Vec<&'static str> {
    let had = object.annotations.get(annotation).and_then(Value::as_str).unwrap_or_default();
    let is_known =
        |field: &&str| at(&object.spec, field).is_some() || had.split(',').any(|name| name == *field);
    fields.iter().copied().filter(is_known).collect()
}

/// Returns the annotation that records these fields, if there are any.
pub(crate) fn fields_annotation(
    annotation: &'static str,
    fields: &[&'static str],
) -> Vec<(&'static str, String)> {
    if fields.is_empty() { Vec::new() } else { vec![(annotation, fields.join(","))] }
}

/// True if a top-level field differs.
pub(crate) fn differs(changed: &[Difference], field: &str) -> bool {
    changed.iter().any(|difference| difference.field == field)
}

/// Returns tags of `spec.tags` that are new or have another value, and keys that are too many.
pub(crate) fn tag_changes(object: &Object, observed: &Observed) -> (Vec<(String, String)>, Vec<String>) {
    let (desired, observed) = (tags_of(object.spec.get("tags")), tags_of(observed.spec.get("tags")));
    let add = desired.iter().filter(|tag| !observed.contains(tag)).cloned().collect();
    let is_wanted = |key: &String| desired.iter().any(|(wanted, _)| wanted == key);
    let remove = observed
        .into_iter()
        .map(|(key, _)| key)
        .filter(|key| !key.starts_with("aws:") && !is_wanted(key))
        .collect();
    (add, remove)
}

/// Reads tags in either form.
pub(crate) fn tags_of(value: Option<&Value>) -> Vec<(String, String)> {
    let text = |value: Option<&Value>| value.and_then(Value::as_str).unwrap_or_default().to_owned();
    match value {
        Some(Value::Array(items)) => {
            items.iter().map(|item| (text(item.get("key")), text(item.get("value")))).collect()
        }
        Some(Value::Object(entries)) => {
            entries.iter().map(|(key, value)| (key.clone(), text(Some(value)))).collect()
        }
        _ => Vec::new(),
    }
}

/// Writes tags as AWS' list of `Key` and `Value`.
pub(crate) fn aws_tags(tags: &[(String, String)]) -> Value {
    tags.iter().map(|(key, value)| json!({"Key": key, "Value": value})).collect()
}

/// Writes tags as a map.
pub(crate) fn tag_map(tags: &[(String, String)]) -> Value {
    Value::Object(tags.iter().map(|(key, value)| (key.clone(), json!(value))).collect())
}
