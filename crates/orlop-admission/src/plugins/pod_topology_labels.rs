//! PodTopologyLabels: pods get the zone and region of their node as labels.

use std::sync::Arc;

use async_trait::async_trait;
use orlop_api::status::Status;
use orlop_kinds::accessors::{map, text};
use serde_json::Value;

use super::pods::{PODS, map_mut};
use crate::{
    Admission, AdmissionRequest, Operation, Phase, Resources,
    listers::{Listers, NODES},
};

const LABELS: &[&str] = &["topology.kubernetes.io/zone", "topology.kubernetes.io/region"];

/// Copies labels from nodes to pods.
#[derive(Debug)]
pub(super) struct PodTopologyLabels {
    listers: Arc<dyn Listers>,
}

impl PodTopologyLabels {
    pub(super) fn new(listers: Arc<dyn Listers>) -> Self {
        Self { listers }
    }
}

#[async_trait]
impl Admission for PodTopologyLabels {
    fn resources(&self) -> Resources {
        Resources::Only(PODS)
    }

    fn handles(&self, phase: Phase, operation: Operation) -> bool {
        (phase, operation) == (Phase::Mutating, Operation::Create)
    }

    async fn mutate(
        &self,
        request: &AdmissionRequest<'_>,
        object: &mut Value,
        _old: Option<&Value>,
    ) -> Result<(), Status> {
        // The labels of a binding become those of its pod.
        let node = match request.subresource() {
            "" => text(object, "/spec/nodeName"),
            "binding" if text(object, "/target/kind") == "Node" => text(object, "/target/name"),
            _ => return Ok(()),
        };
        if node.is_empty() {
            return Ok(());
        }
        let Some(node) = self.listers.get(NODES, "", node).await? else { return Ok(()) };
        let of_node = map(&node, "/metadata/labels");
        for label in LABELS {
            if let Some(value) = of_node.get(*label) {
                let metadata = map_mut(map_mut(object).entry("metadata").or_insert(Value::Null));
                let labels = map_mut(metadata.entry("labels").or_insert(Value::Null));
                labels.insert((*label).to_owned(), value.clone());
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::plugins::testing::{FakeListers, Run};

    #[tokio::test]
    async fn bound_pod_gets_zone_and_region() {
        let node =
            json!({"metadata": {"name": "n", "labels": {"topology.kubernetes.io/zone": "z", "x": "y"}}});
        let plugin = PodTopologyLabels::new(FakeListers::with(&[(NODES, "", node)]));
        let binding = json!({"metadata": {"name": "p"}, "target": {"kind": "Node", "name": "n"}});
        let bound = Run::create("", "pods").at("binding").mutate(&plugin, binding).await.unwrap();
        assert_eq!(bound["metadata"]["labels"], json!({"topology.kubernetes.io/zone": "z"}));
        let pod = json!({"metadata": {"labels": {"a": "b"}}, "spec": {"nodeName": "n"}});
        let created = Run::create("", "pods").mutate(&plugin, pod).await.unwrap();
        assert_eq!(created["metadata"]["labels"], json!({"a": "b", "topology.kubernetes.io/zone": "z"}));
    }
}
