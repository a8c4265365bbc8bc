//! TaintNodesByCondition: taints new nodes as not ready, until the node controller has seen that they are.

use async_trait::async_trait;
use orlop_api::status::Status;
use orlop_kinds::accessors::{list, text};
use serde_json::{Value, json};

use super::pods::{push, spec_mut};
use crate::{Admission, AdmissionRequest, Operation, Phase, Resources};

const NOT_READY: &str = "node.kubernetes.io/not-ready";

/// Taints new nodes.
#[derive(Debug)]
pub(super) struct TaintNodesByCondition;

#[async_trait]
impl Admission for TaintNodesByCondition {
    fn resources(&self) -> Resources {
        Resources::Only(&[("", "nodes")])
    }

    fn handles(&self, phase: Phase, operation: Operation) -> bool {
        (phase, operation) == (Phase::Mutating, Operation::Create)
    }

    async fn mutate(
        &self,
        request: &AdmissionRequest<'_>,
        node: &mut Value,
        _old: Option<&Value>,
    ) -> Result<(), Status> {
        let is_tainted = list(node, "/spec/taints")
            .iter()
            .any(|taint| text(taint, "/key") == NOT_READY && text(taint, "/effect") == "NoSchedule");
        if request.subresource().is_empty() && !is_tainted {
            push(spec_mut(node), "taints", json!({"key": NOT_READY, "effect": "NoSchedule"}));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plugins::testing::Run;

    #[tokio::test]
    async fn new_node_is_tainted_once() {
        let run = Run::create("", "nodes");
        let node = run.mutate(&TaintNodesByCondition, json!({"metadata": {"name": "n"}})).await.unwrap();
        assert_eq!(node["spec"]["taints"], json!([{"key": NOT_READY, "effect": "NoSchedule"}]));
        assert_eq!(run.mutate(&TaintNodesByCondition, node.clone()).await.unwrap(), node);
    }
}
