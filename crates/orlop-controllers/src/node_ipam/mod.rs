//! Gives nodes ranges of addresses for their pods (`spec.podCIDRs`), out of those of the cluster.

mod ranges;

use std::sync::Arc;

use k8s_openapi::api::{core::v1::Node, networking::v1::ServiceCIDR};
use orlop_client::{
    Api, Client, ResourceExt,
    api::{ListParams, Patch, PatchParams},
};
pub use ranges::{BadRange, Range};
use serde_json::json;

use crate::{
    runtime::{Action, Context, EventForm, Informer, Key, Manager, Recorder},
    status::is_not_found,
};

/// Name of the controller.
pub(crate) const NAME: &str = "node-ipam-controller";
const COMPONENT: &str = "cidrAllocator";

/// Ranges of a cluster, at most one of each family, and the prefix of a node's part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeRanges {
    ranges: Vec<(Range, u8)>,
}

impl NodeRanges {
    /// Splits ranges into parts of the prefixes for IPv4 and IPv6.
    pub fn new(ranges: &[Range], prefix_v4: u8, prefix_v6: u8) -> Result<Self, BadRange> {
        let with_prefix = |range: &Range| {
            let prefix = if range.is_v4() { prefix_v4 } else { prefix_v6 };
            range.check_parts(prefix).map(|()| (*range, prefix))
        };
        let ranges: Vec<_> = ranges.iter().map(with_prefix).collect::<Result<_, _>>()?;
        match ranges.as_slice() {
            [_] => {}
            [(a, _), (b, _)] if a.is_v4() != b.is_v4() => {}
            _ => return Err(BadRange("one range, or one of IPv4 and one of IPv6, are needed".to_owned())),
        }
        Ok(Self { ranges })
    }

    /// Returns the lowest parts that nobody has; `None` if a range is used up.
    fn allocate(&self, taken: &[Range]) -> Option<Vec<String>> {
        self.ranges
            .iter()
            .map(|(range, prefix)| range.first_free_part(*prefix, taken).map(|part| part.to_string()))
            .collect()
    }
}

/// Registers the controller.
pub(crate) fn register(manager: &mut Manager, ranges: NodeRanges) {
    manager.register(NAME, move |context| run(context, ranges.clone()));
}

async fn run(context: Context, ranges: NodeRanges) {
    let nodes = context.informers.of::<Node>();
    nodes.synced().await;
    let events = context.recorder(COMPONENT, EventForm::Counted);
    let queue = context.work_queue::<Key>();
    let of_nodes = queue.clone();
    let subscription = nodes.subscribe(move |change| {
        change.new.iter().for_each(|node| of_nodes.add(Key::of(&**node)));
    });
    // One at a time: two nodes must not get the same part.
    queue
        .run(1, |key| {
            let (client, nodes, events) = (context.client.clone(), nodes.clone(), events.clone());
            let ranges = ranges.clone();
            async move { reconcile(client, &nodes, &events, &ranges, &key).await }
        })
        .await;
    drop(subscription);
}

fn taken_by(node: &Node) -> impl Iterator<Item = Range> {
    let spec = node.spec.iter();
    spec.flat_map(|spec| spec.pod_cidrs.iter().flatten().chain(&spec.pod_cidr))
        .filter_map(|text| text.parse().ok())
}

async fn reconcile(
    client: Client,
    nodes: &Arc<Informer<Node>>,
    events: &Recorder,
    ranges: &NodeRanges,
    key: &Key,
) -> orlop_client::Result<Action> {
    let Some(node) = nodes.get(key) else { return Ok(Action::Done) };
    if node.metadata.deletion_timestamp.is_some() || taken_by(&node).next().is_some() {
        return Ok(Action::Done);
    }
    let mut taken: Vec<Range> = nodes.all().iter().flat_map(|node| taken_by(node)).collect();
    // Addresses of services are not for pods.
    let services = Api::<ServiceCIDR>::all(client.clone()).list(&ListParams::default()).await;
    let services = services.map(|list| list.items).unwrap_or_default();
    let services = services.iter().filter_map(|range| range.spec.as_ref()?.cidrs.as_ref()).flatten();
    taken.extend(services.filter_map(|text| text.parse::<Range>().ok()));
    let Some(parts) = ranges.allocate(&taken) else {
        let message = format!("Node {} status is now: CIDRNotAvailable", node.name_any());
        events.normal(&*node, "CIDRNotAvailable", message);
        return Ok(Action::Requeue);
    };
    let patch = Patch::Strategic(json!({"spec": {"podCIDR": parts[0], "podCIDRs": parts}}));
    match Api::<Node>::all(client).patch(&key.name, &PatchParams::default(), &patch).await {
        Ok(written) => nodes.wrote(written),
        Err(error) if is_not_found(&error) => {}
        Err(error) => return Err(error),
    }
    Ok(Action::Done)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_get_the_lowest_free_parts() {
        let range = |text: &str| text.parse::<Range>().unwrap();
        let ranges = NodeRanges::new(&[range("10.244.0.0/22"), range("fd00::/48")], 24, 64).unwrap();
        let mut taken = vec![range("10.244.0.0/24"), range("10.244.2.0/25"), range("fd00::/64")];
        assert_eq!(ranges.allocate(&taken).unwrap(), ["10.244.1.0/24", "fd00:0:0:1::/64"]);
        taken.push(range("10.244.0.0/23"));
        assert_eq!(ranges.allocate(&taken).unwrap()[0], "10.244.3.0/24");
        taken.push(range("10.244.3.0/24"));
        assert_eq!(ranges.allocate(&taken), None);
        assert!(NodeRanges::new(&[range("10.0.0.0/26")], 24, 64).is_err());
        assert!(NodeRanges::new(&[range("10.0.0.0/16"), range("10.1.0.0/16")], 24, 64).is_err());
    }
}
