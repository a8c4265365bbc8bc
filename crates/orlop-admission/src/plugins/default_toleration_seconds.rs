//! DefaultTolerationSeconds: pods stay for some minutes on a node that is not ready or cannot be reached.

use async_trait::async_trait;
use orlop_api::status::Status;
use orlop_kinds::accessors::{list, text};
use serde_json::{Value, json};

use super::{
    Settings,
    pods::{PODS, push, spec_mut},
};
use crate::{Admission, AdmissionRequest, Operation, Phase, Resources};

/// Adds tolerations to pods.
#[derive(Debug)]
pub(super) struct DefaultTolerationSeconds {
    /// Keys of taints, and the time for which they are tolerated.
    seconds: [(&'static str, i64); 2],
}

impl DefaultTolerationSeconds {
    pub(super) fn new(settings: &Settings) -> Self {
        Self {
            seconds: [
                ("node.kubernetes.io/not-ready", settings.not_ready_toleration_seconds),
                ("node.kubernetes.io/unreachable", settings.unreachable_toleration_seconds),
            ],
        }
    }
}

#[async_trait]
impl Admission for DefaultTolerationSeconds {
    fn resources(&self) -> Resources {
        Resources::Only(PODS)
    }

    fn handles(&self, phase: Phase, operation: Operation) -> bool {
        phase == Phase::Mutating && matches!(operation, Operation::Create | Operation::Update)
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
        let tolerates = |taint: &str| {
            list(pod, "/spec/tolerations").iter().any(|toleration| {
                let (key, effect) = (text(toleration, "/key"), text(toleration, "/effect"));
                (key == taint || key.is_empty()) && (effect == "NoExecute" || effect.is_empty())
            })
        };
        let missing: Vec<Value> = self
            .seconds
            .iter()
            .filter(|(taint, _)| !tolerates(taint))
            .map(|(taint, seconds)| {
                json!({"key": taint, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": seconds})
            })
            .collect();
        let spec = spec_mut(pod);
        missing.into_iter().for_each(|toleration| push(spec, "tolerations", toleration));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plugins::testing::Run;

    #[tokio::test]
    async fn missing_tolerations_are_added() {
        let plugin = DefaultTolerationSeconds::new(&Settings::default());
        let tolerations = |given: Value| {
            let (run, plugin) = (Run::create("", "pods"), &plugin);
            async move {
                let pod = run.mutate(plugin, json!({"spec": {"tolerations": given}})).await.unwrap();
                pod["spec"]["tolerations"].clone()
            }
        };
        let unreachable = json!({"key": "node.kubernetes.io/unreachable", "operator": "Exists",
            "effect": "NoExecute", "tolerationSeconds": 300});
        let own = json!({"key": "node.kubernetes.io/not-ready", "operator": "Exists"});
        assert_eq!(tolerations(json!([own])).await, json!([own, unreachable]));
        assert_eq!(tolerations(json!([])).await.as_array().unwrap().len(), 2);
        let all = json!([{"operator": "Exists"}]);
        assert_eq!(tolerations(all.clone()).await, all);
    }
}
