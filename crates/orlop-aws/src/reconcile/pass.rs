//! One pass over one object.

use std::{collections::BTreeMap, time::Duration};

use orlop_controllers::runtime::Action;
use serde_json::{Value, json};

use super::{
    EXISTS, End, Reconciler, Stop, adoption,
    adoption::Policy,
    annotations::Annotations,
    export,
    late_initialize::{self, Late},
    tags,
};
use crate::{
    client::{Failure, Priority, Result, Session, optional},
    cluster::{Resource, text},
    conditions::{Conditions, LATE_INITIALIZED, RECOVERABLE, SYNCED},
    fields::{Difference, compare},
    kind::{Deletion, Kind, Object, Observed, Tags, at},
    objects::{ObjectKey, deleted_for, finalizers, has_finalizer},
    references::{self, Resolved, Unresolved},
};

/// Reads after a create that may still find nothing.
const READ_AFTER_CREATE: [u64; 6] = [50, 200, 500, 1500, 3000, 5000];
/// Wait for a field that AWS has not defaulted yet.
const LATE_RETRY: Duration = Duration::from_secs(5);
/// Reads after an update for AWS to show it.
const READ_AFTER_UPDATE: [u64; 3] = [0, 200, 800];

pub(super) struct Pass<'a> {
    reconciler: &'a Reconciler,
    kind: &'static dyn Kind,
    key: &'a ObjectKey,
    resource: &'a Resource,
    /// The object as last read or written.
    pub(super) object: Value,
    annotations: Annotations,
    /// Status fields without conditions: what is known so far.
    pub(super) status: Value,
    pub(super) resolved: Resolved,
    /// The selector that chose the role.
    pub(super) selector: Option<String>,
    system_tags: Vec<(String, String)>,
    priority: Priority,
}

impl<'a> Pass<'a> {
    pub(super) fn new(
        reconciler: &'a Reconciler,
        kind: &'static dyn Kind,
        key: &'a ObjectKey,
        resource: &'a Resource,
        object: Value,
        annotations: Annotations,
        priority: Priority,
    ) -> Self {
        let mut status = object.get("status").cloned().unwrap_or_else(|| json!({}));
        if let Some(fields) = status.as_object_mut() {
            fields.remove("conditions");
        }
        let settings = &reconciler.accounts.settings;
        let system_tags = tags::expand(&settings.tags, kind.descriptor().service.name, &object);
        let resolved = Resolved::default();
        Self {
            reconciler,
            kind,
            key,
            resource,
            object,
            annotations,
            status,
            resolved,
            selector: None,
            system_tags,
            priority,
        }
    }

    /// Brings the resource in line with the object.
    pub(super) async fn run(&mut self) -> std::result::Result<Option<End>, Stop> {
        let descriptor = self.kind.descriptor();
        let finalizer = descriptor.finalizer();
        let managed = has_finalizer(&self.object, &finalizer);
        let adopting = match &self.annotations.adoption_policy {
            Some(text) if !self.annotations.adopted && !managed => Some(adoption::policy(text)?),
            _ => None,
        };
        let aws = self.session().await?;
        let mut desired = self.desired();
        if let Some(policy) = adopting {
            adoption::populate(
                descriptor,
                policy,
                self.annotations.adoption_fields.as_deref(),
                &mut desired,
            )?;
        }
        let lenient = adopting == Some(Policy::Adopt) || self.annotations.read_only;
        self.resolve(&mut desired, lenient).await?;
        if !lenient {
            self.kind.validate(&desired)?;
        }
        if let Some(known) = &self.annotations.identity
            && let Some((field, old)) = adoption::changed_identity(descriptor, known, &desired.spec)
        {
            return Err(Failure::Terminal(format!("{field} is immutable; the AWS resource is {old}")).into());
        }
        let tagged = !self.annotations.read_only && !self.annotations.adopted && adopting.is_none();
        if tagged {
            tags::add(descriptor.tags, &mut desired, &self.system_tags);
        }
        let mut observed = self.read(&aws, &desired).await?;
        if observed.is_none() && managed {
            // An earlier pass may have created it without living to note its identifier.
            desired.claimed = self.claimed().await?;
            if let Some(found) = self.find(&aws, &desired).await? {
                self.persist_identifiers(&aws, &mut desired, found).await?;
                observed = self.read(&aws, &desired).await?;
            }
        }
        let observed = match observed {
            None => {
                if self.annotations.read_only {
                    return Err(Failure::Recoverable("read-only resource not found".to_owned()).into());
                }
                if adopting == Some(Policy::Adopt) || (self.annotations.adopted && adopting.is_none()) {
                    return Err(Failure::Recoverable("adopted resource not found".to_owned()).into());
                }
                if adopting.is_some() {
                    // Nothing to adopt: an ordinary create, tags and all.
                    tags::add(descriptor.tags, &mut desired, &self.system_tags);
                }
                self.create(&aws, &mut desired).await?
            }
            Some(observed) if self.annotations.read_only => {
                self.record(&aws, &observed);
                return Ok(Some(self.synced(&observed, Conditions::default())));
            }
            Some(observed) => match adopting {
                Some(policy) => {
                    self.adopt(policy, &mut desired, &observed).await?;
                    if policy == Policy::Adopt {
                        self.record(&aws, &observed);
                        return Ok(Some(self.synced(&observed, Conditions::default())));
                    }
                    observed
                }
                None if !managed => return Err(Failure::Terminal(EXISTS.to_owned()).into()),
                None => {
                    let foreign =
                        tags::uid(descriptor.tags, &observed.spec).is_some_and(|uid| uid != desired.uid);
                    let created = text(&self.object, "/status/ackResourceMetadata/ownerAccountID").is_some();
                    if foreign && !created && !self.annotations.adopted {
                        return Err(Failure::Terminal(EXISTS.to_owned()).into());
                    }
                    observed
                }
            },
        };
        self.record(&aws, &observed);
        let observed = self.converge(&aws, &desired, observed).await?;
        self.record(&aws, &observed);
        self.record_annotations(&desired).await?;
        let cluster = &self.reconciler.accounts.cluster;
        if let Some(note) =
            export::write(cluster, self.kind, &aws, &self.refreshed(&desired), &observed).await?
        {
            self.annotate(vec![note]).await?;
        }
        let mut conditions = Conditions::default();
        if !self.late_initialize(&observed, &mut conditions).await? && observed.pending.is_none() {
            let message = "Resource not synced".to_owned();
            let observed = Observed { pending: Some((message, LATE_RETRY)), ..observed };
            return Ok(Some(self.synced(&observed, conditions)));
        }
        Ok(Some(self.synced(&observed, conditions)))
    }

    /// Deletes the resource, and the finalizer once it is gone.
    pub(super) async fn delete(&mut self) -> std::result::Result<Option<End>, Stop> {
        let descriptor = self.kind.descriptor();
        let ended = self.delete_resource().await;
        let gone = match ended {
            Ok(gone) => gone,
            Err(Stop::Failed(failure)) if self.gives_up(&failure) => {
                let left = text(&self.object, "/status/ackResourceMetadata/arn")
                    .unwrap_or(&self.key.name)
                    .to_owned();
                let message = format!(
                    "deletion was given up; left behind in AWS: {} {left}: {failure}",
                    descriptor.kind
                );
                self.reconciler.event(&self.object, true, "LeftBehind", &message);
                tracing::warn!(kind = descriptor.kind, resource = left, "left behind in AWS");
                Deletion::Gone
            }
            Err(stop) => return Err(stop),
        };
        match gone {
            Deletion::Gone => {
                self.reconciler
                    .objects
                    .remove_finalizer(self.resource, &self.object, &descriptor.finalizer())
                    .await?;
                Ok(None)
            }
            Deletion::Pending(after) => {
                let mut conditions = Conditions::default();
                conditions.set(SYNCED, "False", "", "the resource is being deleted");
                let action = Action::After(self.reconciler.wait(after));
                Ok(Some(End { status: self.status.clone(), conditions, action, silent: false }))
            }
        }
    }

    async fn delete_resource(&mut self) -> std::result::Result<Deletion, Stop> {
        let descriptor = self.kind.descriptor();
        let aws = self.session().await?;
        let mut desired = self.desired();
        // The identity that it was created with, whatever the spec is by now.
        if let Some(Value::Object(known)) = &self.annotations.identity {
            for (field, value) in known {
                desired.spec[field] = value.clone();
            }
        }
        self.resolve(&mut desired, true).await?;
        let mut observed = self.read(&aws, &desired).await?;
        if observed.is_none() {
            desired.claimed = self.claimed().await?;
            let findable = descriptor
                .references
                .iter()
                .all(|reference| !reference.required || desired.spec(reference.field).is_some());
            if findable && let Some(found) = self.find(&aws, &desired).await? {
                merge(&mut desired.status, &found);
                observed = self.read(&aws, &desired).await?;
            }
        }
        let Some(observed) = observed else { return Ok(Deletion::Gone) };
        // It was never ours: the finalizer is older than the resource.
        let created = text(&self.object, "/status/ackResourceMetadata/ownerAccountID").is_some();
        let uid = tags::uid(descriptor.tags, &observed.spec);
        if !created && uid.is_some_and(|uid| uid != desired.uid) {
            return Ok(Deletion::Gone);
        }
        let deleted = self.kind.delete(&aws, &desired, &observed).await;
        let deletion = deleted.map_err(|failure| self.kind.translate(failure))?;
        if let Deletion::Pending(_) = deletion
            && self.read(&aws, &desired).await?.is_none()
        {
            self.reconciler.event(&self.object, false, "Deleted", "the AWS resource was deleted");
            return Ok(Deletion::Gone);
        }
        if deletion == Deletion::Gone {
            self.reconciler.event(&self.object, false, "Deleted", "the AWS resource was deleted");
        }
        Ok(deletion)
    }

    /// True if a deletion that cannot happen has been tried for long enough.
    fn gives_up(&self, failure: &Failure) -> bool {
        let limit = self.reconciler.accounts.settings.delete_timeout;
        let overdue = deleted_for(&self.object).is_some_and(|waited| waited >= limit);
        !limit.is_zero() && overdue && (failure.is_unreachable() || failure.is_denied())
    }

    // ---- steps ----

    async fn session(&mut self) -> Result<Session> {
        let descriptor = self.kind.descriptor();
        let accounts = &self.reconciler.accounts;
        let chosen = accounts
            .session(&self.object, descriptor.service.name, &descriptor.group(), descriptor.kind)
            .await?;
        self.selector = chosen.selector;
        Ok(chosen.session.with_priority(self.priority))
    }

    fn desired(&self) -> Object {
        let field = |pointer: &str| text(&self.object, pointer).unwrap_or_default().to_owned();
        Object {
            namespace: field("/metadata/namespace"),
            name: field("/metadata/name"),
            uid: field("/metadata/uid"),
            annotations: self.object.pointer("/metadata/annotations").cloned().unwrap_or_else(|| json!({})),
            spec: self.object.get("spec").cloned().unwrap_or_else(|| json!({})),
            status: self.status.clone(),
            claimed: Vec::new(),
            secrets: BTreeMap::new(),
        }
    }

    async fn resolve(&mut self, desired: &mut Object, lenient: bool) -> std::result::Result<(), Stop> {
        let descriptor = self.kind.descriptor();
        let accounts = &self.reconciler.accounts;
        let (cluster, cross) = (&accounts.cluster, accounts.settings.cross_namespace);
        let namespace = &desired.namespace;
        // A field that identity has filled needs no reference.
        let mut spec = desired.spec.clone();
        if lenient {
            for reference in descriptor.references {
                if at(&spec, reference.field).is_some() {
                    crate::kind::set(&mut spec, reference.reference, Value::Null);
                }
            }
        }
        let resolving =
            references::resolve(cluster, descriptor, namespace, cross, &mut spec, &mut self.resolved);
        match resolving.await {
            Ok(()) => {}
            Err(Unresolved::Failed(failure)) => return Err(Stop::Failed(failure)),
            Err(_) if lenient => {}
            Err(unresolved) => return Err(Stop::Unresolved(unresolved)),
        }
        desired.spec = spec;
        if !lenient {
            desired.secrets = references::secrets(cluster, descriptor, namespace, &desired.spec).await?;
        }
        Ok(())
    }

    async fn read(&self, aws: &Session, desired: &Object) -> Result<Option<Observed>> {
        self.kind.read(aws, desired).await.map_err(|failure| self.kind.translate(failure))
    }

    /// Finds a resource whose identifier was lost. What it would be part of may be gone.
    async fn find(&self, aws: &Session, desired: &Object) -> Result<Option<Value>> {
        let found = optional(self.kind.find(aws, desired).await, &[]);
        found.map(Option::flatten).map_err(|failure| self.kind.translate(failure))
    }

    /// Identifiers that other objects of the kind hold.
    async fn claimed(&self) -> Result<Vec<String>> {
        if self.kind.descriptor().tags != Tags::None {
            return Ok(Vec::new());
        }
        let all = self.reconciler.accounts.cluster.list(self.resource, "").await?;
        let others =
            all.iter().filter(|other| text(other, "/metadata/uid") != text(&self.object, "/metadata/uid"));
        let ids =
            others.flat_map(|other| other.get("status").and_then(Value::as_object).into_iter().flatten());
        Ok(ids.filter_map(|(_, value)| value.as_str().map(str::to_owned)).collect())
    }

    /// Adds the finalizer and the identity, before the first call of AWS that writes.
    async fn claim(&mut self, desired: &Object, adopted: bool, spec: Option<&Value>) -> Result<()> {
        let finalizer = self.kind.descriptor().finalizer();
        let mut all: Vec<Value> = finalizers(&self.object).cloned().collect();
        if !has_finalizer(&self.object, &finalizer) {
            all.push(json!(finalizer));
        }
        let identity = adoption::identity(self.kind.descriptor(), &desired.spec).to_string();
        let mut annotations = json!({"services.k8s.aws/identity": identity});
        if adopted {
            annotations["services.k8s.aws/adopted"] = json!("true");
        }
        let mut patch = json!({"metadata": {"finalizers": all, "annotations": annotations,
            "resourceVersion": text(&self.object, "/metadata/resourceVersion")}});
        if let Some(spec) = spec {
            patch["spec"] = spec.clone();
        }
        let at = (self.key.namespace.as_str(), self.key.name.as_str());
        self.object = self.reconciler.accounts.cluster.merge(self.resource, at, &patch).await?;
        Ok(())
    }

    /// Writes identifiers at once: a create whose identifier is lost would be made again.
    async fn persist_identifiers(&mut self, aws: &Session, desired: &mut Object, found: Value) -> Result<()> {
        if found.as_object().is_none_or(serde_json::Map::is_empty) {
            return Ok(());
        }
        merge(&mut desired.status, &found);
        merge(&mut self.status, &found);
        let mut status = self.status.clone();
        // The account and the region belong beside the ARN: the next process compares them with its own.
        if at(&status, "ackResourceMetadata").is_some() {
            merge(&mut status, &json!({"ackResourceMetadata": metadata(aws)}));
        }
        let at = (self.key.namespace.as_str(), self.key.name.as_str());
        self.reconciler.accounts.cluster.merge_status(self.resource, at, &json!({"status": status})).await?;
        if let Some(object) = self.object.as_object_mut() {
            let conditions = object.get("status").and_then(|status| status.get("conditions")).cloned();
            if let Some(conditions) = conditions {
                status["conditions"] = conditions;
            }
            object.insert("status".to_owned(), status);
        }
        Ok(())
    }

    async fn create(&mut self, aws: &Session, desired: &mut Object) -> std::result::Result<Observed, Stop> {
        self.claim(desired, false, None).await?;
        let created = self.kind.create(aws, desired).await.map_err(|failure| self.kind.translate(failure))?;
        self.persist_identifiers(aws, desired, created).await?;
        self.reconciler.event(&self.object, false, "Created", "the AWS resource was created");
        for wait in READ_AFTER_CREATE {
            if let Some(observed) = self.read(aws, desired).await? {
                return Ok(observed);
            }
            tokio::time::sleep(Duration::from_millis(wait)).await;
        }
        let attempts = READ_AFTER_CREATE.len();
        let text = format!("ReadOne call failed after a Create operation: number of attempts: {attempts}");
        Err(Failure::Recoverable(text).into())
    }

    async fn adopt(&mut self, policy: Policy, desired: &mut Object, observed: &Observed) -> Result<()> {
        let descriptor = self.kind.descriptor();
        let spec = (policy == Policy::Adopt).then(|| {
            let mut spec = observed.spec.clone();
            // What the annotation named and AWS does not repeat, such as the zone of a record.
            for (_, path) in descriptor.adoption {
                if let Some(path) = path.strip_prefix("spec.")
                    && at(&spec, path).is_none()
                    && let Some(value) = at(&desired.spec, path)
                {
                    crate::kind::set(&mut spec, path, value.clone());
                }
            }
            tags::strip(descriptor.tags, &mut spec, &self.system_tags);
            without_empty(&mut spec);
            spec
        });
        if let Some(spec) = &spec {
            merge(&mut desired.spec, spec);
        }
        self.claim(desired, true, spec.as_ref()).await?;
        self.annotations.adopted = true;
        self.reconciler.event(&self.object, false, "Adopted", "the AWS resource was adopted");
        Ok(())
    }

    fn differences(&self, desired: &Object, observed: &Observed) -> Vec<Difference> {
        let descriptor = self.kind.descriptor();
        let (mut wanted, mut seen) = (desired.clone(), observed.clone());
        if self.annotations.adopted {
            // Adopting changes nothing; tags of the system are neither added nor removed.
            tags::strip(descriptor.tags, &mut wanted.spec, &self.system_tags);
            tags::strip(descriptor.tags, &mut seen.spec, &self.system_tags);
        } else {
            tags::strip(descriptor.tags, &mut seen.spec, &[]);
        }
        let mut changed = compare(&descriptor.spec, &wanted.spec, &seen.spec);
        self.kind.refine(&wanted, &seen, &mut changed);
        changed
    }

    /// Updates what differs, and reads until AWS shows it.
    async fn converge(
        &mut self,
        aws: &Session,
        desired: &Object,
        mut observed: Observed,
    ) -> std::result::Result<Observed, Stop> {
        for _ in 0..3 {
            let changed = self.differences(desired, &observed);
            if changed.is_empty() {
                return Ok(observed);
            }
            let descriptor = self.kind.descriptor();
            if let Some(difference) =
                changed.iter().find(|difference| descriptor.identity.contains(&difference.field.as_str()))
            {
                let old = observed.spec.get(&difference.field).cloned().unwrap_or_default();
                let old = old.as_str().map_or_else(|| old.to_string(), str::to_owned);
                let message = format!("{} is immutable; the AWS resource has {old}", difference.path);
                return Err(Failure::Terminal(message).into());
            }
            let paths: Vec<&str> = changed.iter().map(|difference| difference.path.as_str()).collect();
            tracing::info!(kind = descriptor.kind, namespace = desired.namespace, name = desired.name, diff = ?paths,
                "desired resource state has changed");
            let updated = self.kind.update(aws, desired, &observed, &changed).await;
            updated.map_err(|failure| self.kind.translate(failure))?;
            self.reconciler.event(&self.object, false, "Updated", &format!("changed {}", paths.join(", ")));
            self.record_annotations(desired).await?;
            let mut left = changed;
            for wait in READ_AFTER_UPDATE {
                tokio::time::sleep(Duration::from_millis(wait)).await;
                if let Some(now) = self.read(aws, &self.refreshed(desired)).await? {
                    observed = now;
                }
                left = self.differences(&self.refreshed(desired), &observed);
                if left.is_empty() {
                    return Ok(observed);
                }
            }
            tracing::debug!(?left, "AWS does not show an update yet");
        }
        let left: Vec<String> =
            self.differences(desired, &observed).into_iter().map(|left| left.path).collect();
        Err(Failure::Recoverable(format!(
            "AWS still reports other values after an update: {}",
            left.join(", ")
        ))
        .into())
    }

    /// Returns the desired object with the annotations as they are by now.
    fn refreshed(&self, desired: &Object) -> Object {
        let annotations = self.object.pointer("/metadata/annotations").cloned().unwrap_or_else(|| json!({}));
        Object { annotations, ..desired.clone() }
    }

    /// Records in annotations what cannot be read back from AWS.
    async fn record_annotations(&mut self, desired: &Object) -> Result<()> {
        let wanted = self.kind.annotations(desired);
        self.annotate(wanted).await
    }

    async fn annotate(&mut self, wanted: Vec<(&'static str, String)>) -> Result<()> {
        let known = self.object.pointer("/metadata/annotations").cloned().unwrap_or_else(|| json!({}));
        let changed: Vec<_> =
            wanted.into_iter().filter(|(key, value)| known[key] != value.as_str()).collect();
        if changed.is_empty() {
            return Ok(());
        }
        let annotations: Value =
            Value::Object(changed.into_iter().map(|(key, value)| (key.to_owned(), json!(value))).collect());
        let at = (self.key.namespace.as_str(), self.key.name.as_str());
        let patch = json!({"metadata": {"annotations": annotations}});
        self.object = self.reconciler.accounts.cluster.merge(self.resource, at, &patch).await?;
        Ok(())
    }

    /// Shows fields that AWS has defaulted. False if some are still to come.
    async fn late_initialize(&mut self, observed: &Observed, conditions: &mut Conditions) -> Result<bool> {
        let descriptor = self.kind.descriptor();
        if descriptor.late.is_empty() {
            return Ok(true);
        }
        let cluster = &self.reconciler.accounts.cluster;
        match late_initialize::initialize(cluster, self.resource, descriptor, &self.object, observed).await? {
            Late::Complete(object) => {
                if let Some(object) = object {
                    self.object = object;
                }
                let done = "Late initialization successful";
                conditions.set(LATE_INITIALIZED, "True", done, done);
                Ok(true)
            }
            Late::Incomplete => {
                let message = "Late initialization did not complete, requeuing with delay of 5 seconds";
                conditions.set(LATE_INITIALIZED, "False", "Delayed Late Initialization", message);
                Ok(false)
            }
        }
    }

    /// Takes what was observed into the status to be written.
    fn record(&mut self, aws: &Session, observed: &Observed) {
        let known = self.kind.descriptor().status.iter().map(|field| field.name.clone());
        for field in known.collect::<Vec<_>>() {
            match observed.status.get(&field).filter(|value| !value.is_null()) {
                Some(value) => self.status[&field] = value.clone(),
                None => {
                    self.status.as_object_mut().map(|fields| fields.remove(&field));
                }
            }
        }
        let mut metadata = metadata(aws);
        let arn = observed
            .arn
            .clone()
            .or_else(|| at(&self.status, "ackResourceMetadata.arn")?.as_str().map(str::to_owned));
        if let Some(arn) = arn {
            metadata["arn"] = json!(arn);
        }
        self.status["ackResourceMetadata"] = metadata;
    }

    /// Ends a pass that found nothing more to do, or that waits for AWS.
    fn synced(&self, observed: &Observed, mut conditions: Conditions) -> End {
        let descriptor = self.kind.descriptor();
        let settings = &self.reconciler.accounts.settings;
        let action = if let Some(failed) = &observed.failed {
            conditions.set(RECOVERABLE, "True", "", failed);
            conditions.set(SYNCED, "False", "", "Resource not synced");
            Action::After(settings.wait(Duration::from_secs(30)))
        } else if let Some((message, after)) = &observed.pending {
            conditions.set(SYNCED, "False", "", message);
            Action::After(settings.wait(*after))
        } else {
            conditions.set(SYNCED, "True", "", "Resource synced successfully");
            let own = settings.resync_of.get(descriptor.kind).copied().or(descriptor.resync);
            // Objects that were made together do not come back together.
            Action::After(own.unwrap_or(settings.resync).mul_f64(0.95 + 0.1 * rand::random::<f64>()))
        };
        End { status: self.status.clone(), conditions, action, silent: false }
    }
}

/// Returns account, region and partition of a resource.
fn metadata(aws: &Session) -> Value {
    json!({"ownerAccountID": aws.account, "region": aws.region, "partition": aws.partition})
}

/// Merges an object into another.
fn merge(into: &mut Value, from: &Value) {
    match (into, from) {
        (Value::Object(into), Value::Object(from)) => {
            for (key, value) in from {
                merge(into.entry(key.clone()).or_insert(Value::Null), value);
            }
        }
        (into, from) => *into = from.clone(),
    }
}

/// Removes empty values: nulls, strings, lists and objects.
fn without_empty(value: &mut Value) {
    if let Value::Object(fields) = value {
        fields.values_mut().for_each(without_empty);
        fields.retain(|_, value| match value {
            Value::Null => false,
            Value::String(text) => !text.is_empty(),
            Value::Array(items) => !items.is_empty(),
            Value::Object(fields) => !fields.is_empty(),
            _ => true,
        });
    }
}
