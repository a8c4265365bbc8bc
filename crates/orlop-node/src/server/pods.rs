//! `/pods` and `/runningpods/`: the pods of this node.

use http::Response;
use k8s_openapi::{List, api::core::v1::Pod};

use super::{Body, json};
use crate::context::Node;

/// Responds with the pods of the node, or with those that have a running container.
pub(super) fn list(node: &Node, running: bool) -> Response<Body> {
    let entries = node.directory.all().into_iter();
    let entries =
        entries.filter(|entry| !running || entry.containers.values().any(|runs| runs.live.is_some()));
    let items: Vec<Pod> = entries.map(|entry| (*entry.pod).clone()).collect();
    json(&List { items, ..List::default() })
}
