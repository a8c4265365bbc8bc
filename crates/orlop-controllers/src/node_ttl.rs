//! Tells kubelets by an annotation of their nodes how long they may keep Secrets and ConfigMaps: the longer, the larger
//! the cluster.

use std::sync::{Arc, Mutex, PoisonError};

use k8s_openapi::api::core::v1::Node;
use orlop_client::{
    Api, Client, ResourceExt,
    api::{Patch, PatchParams},
};
use serde_json::json;

use crate::{
    runtime::{Action, Context, Informer, Key, Manager},
    status::is_not_found,
};

/// Name of the controller.
pub(crate) const NAME: &str = "ttl-controller";
const ANNOTATION: &str = "node.alpha.kubernetes.io/ttl";
const CONCURRENCY: usize = 5;

/// A range of cluster sizes and the seconds that hold in it. Ranges overlap, so that a node more or less does not swing.
struct Boundary {
    size_min: usize,
    size_max: usize,
    seconds: u32,
}

const BOUNDARIES: [Boundary; 5] = [
    Boundary { size_min: 0, size_max: 100, seconds: 0 },
    Boundary { size_min: 90, size_max: 500, seconds: 15 },
    Boundary { size_min: 450, size_max: 1000, seconds: 30 },
    Boundary { size_min: 900, size_max: 2000, seconds: 60 },
    Boundary { size_min: 1800, size_max: usize::MAX, seconds: 300 },
];

/// Registers the controller.
pub(crate) fn register(manager: &mut Manager) {
    manager.register(NAME, run);
}

async fn run(context: Context) {
    let nodes = context.informers.of::<Node>();
    nodes.synced().await;
    let step = Arc::new(Mutex::new(0));
    let queue = context.work_queue::<Key>();
    let of_nodes = queue.clone();
    let subscription = nodes.subscribe(move |change| {
        change.new.iter().for_each(|node| of_nodes.add(Key::of(&**node)));
    });
    queue
        .run(CONCURRENCY, |key| {
            let (client, nodes, step) = (context.client.clone(), nodes.clone(), step.clone());
            async move { reconcile(client, &nodes, &step, &key).await }
        })
        .await;
    drop(subscription);
}

/// Returns the step for a size, from the step before.
fn next_step(mut step: usize, size: usize) -> usize {
    while size > BOUNDARIES[step].size_max {
        step += 1;
    }
    while size < BOUNDARIES[step].size_min {
        step -= 1;
    }
    step
}

async fn reconcile(
    client: Client,
    nodes: &Arc<Informer<Node>>,
    step: &Mutex<usize>,
    key: &Key,
) -> orlop_client::Result<Action> {
    let Some(node) = nodes.get(key) else { return Ok(Action::Done) };
    let seconds = {
        let mut step = step.lock().unwrap_or_else(PoisonError::into_inner);
        *step = next_step(*step, nodes.all().len());
        BOUNDARIES[*step].seconds.to_string()
    };
    if node.annotations().get(ANNOTATION) == Some(&seconds) {
        return Ok(Action::Done);
    }
    let patch = Patch::Strategic(json!({"metadata": {"annotations": {ANNOTATION: seconds}}}));
    match Api::<Node>::all(client).patch(&key.name, &PatchParams::default(), &patch).await {
        Err(error) if !is_not_found(&error) => Err(error),
        _ => Ok(Action::Done),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_overlap() {
        let mut step = 0;
        let mut seconds = |size| {
            step = next_step(step, size);
            BOUNDARIES[step].seconds
        };
        assert_eq!([1, 100, 101, 95, 90, 89].map(&mut seconds), [0, 0, 15, 15, 15, 0]);
        assert_eq!([5000, 1800, 1799, 1].map(&mut seconds), [300, 300, 60, 0]);
    }
}
