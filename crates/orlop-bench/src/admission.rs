//! Admission: the cost of policies for one write, without the rest of the request.

use std::{
    hint::black_box,
    sync::Arc,
    time::{Duration, Instant},
};

use async_trait::async_trait;
use orlop_admission::{
    Admission, AdmissionRequest, Operation, Reinvocation,
    listers::{Listers, Resource, Snapshot},
    matching::{Equivalent, ObjectInterfaces},
    policy::{PolicyMetrics, validating::ValidatingAdmissionPolicy},
};
use orlop_api::{
    group_version::{GroupVersionKind, GroupVersionResource},
    status::Status,
    user::UserInfo,
    warnings::Warnings,
};
use orlop_auth::{UnionAuthorizer, request::Attributes};
use serde_json::{Value, json};

use crate::report::Report;

/// Writes between two looks at the clock.
const ROUND: u32 = 1_000;

pub(crate) async fn run(report: &mut Report, time: Duration) -> anyhow::Result<()> {
    let three = [
        "object.spec.replicas <= 10",
        "object.spec.template.spec.containers.all(c, c.image.startsWith('registry.example.com/'))",
        "has(object.metadata.labels) && 'team' in object.metadata.labels",
    ];
    let one = policy_cost(&three[..1], time).await?;
    let all = policy_cost(&three, time).await?;
    report.alone("admission: policy of one expression, a write", "us", one);
    report.alone("admission: policy of three expressions, a write", "us", all);
    Ok(())
}

/// Returns the microseconds that a policy of these expressions costs a write.
async fn policy_cost(expressions: &[&str], time: Duration) -> anyhow::Result<f64> {
    let listers = Arc::new(Objects::new(expressions));
    let plugin = ValidatingAdmissionPolicy::new(
        listers,
        Arc::new(NoKinds),
        UnionAuthorizer::default(),
        PolicyMetrics::default(),
    );
    let attributes = Attributes {
        user: Arc::new(UserInfo::authenticated("bench", [])),
        is_resource_request: true,
        group: "apps".to_owned(),
        version: "v1".to_owned(),
        resource: "deployments".to_owned(),
        namespace: "default".to_owned(),
        ..Attributes::default()
    };
    let (kind, warnings) = (GroupVersionKind::new("apps", "v1", "Deployment"), Warnings::default());
    let (options, reinvocation) = (|| json!({"kind": "CreateOptions"}), Reinvocation::default());
    let request = AdmissionRequest {
        operation: Operation::Create,
        attributes: &attributes,
        name: "web".into(),
        kind: &kind,
        options: &options,
        dry_run: false,
        warnings: &warnings,
        audit: None,
        reinvocation: &reinvocation,
        deadline: None,
    };
    let container = |name: &str| json!({"name": name, "image": "registry.example.com/app:1"});
    let object = json!({"apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": "web", "namespace": "default", "labels": {"team": "a"}},
        "spec": {"replicas": 3, "template": {"spec": {"containers": [container("a"), container("b")]}}}});
    let mut writes = 0;
    let started = Instant::now();
    while started.elapsed() < time {
        for _ in 0..ROUND {
            let validated = plugin.validate(&request, Some(black_box(&object)), None).await;
            validated.map_err(|status| anyhow::anyhow!(status.message))?;
        }
        writes += ROUND;
    }
    Ok(started.elapsed().as_secs_f64() * 1e6 / f64::from(writes))
}

/// A policy, its binding and a namespace, in memory.
#[derive(Debug)]
struct Objects {
    policies: Arc<Snapshot>,
    bindings: Arc<Snapshot>,
    namespaces: Arc<Snapshot>,
}

impl Objects {
    fn new(expressions: &[&str]) -> Self {
        let snapshot = |name: &str, object: Value| {
            let mut snapshot = Snapshot::default();
            snapshot.apply(name, Some(object));
            Arc::new(snapshot)
        };
        let validations: Vec<Value> =
            expressions.iter().map(|expression| json!({"expression": expression})).collect();
        let rules = json!([{"operations": ["CREATE", "UPDATE"], "apiGroups": ["apps"], "apiVersions": ["v1"], "resources": ["deployments"]}]);
        let policy = json!({"metadata": {"name": "p"}, "spec": {"failurePolicy": "Fail", "validations": validations,
            "matchConstraints": {"matchPolicy": "Equivalent", "resourceRules": rules}}});
        let binding =
            json!({"metadata": {"name": "b"}, "spec": {"policyName": "p", "validationActions": ["Deny"]}});
        let namespace = json!({"metadata": {"name": "default"}, "status": {"phase": "Active"}});
        Self {
            policies: snapshot("p", policy),
            bindings: snapshot("b", binding),
            namespaces: snapshot("default", namespace),
        }
    }
}

#[async_trait]
impl Listers for Objects {
    async fn get(&self, resource: Resource<'_>, _: &str, name: &str) -> Result<Option<Arc<Value>>, Status> {
        Ok(self.loaded(resource).and_then(|snapshot| snapshot.get("", name).cloned()))
    }

    async fn list(&self, resource: Resource<'_>) -> Result<Arc<Snapshot>, Status> {
        Ok(self.loaded(resource).unwrap_or_default())
    }

    fn loaded(&self, resource: Resource<'_>) -> Option<Arc<Snapshot>> {
        match resource.resource {
            "validatingadmissionpolicies" => Some(self.policies.clone()),
            "validatingadmissionpolicybindings" => Some(self.bindings.clone()),
            "namespaces" => Some(self.namespaces.clone()),
            _ => None,
        }
    }

    async fn list_namespace(&self, _: Resource<'_>, _: &str) -> Result<Vec<Arc<Value>>, Status> {
        Ok(Vec::new())
    }

    fn resource_of(&self, _: &str, _: &str, _: &str) -> Option<(GroupVersionResource, bool)> {
        None
    }
}

/// A cluster in which no kind has another version.
#[derive(Debug)]
struct NoKinds;

#[async_trait]
impl ObjectInterfaces for NoKinds {
    fn equivalents(&self, _: &GroupVersionResource, _: &str) -> Vec<Equivalent> {
        Vec::new()
    }

    async fn convert(&self, object: Value, _: &GroupVersionKind) -> Result<Value, Status> {
        Ok(object)
    }

    fn decode(&self, object: Value, _: &GroupVersionKind) -> Result<Value, String> {
        Ok(object)
    }
}
