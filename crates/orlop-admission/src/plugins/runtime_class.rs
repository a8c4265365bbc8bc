//! RuntimeClass: gives pods the overhead and the scheduling of their runtime class.

use std::sync::Arc;

use async_trait::async_trait;
use orlop_api::status::Status;
use orlop_kinds::accessors::{list, map, present, text};
use orlop_quota::ResourceList;
use serde_json::{Map, Value};

use super::{
    pods::{PODS, spec_mut},
    tolerations,
};
use crate::{
    Admission, AdmissionRequest, Operation, Phase, Resources,
    listers::{Listers, RUNTIME_CLASSES},
};

const OTHER_OVERHEAD: &str = "pod rejected: Pod's Overhead doesn't match RuntimeClass's defined Overhead";

/// Applies runtime classes.
#[derive(Debug)]
pub(super) struct RuntimeClass {
    listers: Arc<dyn Listers>,
}

impl RuntimeClass {
    pub(super) fn new(listers: Arc<dyn Listers>) -> Self {
        Self { listers }
    }

    async fn class(&self, request: &AdmissionRequest<'_>, pod: &Value) -> Result<Option<Arc<Value>>, Status> {
        let Some(name) = present(pod, "/spec/runtimeClassName").and_then(Value::as_str) else {
            return Ok(None);
        };
        let classes = self.listers.list(RUNTIME_CLASSES).await?;
        match classes.get("", name) {
            Some(class) => Ok(Some(class.clone())),
            None => Err(request.forbidden(pod, format!("pod rejected: RuntimeClass {name:?} not found"))),
        }
    }
}

#[async_trait]
impl Admission for RuntimeClass {
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
        let Some(class) = self.class(request, pod).await? else { return Ok(()) };
        if present(&class, "/overhead").is_some() {
            let (fixed, given) =
                (ResourceList::of(&class, "/overhead/podFixed"), ResourceList::of(pod, "/spec/overhead"));
            if !given.is_empty() && given != fixed {
                return Err(request.forbidden(pod, OTHER_OVERHEAD));
            }
            let overhead = map(&class, "/overhead/podFixed").clone();
            spec_mut(pod).insert("overhead".into(), Value::Object(overhead));
        }
        if present(&class, "/scheduling").is_some() {
            let selector = merged_selector(pod, &class).map_err(|why| request.forbidden(pod, why))?;
            let tolerations =
                tolerations::merge(list(pod, "/spec/tolerations"), list(&class, "/scheduling/tolerations"));
            let spec = spec_mut(pod);
            if !selector.is_empty() {
                spec.insert("nodeSelector".into(), Value::Object(selector));
            }
            if !tolerations.is_empty() {
                spec.insert("tolerations".into(), tolerations.into());
            }
        }
        Ok(())
    }

    async fn validate(
        &self,
        request: &AdmissionRequest<'_>,
        pod: Option<&Value>,
        _old: Option<&Value>,
    ) -> Result<(), Status> {
        let Some(pod) = pod.filter(|_| request.subresource().is_empty()) else { return Ok(()) };
        let class = self.class(request, pod).await?;
        let overhead = class.as_ref().filter(|class| present(class, "/overhead").is_some());
        match overhead {
            Some(class) => {
                let (fixed, given) =
                    (ResourceList::of(class, "/overhead/podFixed"), ResourceList::of(pod, "/spec/overhead"));
                if fixed != given {
                    return Err(request.forbidden(pod, OTHER_OVERHEAD));
                }
            }
            None if present(pod, "/spec/overhead").is_some() => {
                let why =
                    "pod rejected: Pod Overhead set without corresponding RuntimeClass defined Overhead";
                return Err(request.forbidden(pod, why));
            }
            None => {}
        }
        Ok(())
    }
}

fn merged_selector(pod: &Value, class: &Value) -> Result<Map<String, Value>, String> {
    let mut selector = map(pod, "/spec/nodeSelector").clone();
    for (key, value) in map(class, "/scheduling/nodeSelector") {
        let value_text = value.as_str().unwrap_or_default();
        if let Some(given) = selector.get(key).filter(|given| *given != value) {
            let given = text(given, "");
            return Err(format!(
                "conflict: runtimeClass.scheduling.nodeSelector[{key}] = {value_text}; pod.spec.nodeSelector[{key}] = \
                 {given}"
            ));
        }
        selector.insert(key.clone(), value.clone());
    }
    Ok(selector)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::plugins::testing::{FakeListers, Run, message};

    async fn create(spec: Value) -> Result<Value, Status> {
        let class = json!({"metadata": {"name": "vm"}, "overhead": {"podFixed": {"cpu": "100m"}},
            "scheduling": {"nodeSelector": {"vm": "yes"}, "tolerations": [{"key": "vm", "operator": "Exists"}]}});
        let plugin = RuntimeClass::new(FakeListers::with(&[(RUNTIME_CLASSES, "", class)]));
        let pod = json!({"metadata": {"name": "p"}, "spec": spec});
        Ok(Run::create("", "pods").mutate(&plugin, pod).await?["spec"].clone())
    }

    #[tokio::test]
    async fn class_sets_overhead_and_scheduling() {
        let spec = create(json!({"runtimeClassName": "vm", "nodeSelector": {"a": "b"}})).await.unwrap();
        assert_eq!(spec["overhead"], json!({"cpu": "100m"}));
        assert_eq!(spec["nodeSelector"], json!({"a": "b", "vm": "yes"}));
        assert_eq!(spec["tolerations"], json!([{"key": "vm", "operator": "Exists"}]));
        assert_eq!(create(json!({})).await.unwrap(), json!({}));
    }

    #[tokio::test]
    async fn other_values_are_forbidden() {
        let refused = |spec: Value| async move { message(create(spec).await) };
        assert_eq!(
            refused(json!({"runtimeClassName": "x"})).await,
            "pods \"p\" is forbidden: pod rejected: RuntimeClass \"x\" not found"
        );
        assert!(
            refused(json!({"runtimeClassName": "vm", "overhead": {"cpu": "1"}}))
                .await
                .ends_with(OTHER_OVERHEAD)
        );
        assert!(
            refused(json!({"overhead": {"cpu": "1"}}))
                .await
                .contains("set without corresponding RuntimeClass")
        );
        assert!(refused(json!({"runtimeClassName": "vm", "nodeSelector": {"vm": "no"}})).await.ends_with(
            "conflict: runtimeClass.scheduling.nodeSelector[vm] = yes; pod.spec.nodeSelector[vm] = no"
        ));
    }
}
