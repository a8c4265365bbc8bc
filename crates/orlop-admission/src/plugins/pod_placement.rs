//! PodNodeSelector and PodTolerationRestriction: where the pods of a namespace may run, by annotations of the namespace.

use std::sync::Arc;

use async_trait::async_trait;
use orlop_api::{group_version::GroupResource, status::Status};
use orlop_kinds::accessors::{list, map, text};
use serde_json::{Map, Value, json};

use super::{
    pods::{PODS, spec, spec_mut},
    tolerations,
};
use crate::{
    Admission, AdmissionRequest, Operation, Phase, Resources,
    listers::{Listers, NAMESPACES},
};

const NODE_SELECTOR: &str = "scheduler.alpha.kubernetes.io/node-selector";
const DEFAULT_TOLERATIONS: &str = "scheduler.alpha.kubernetes.io/defaultTolerations";
const ALLOWED_TOLERATIONS: &str = "scheduler.alpha.kubernetes.io/tolerationsWhitelist";

async fn namespace(listers: &dyn Listers, name: &str) -> Result<Arc<Value>, Status> {
    let found = listers.get(NAMESPACES, "", name).await?;
    found.ok_or_else(|| Status::not_found(&GroupResource::new("", "namespaces"), name))
}

/// Adds the node selector of the namespace to pods.
#[derive(Debug)]
pub(super) struct PodNodeSelector {
    listers: Arc<dyn Listers>,
    /// The default selector, and those that pods of a namespace may use.
    configuration: Map<String, Value>,
}

impl PodNodeSelector {
    pub(super) fn new(listers: Arc<dyn Listers>, configuration: &Value) -> Self {
        Self { listers, configuration: map(configuration, "/podNodeSelectorPluginConfig").clone() }
    }

    async fn selector(&self, name: &str) -> Result<Map<String, Value>, Status> {
        let namespace = namespace(&*self.listers, name).await?;
        let own = map(&namespace, "/metadata/annotations").get(NODE_SELECTOR);
        let selector = own.or_else(|| self.configuration.get("clusterDefaultNodeSelector"));
        parse_selector(selector.and_then(Value::as_str).unwrap_or_default())
    }

    async fn check(&self, request: &AdmissionRequest<'_>, pod: &Value) -> Result<(), Status> {
        let selector = self.selector(request.namespace()).await?;
        let given = map(pod, "/spec/nodeSelector");
        if conflicts(&selector, given) {
            let why = "pod node label selector conflicts with its namespace node label selector";
            return Err(request.forbidden(pod, why));
        }
        let allowed = self.configuration.get(request.namespace()).and_then(Value::as_str).unwrap_or_default();
        let allowed = parse_selector(allowed)?;
        if !allowed.is_empty() && !given.iter().all(|(key, value)| allowed.get(key) == Some(value)) {
            let why = "pod node label selector labels conflict with its namespace whitelist";
            return Err(request.forbidden(pod, why));
        }
        Ok(())
    }
}

/// Parses `key=value,key=value`.
fn parse_selector(text: &str) -> Result<Map<String, Value>, Status> {
    let mut selector = Map::new();
    for part in text.split(',').filter(|_| !text.is_empty()) {
        let Some((key, value)) = part.split_once('=') else {
            return Err(Status::plain(format!("invalid selector: [{}]", part.trim())));
        };
        selector.insert(key.trim().to_owned(), value.trim().into());
    }
    Ok(selector)
}

fn conflicts(one: &Map<String, Value>, other: &Map<String, Value>) -> bool {
    one.iter().any(|(key, value)| other.get(key).is_some_and(|given| given != value))
}

#[async_trait]
impl Admission for PodNodeSelector {
    fn resources(&self) -> Resources {
        Resources::Only(PODS)
    }

    fn handles(&self, _phase: Phase, operation: Operation) -> bool {
        operation == Operation::Create
    }

    async fn mutate(
        &self,
        request: &AdmissionRequest<'_>,
        pod: &mut Value,
        _old: Option<&Value>,
    ) -> Result<(), Status> {
        if !request.subresource().is_empty() {
            return Ok(());
        }
        let mut selector = self.selector(request.namespace()).await?;
        self.check(request, pod).await?;
        selector.extend(map(pod, "/spec/nodeSelector").clone());
        if !selector.is_empty() {
            spec_mut(pod).insert("nodeSelector".into(), Value::Object(selector));
        }
        self.check(request, pod).await
    }

    async fn validate(
        &self,
        request: &AdmissionRequest<'_>,
        pod: Option<&Value>,
        _old: Option<&Value>,
    ) -> Result<(), Status> {
        match pod.filter(|_| request.subresource().is_empty()) {
            Some(pod) => self.check(request, pod).await,
            None => Ok(()),
        }
    }
}

/// Adds the default tolerations of the namespace to pods, and holds those it allows.
#[derive(Debug)]
pub(super) struct PodTolerationRestriction {
    listers: Arc<dyn Listers>,
    default: Vec<Value>,
    allowed: Vec<Value>,
}

impl PodTolerationRestriction {
    pub(super) fn new(listers: Arc<dyn Listers>, configuration: &Value) -> Self {
        Self {
            listers,
            default: list(configuration, "/default").to_vec(),
            allowed: list(configuration, "/whitelist").to_vec(),
        }
    }

    /// Returns the tolerations in an annotation of the namespace; `None` if it has no such annotation.
    async fn annotated(&self, name: &str, key: &str) -> Result<Option<Vec<Value>>, Status> {
        let namespace = namespace(&*self.listers, name).await?;
        match map(&namespace, "/metadata/annotations").get(key).and_then(Value::as_str) {
            None => Ok(None),
            Some("") => Ok(Some(Vec::new())),
            Some(json) => {
                serde_json::from_str(json).map(Some).map_err(|error| Status::plain(error.to_string()))
            }
        }
    }

    async fn check(&self, request: &AdmissionRequest<'_>, pod: &Value) -> Result<(), Status> {
        let given = list(pod, "/spec/tolerations");
        if given.is_empty() {
            return Ok(());
        }
        let annotated = self.annotated(request.namespace(), ALLOWED_TOLERATIONS).await?;
        let scope = if annotated.is_some() { "namespace" } else { "cluster" };
        let allowed = annotated.unwrap_or_else(|| self.allowed.clone());
        if tolerations::are_allowed(given, &allowed) {
            return Ok(());
        }
        Err(Status::plain(format!(
            "pod tolerations (possibly merged with namespace default tolerations) conflict with its {scope} whitelist"
        )))
    }
}

/// Returns true if a container of the pod asks for processor time or memory.
fn has_requests(pod: &Value) -> bool {
    !orlop_quota::resources::is_best_effort(spec(pod))
}

#[async_trait]
impl Admission for PodTolerationRestriction {
    fn resources(&self) -> Resources {
        Resources::Only(PODS)
    }

    fn handles(&self, _phase: Phase, operation: Operation) -> bool {
        matches!(operation, Operation::Create | Operation::Update)
    }

    async fn mutate(
        &self,
        request: &AdmissionRequest<'_>,
        pod: &mut Value,
        _old: Option<&Value>,
    ) -> Result<(), Status> {
        if !request.subresource().is_empty() {
            return Ok(());
        }
        let mut extra = Vec::new();
        if request.operation == Operation::Create {
            let annotated = self.annotated(request.namespace(), DEFAULT_TOLERATIONS).await?;
            extra = annotated.unwrap_or_else(|| self.default.clone());
        }
        if has_requests(pod) {
            let key = "node.kubernetes.io/memory-pressure";
            extra.push(json!({"key": key, "operator": "Exists", "effect": "NoSchedule"}));
        }
        if !extra.is_empty() {
            let merged = tolerations::merge(list(pod, "/spec/tolerations"), &extra);
            spec_mut(pod).insert("tolerations".into(), merged.into());
        }
        self.check(request, pod).await
    }

    async fn validate(
        &self,
        request: &AdmissionRequest<'_>,
        pod: Option<&Value>,
        _old: Option<&Value>,
    ) -> Result<(), Status> {
        match pod.filter(|_| request.subresource().is_empty()) {
            Some(pod) => self.check(request, pod).await,
            None => Ok(()),
        }
    }
}

/// Returns an error of a configuration that names tolerations wrongly.
pub(super) fn check_tolerations(configuration: &Value) -> Result<(), String> {
    for field in ["/default", "/whitelist"] {
        for toleration in list(configuration, field) {
            if !matches!(text(toleration, "/operator"), "" | "Equal" | "Exists") {
                return Err(format!("{field}: unknown operator {:?}", text(toleration, "/operator")));
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plugins::testing::{FakeListers, Run, message};

    fn namespaces(key: &str, value: &str) -> Arc<FakeListers> {
        let namespace = json!({"metadata": {"name": "ns", "annotations": {key: value}}});
        FakeListers::with(&[(NAMESPACES, "", namespace)])
    }

    #[tokio::test]
    async fn pods_get_the_node_selector_of_their_namespace() {
        let plugin = PodNodeSelector::new(namespaces(NODE_SELECTOR, "env = test"), &Value::Null);
        let run = Run::create("", "pods");
        let pod = |selector: Value| json!({"metadata": {"name": "p"}, "spec": {"nodeSelector": selector}});
        let created = run.mutate(&plugin, pod(json!({"a": "b"}))).await.unwrap();
        assert_eq!(created["spec"]["nodeSelector"], json!({"a": "b", "env": "test"}));
        assert!(
            message(run.mutate(&plugin, pod(json!({"env": "live"}))).await)
                .ends_with("pod node label selector conflicts with its namespace node label selector")
        );
        let configuration = json!({"podNodeSelectorPluginConfig": {"ns": "env=test"}});
        let plugin = PodNodeSelector::new(namespaces("x", "y"), &configuration);
        assert!(
            message(run.mutate(&plugin, pod(json!({"a": "b"}))).await)
                .ends_with("pod node label selector labels conflict with its namespace whitelist")
        );
    }

    #[tokio::test]
    async fn pods_get_tolerations_and_may_not_have_others() {
        let default = r#"[{"key": "a", "operator": "Exists"}]"#;
        let plugin = PodTolerationRestriction::new(namespaces(DEFAULT_TOLERATIONS, default), &Value::Null);
        let run = Run::create("", "pods");
        let created = run.mutate(&plugin, json!({"spec": {}})).await.unwrap();
        assert_eq!(created["spec"]["tolerations"], json!([{"key": "a", "operator": "Exists"}]));
        let plugin = PodTolerationRestriction::new(namespaces(ALLOWED_TOLERATIONS, default), &Value::Null);
        let pod = json!({"spec": {"tolerations": [{"key": "b", "operator": "Exists"}]}});
        assert!(message(run.mutate(&plugin, pod).await).ends_with("conflict with its namespace whitelist"));
    }
}
