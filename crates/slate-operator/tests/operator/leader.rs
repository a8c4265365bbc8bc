//! Leader election.

use std::collections::HashMap;

use k8s_openapi::api::{apps::v1::Deployment, coordination::v1::Lease};
use kube::Api;
use serde_json::json;

use crate::cluster::{Cluster, eventually, operator_client, run_operator};

#[tokio::test(flavor = "multi_thread")]
async fn second_operator_takes_over_when_the_first_is_gone() {
    let cluster = Cluster::start(&[]).await;
    let leases: Api<Lease> = Api::namespaced(cluster.client.clone(), "slate-system");
    let holder = async || {
        let lease = leases.get_opt("slate-operator").await.expect("get")?;
        lease.spec?.holder_identity
    };
    let first = eventually(holder).await;
    let second = run_operator(operator_client(&cluster.server), HashMap::new());
    cluster.create_server("main-db", json!({ "store": "memory" })).await;
    let deployments = cluster.api::<Deployment>();
    eventually(async || deployments.get_opt("main-db").await.expect("get")).await;
    assert_eq!(holder().await.as_ref(), Some(&first), "a lease that is renewed is not taken");

    cluster.operator.abort();
    cluster.create_server("other-db", json!({ "store": "memory" })).await;
    eventually(async || deployments.get_opt("other-db").await.expect("get")).await;
    assert_ne!(holder().await, Some(first));
    let lease = leases.get("slate-operator").await.expect("get").spec.expect("a spec");
    assert_eq!(lease.lease_transitions, Some(1));
    second.abort();
}
