//! Reconciles a ResourceGraphDefinition: compile, generate its CRD, issue a revision, serve its instances.

use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use orlop_api::time as api;
use orlop_controllers::runtime::Action;
use serde_json::{Value as Json, json};

use super::memory::Seen;
use super::revisions::{Revision, resources_status};
use super::watches::Selection;
use super::{Controller, Key, Served, crd_resource, definition_resource, instance_resource, now};
use crate::cluster::{Resource, Result, message};
use crate::conditions::{Conditions, Status};
use crate::crd;
use crate::definition::{DefinitionSpec, DeletionPolicy};
use crate::graph::{BuildError, Built, Graph, build, required_kinds};
use crate::kinds::Gvk;
use crate::metrics::{Count, Level, Time};
use crate::names;
use crate::plural::pluralize;

const REVISIONS: &str = "GraphRevisionsResolved";
const ACCEPTED: &str = "GraphAccepted";
const KIND: &str = "KindReady";
const CONTROLLER: &str = "ControllerReady";
const DEPENDENTS: &[&str] = &[REVISIONS, ACCEPTED, KIND, CONTROLLER];

/// The CRD after a pass.
enum CrdState {
    Established,
    /// It will be; its watch tells when.
    Establishing,
    /// It may not be written.
    Refused(String),
}

impl Controller {
    pub(super) async fn reconcile_definition(self: &Arc<Self>, name: &str) -> Result<Action> {
        let Some(definition) = self.cluster.get(&definition_resource(), None, name).await? else {
            self.definitions_seen.lock().unwrap_or_else(PoisonError::into_inner).remove(name);
            self.unserve(name);
            // Revisions of kro's own go with their definition once their finalizer does.
            self.revisions(name).await?;
            return Ok(Action::Done);
        };
        if definition.pointer("/metadata/deletionTimestamp").is_some() {
            return self.delete_definition(definition).await;
        }
        let definition = self.add_finalizer(&definition_resource(), definition).await?;
        // Noted before the work, so that the events of its own writes start nothing. A failure is tried again anyway.
        let seen = Seen::of(&definition["metadata"]);
        self.definitions_seen.lock().unwrap_or_else(PoisonError::into_inner).insert(name.to_owned(), seen);
        self.compile_and_serve(definition).await
    }

    async fn compile_and_serve(self: &Arc<Self>, definition: Json) -> Result<Action> {
        let text =
            |pointer: &str| definition.pointer(pointer).and_then(Json::as_str).unwrap_or_default().to_owned();
        let (name, uid) = (text("/metadata/name"), text("/metadata/uid"));
        let mut report = Report::new(&definition);
        let mut revisions = self.revisions(&name).await?;
        self.adopt_revisions(&definition, &revisions).await?;
        if let Some(newest) = revisions.first() {
            report.last_issued = report.last_issued.max(newest.number);
        }
        let built = match DefinitionSpec::from_json(&definition["spec"]) {
            Err(error) => Err(BuildError::Invalid(error)),
            Ok(spec) => self.compile(&name, &spec).await?.map(|built| (spec, built)),
        };
        let (spec, built) = match built {
            Ok(built) => built,
            Err(error) => {
                report.conditions.set(ACCEPTED, Status::False, "InvalidResourceGraph", &error.to_string());
                let missing = matches!(error, BuildError::MissingKind { .. });
                if missing {
                    self.waiting.lock().unwrap_or_else(PoisonError::into_inner).insert(name.clone());
                }
                self.serve_last_good(&name, &uid, &revisions).await?;
                self.report_served(&name, &mut report);
                self.write_report(definition, report).await?;
                // kube-apiserver publishes the schema of a kind some time after the last event of its CRD.
                return Ok(if missing { Action::Requeue } else { Action::Done });
            }
        };
        report.conditions.set(ACCEPTED, Status::True, "Valid", "resource graph and schema are valid");
        report.order = json!(built.graph.order);
        report.resources = resources_status(&built.graph);
        let kind = built.graph.gvk.kind.clone();

        // The CRD first: a revision whose CRD is refused must not be served.
        let wanted = crd::generate(&spec, &built, &uid);
        match self.ensure_crd(&definition, &wanted).await? {
            CrdState::Refused(error) => {
                self.metrics.count(Count::ActivationDeferred, &[]);
                report.conditions.set(KIND, Status::False, "Failed", &error);
                self.serve_last_good(&name, &uid, &revisions).await?;
                self.report_served(&name, &mut report);
                self.write_report(definition, report).await?;
                return Ok(Action::Done);
            }
            CrdState::Establishing => {
                report.conditions.set(
                    KIND,
                    Status::Unknown,
                    "Establishing",
                    "waiting for the CRD to be established",
                );
                self.write_report(definition, report).await?;
                return Ok(Action::Done);
            }
            CrdState::Established => {
                let text = format!("kind {kind} has been accepted and ready");
                report.conditions.set(KIND, Status::True, "Ready", &text);
            }
        }
        let hash = spec.hash();
        let newest = revisions.first().filter(|newest| newest.hash == hash).cloned();
        let revision = match newest {
            Some(newest) => {
                self.metrics.count(Count::RevisionResolutions, &[("result", "serve")]);
                newest
            }
            None => {
                let reason = if revisions.is_empty() { "no_revision" } else { "spec_changed" };
                self.metrics.count(Count::RevisionsIssued, &[("reason", reason)]);
                self.metrics.count(Count::RevisionResolutions, &[("result", "issue")]);
                let number = report.last_issued + 1;
                // The number is taken before it is used, so that it is never given twice.
                report.last_issued = number;
                let issued = self.issue_revision(&definition, &spec, &built.graph, number).await?;
                revisions.insert(0, issued.clone());
                issued
            }
        };
        self.serve(built.graph, revision.number, &hash, &uid);
        self.report_served(&name, &mut report);
        report.conditions.set(CONTROLLER, Status::True, "Running", "controller is running");
        self.write_report(definition, report).await?;
        self.collect_revisions(&revisions).await;
        Ok(Action::Done)
    }

    /// Reports the revision that is served, which may be older than the definition.
    fn report_served(&self, name: &str, report: &mut Report) {
        if let Some(served) = self.served_by(name) {
            let text = format!("revision {} compiled and active", served.revision);
            report.conditions.set(REVISIONS, Status::True, "Resolved", &text);
        }
    }

    async fn compile(
        &self,
        name: &str,
        spec: &DefinitionSpec,
    ) -> Result<std::result::Result<Built, BuildError>> {
        let kinds = self.cluster.kinds(&required_kinds(spec)).await?;
        let began = Instant::now();
        let built = build(name, spec, &kinds, self.settings.limits);
        let labels = [("name", name)];
        self.metrics.count(Count::Builds, &labels);
        self.metrics.took(Time::Build, &labels, began.elapsed());
        if built.is_err() {
            self.metrics.count(Count::BuildErrors, &labels);
        }
        let result = if built.is_ok() { "success" } else { "error" };
        self.metrics.count(Count::Compilations, &[("result", result)]);
        self.metrics.took(Time::Compile, &[("result", result)], began.elapsed());
        Ok(built)
    }

    /// After a restart with a broken definition: serves the newest revision that still compiles.
    async fn serve_last_good(self: &Arc<Self>, name: &str, uid: &str, revisions: &[Revision]) -> Result<()> {
        if self.served_by(name).is_some() {
            return Ok(());
        }
        self.metrics.count(Count::RegistryMisses, &[]);
        for revision in revisions {
            let Ok(spec) = DefinitionSpec::from_json(&revision.spec) else { continue };
            if let Ok(built) = self.compile(name, &spec).await? {
                self.serve(built.graph, revision.number, &revision.hash, uid);
                return Ok(());
            }
        }
        Ok(())
    }

    /// Serves a graph: watches its kinds, and reconciles its instances if it is another than before.
    fn serve(self: &Arc<Self>, graph: Graph, revision: i64, hash: &str, uid: &str) {
        let graph = Arc::new(graph);
        let key = (graph.gvk.group.clone(), graph.gvk.kind.clone());
        let served = Served { graph: graph.clone(), revision, hash: hash.to_owned(), uid: uid.to_owned() };
        let before = {
            let mut all = self.served.write().unwrap_or_else(PoisonError::into_inner);
            all.retain(|other, served| served.graph.name != graph.name || *other == key);
            let before = all.insert(key.clone(), Arc::new(served));
            self.metrics.set(Level::Kinds, &[], all.len());
            self.metrics.set(Level::Revisions, &[("state", "Active")], all.len());
            before
        };
        if before.as_ref().is_none_or(|before| before.revision != revision) {
            self.metrics.count(Count::RegistryTransitions, &[("from", "Pending"), ("to", "Active")]);
        }
        for node in &graph.nodes {
            let resource = Resource::from(&*node.kind);
            match node.role.is_managed() {
                true => self.watch_children(&resource),
                false => self.watch_external(&resource),
            }
        }
        self.watch_instances(&graph);
        if before.is_some_and(|before| before.hash != hash || before.revision != revision) {
            for instance in self.memories.instances(&key.0, &key.1) {
                self.queue.add(Key::Instance(instance));
            }
        }
    }

    fn unserve(&self, name: &str) {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner).remove(name);
        self.deleting.lock().unwrap_or_else(PoisonError::into_inner).remove(name);
        let mut served = self.served.write().unwrap_or_else(PoisonError::into_inner);
        let count = served.len();
        served.retain(|_, served| served.graph.name != name);
        self.metrics.add(Count::RegistryEvictions, &[], (count - served.len()) as u64);
        self.metrics.set(Level::Kinds, &[], served.len());
        self.metrics.set(Level::Revisions, &[("state", "Active")], served.len());
        let used = |resource: &Resource| {
            let graphs = || served.values().map(|served| &served.graph);
            graphs().any(|graph| instance_resource(graph) == *resource)
                || graphs()
                    .flat_map(|graph| &graph.nodes)
                    .any(|node| Resource::from(&*node.kind) == *resource)
                || [definition_resource(), super::revision_resource(), crd_resource()].contains(resource)
                || self.memories.uses(&resource.gvk)
        };
        self.watches.retain(|resource, selection| {
            let is_used = used(resource);
            if !is_used && selection == Selection::Owned {
                self.existing.forget(resource);
            }
            is_used
        });
    }

    /// Creates or updates the generated CRD.
    async fn ensure_crd(&self, definition: &Json, wanted: &Json) -> Result<CrdState> {
        let name = wanted.pointer("/metadata/name").and_then(Json::as_str).unwrap_or_default();
        let owner = definition.pointer("/metadata/name").and_then(Json::as_str).unwrap_or_default();
        let live = self.cluster.get(&crd_resource(), None, name).await?;
        let live = match live {
            None => match self.cluster.create(&crd_resource(), None, wanted).await {
                Ok(created) => created,
                Err(orlop_client::Error::Api(status)) if status.code == 422 || status.code == 400 => {
                    return Ok(CrdState::Refused(format!("failed to create CRD {name}: {}", status.message)));
                }
                Err(error) => return Err(error),
            },
            Some(live) => {
                let label =
                    |key: &str| live.pointer("/metadata/labels").and_then(|labels| labels.get(key)?.as_str());
                if label(names::OWNED) != Some("true") {
                    return Ok(CrdState::Refused(format!(
                        "failed to update CRD {name}: CRD already exists and is not owned by KRO"
                    )));
                }
                if let Some(other) = label(names::DEFINITION_NAME).filter(|other| *other != owner) {
                    return Ok(CrdState::Refused(format!(
                        "failed to update CRD {name}: CRD is owned by another ResourceGraphDefinition {other}"
                    )));
                }
                if crd::is_same(&live, wanted) {
                    live
                } else {
                    let annotations = definition.pointer("/metadata/annotations");
                    let allowed =
                        annotations.and_then(|annotations| annotations.get(names::ALLOW_BREAKING)?.as_str());
                    let changes = crd::breaking_changes(&live, wanted);
                    if !changes.is_empty() && allowed != Some("true") {
                        return Ok(CrdState::Refused(refusal(name, &changes)));
                    }
                    match self.cluster.merge(&crd_resource(), None, name, &patch(wanted)).await {
                        Ok(patched) => patched,
                        Err(orlop_client::Error::Api(status)) if status.code == 422 => {
                            return Ok(CrdState::Refused(format!(
                                "failed to update CRD {name}: {}",
                                status.message
                            )));
                        }
                        Err(error) => return Err(error),
                    }
                }
            }
        };
        let version = live.pointer("/metadata/resourceVersion").and_then(Json::as_str).unwrap_or_default();
        let conditions = live.pointer("/status/conditions").and_then(Json::as_array).into_iter().flatten();
        let established =
            |condition: &Json| condition["type"] == "Established" && condition["status"] == "True";
        if !conditions.into_iter().any(established) {
            return Ok(CrdState::Establishing);
        }
        let mut versions = self.crd_versions.lock().unwrap_or_else(PoisonError::into_inner);
        versions.insert(name.to_owned(), version.to_owned());
        Ok(CrdState::Established)
    }

    /// Adds the finalizer if it is missing.
    async fn add_finalizer(&self, resource: &Resource, object: Json) -> Result<Json> {
        let mut finalizers =
            object.pointer("/metadata/finalizers").and_then(Json::as_array).cloned().unwrap_or_default();
        if finalizers.iter().any(|finalizer| finalizer == names::FINALIZER) {
            return Ok(object);
        }
        finalizers.push(json!(names::FINALIZER));
        self.patch_finalizers(resource, &object, &finalizers).await
    }

    /// Removes the finalizer, unless the object changed since it was read; `false` if it had none.
    pub(super) async fn remove_finalizer(&self, resource: &Resource, object: &Json) -> Result<bool> {
        let finalizers =
            object.pointer("/metadata/finalizers").and_then(Json::as_array).cloned().unwrap_or_default();
        let kept: Vec<Json> =
            finalizers.iter().filter(|finalizer| **finalizer != names::FINALIZER).cloned().collect();
        if kept.len() < finalizers.len() {
            self.patch_finalizers(resource, object, &kept).await?;
        }
        Ok(kept.len() < finalizers.len())
    }

    async fn patch_finalizers(
        &self,
        resource: &Resource,
        object: &Json,
        finalizers: &[Json],
    ) -> Result<Json> {
        let text = |pointer: &str| object.pointer(pointer).and_then(Json::as_str);
        let patch = json!({"metadata": {
            "finalizers": finalizers, "resourceVersion": text("/metadata/resourceVersion")}});
        let name = text("/metadata/name").unwrap_or_default();
        self.cluster.merge(resource, text("/metadata/namespace"), name, &patch).await
    }

    async fn write_report(&self, mut definition: Json, report: Report) -> Result<()> {
        let status = report.status();
        if definition.get("status") == Some(&status) {
            return Ok(());
        }
        let state = |status: Option<&Json>| {
            status.and_then(|status| status["state"].as_str()).unwrap_or_default().to_owned()
        };
        let (from, to) = (state(definition.get("status")), state(Some(&status)));
        if from != to {
            let name = definition.pointer("/metadata/name").and_then(Json::as_str).unwrap_or_default();
            let labels = [("name", name), ("from", from.as_str()), ("to", to.as_str())];
            self.metrics.count(Count::DefinitionTransitions, &labels);
        }
        definition["status"] = status;
        match self.cluster.replace_status(&definition_resource(), &definition).await {
            Ok(_) => Ok(()),
            Err(error) => {
                tracing::debug!(error = message(&error), "the status of a definition could not be written");
                Err(error)
            }
        }
    }

    // ---- deletion ----

    async fn delete_definition(self: &Arc<Self>, definition: Json) -> Result<Action> {
        let text =
            |pointer: &str| definition.pointer(pointer).and_then(Json::as_str).unwrap_or_default().to_owned();
        let name = text("/metadata/name");
        let spec = DefinitionSpec::from_json(&definition["spec"]).unwrap_or_default();
        let crd_name = format!("{}.{}", pluralize(&spec.schema.kind.to_lowercase()), spec.schema.group);
        let crd = self.cluster.get(&crd_resource(), None, &crd_name).await?;
        let owner = crd.as_ref().and_then(|crd| {
            crd.pointer("/metadata/labels").and_then(|labels| labels.get(names::DEFINITION_NAME)?.as_str())
        });
        // A definition that never got its kind has nothing to wait for.
        if owner == Some(name.as_str()) {
            let gvk = Gvk {
                group: spec.schema.group.clone(),
                version: spec.schema.api_version.clone(),
                kind: spec.schema.kind.clone(),
            };
            let resource = Resource {
                gvk,
                plural: pluralize(&spec.schema.kind.to_lowercase()),
                namespaced: spec.schema.scope == crate::definition::Scope::Namespaced,
            };
            let instances = self.cluster.list(&resource, None, "").await?;
            let finalized = |instance: &&Json| {
                let finalizers = instance.pointer("/metadata/finalizers").and_then(Json::as_array);
                finalizers.into_iter().flatten().any(|finalizer| finalizer == names::FINALIZER)
            };
            let held: Vec<&Json> = instances.iter().filter(finalized).collect();
            if !held.is_empty() {
                if self.served_by(&name).is_none() {
                    let revisions = self.revisions(&name).await?;
                    self.serve_last_good(&name, &text("/metadata/uid"), &revisions).await?;
                }
                match spec.deletion_policy.unwrap_or_default() {
                    DeletionPolicy::Orphan => {
                        for instance in &held {
                            self.remove_finalizer(&resource, instance).await?;
                        }
                    }
                    policy => {
                        self.deleting.lock().unwrap_or_else(PoisonError::into_inner).insert(name.clone());
                        if policy == DeletionPolicy::Drain {
                            for instance in &held {
                                let text = |pointer: &str| instance.pointer(pointer).and_then(Json::as_str);
                                let (own, uid) = (text("/metadata/name"), text("/metadata/uid"));
                                let namespace = text("/metadata/namespace");
                                self.cluster
                                    .delete(
                                        &resource,
                                        namespace,
                                        own.unwrap_or_default(),
                                        uid.unwrap_or_default(),
                                    )
                                    .await?;
                            }
                        }
                        let count = held.len();
                        let kind = &spec.schema.kind;
                        let mut report = Report::new(&definition);
                        report.restore(&definition);
                        let wait = match policy {
                            DeletionPolicy::Drain => format!("{count} instances of {kind} are being deleted"),
                            _ => format!(
                                "{count} instances of {kind} remain: delete them, or set spec.deletionPolicy to Drain"
                            ),
                        };
                        report.conditions.set(CONTROLLER, Status::False, "InstancesRemain", &wait);
                        self.write_report(definition, report).await?;
                        return Ok(Action::Done);
                    }
                }
            }
            if self.settings.allow_crd_deletion
                && let Some(uid) = crd.as_ref().and_then(|crd| crd.pointer("/metadata/uid")?.as_str())
            {
                self.unserve(&name);
                self.cluster.delete(&crd_resource(), None, &crd_name, uid).await?;
            }
        }
        self.unserve(&name);
        self.remove_finalizer(&definition_resource(), &definition).await?;
        self.metrics.count(Count::DefinitionDeletions, &[("name", &name)]);
        let asked = api::Time::parse(&text("/metadata/deletionTimestamp"));
        let waited = asked.zip(api::Time::parse(&now())).map_or(0, |(asked, now)| now.seconds_since(asked));
        let waited = Duration::from_secs(u64::try_from(waited).unwrap_or(0));
        self.metrics.took(Time::DefinitionDeletion, &[("name", &name)], waited);
        Ok(Action::Done)
    }
}

/// The status of a definition in the making.
struct Report {
    conditions: Conditions,
    order: Json,
    resources: Json,
    last_issued: i64,
}

impl Report {
    fn new(definition: &Json) -> Self {
        let last_issued =
            definition.pointer("/status/lastIssuedRevision").and_then(Json::as_i64).unwrap_or(0);
        Self {
            conditions: Conditions::read(definition, DEPENDENTS, now()),
            order: Json::Null,
            resources: Json::Null,
            last_issued,
        }
    }

    /// Restores the graph that was reported before.
    fn restore(&mut self, definition: &Json) {
        self.order = definition.pointer("/status/topologicalOrder").cloned().unwrap_or_default();
        self.resources = definition.pointer("/status/resources").cloned().unwrap_or_default();
    }

    fn status(self) -> Json {
        let active = [ACCEPTED, KIND, CONTROLLER].iter().all(|kind| self.conditions.is_true(kind));
        let mut status = json!({
            "state": if active { "Active" } else { "Inactive" },
            "conditions": self.conditions.finish()});
        for (field, value) in [("topologicalOrder", self.order), ("resources", self.resources)] {
            if value.as_array().is_some_and(|list| !list.is_empty()) {
                status[field] = value;
            }
        }
        if self.last_issued > 0 {
            status["lastIssuedRevision"] = json!(self.last_issued);
        }
        status
    }
}

/// The text that refuses a breaking change, with the way out.
fn refusal(name: &str, changes: &[crd::Change]) -> String {
    const SHOWN: usize = 3;
    let mut texts: Vec<String> = changes
        .iter()
        .take(SHOWN)
        .map(|change| match change.path.is_empty() {
            true => change.message.clone(),
            false => format!("{} ({})", change.message, change.path),
        })
        .collect();
    if changes.len() > SHOWN {
        texts.push(format!("and {} more changes", changes.len() - SHOWN));
    }
    format!(
        "cannot update CRD {name}: breaking changes detected: {}; annotate the definition with {}: \"true\" to allow them",
        texts.join("; "),
        names::ALLOW_BREAKING
    )
}

/// The merge patch that makes a CRD what is wanted. Lists are replaced; names that went are removed.
fn patch(wanted: &Json) -> Json {
    let mut patch = json!({"metadata": {"labels": wanted["metadata"]["labels"]}, "spec": wanted["spec"]});
    if let Some(annotations) = wanted.pointer("/metadata/annotations") {
        patch["metadata"]["annotations"] = annotations.clone();
    }
    if let Some(names) = patch.pointer_mut("/spec/names").and_then(Json::as_object_mut) {
        for field in ["shortNames", "categories"] {
            names.entry(field).or_insert(Json::Null);
        }
    }
    patch
}
