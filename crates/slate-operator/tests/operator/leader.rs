//! Leader election.

use std::collections::HashMap;

use k8s_openapi::api::{apps::v1::Deployment, coordination::v1::Lease};
use kube::{
    Api,
    api::{Patch, PatchParams},
};
use serde_json::json;

use crate::cluster::{Cluster, eventually, operator_client, options, run_operator};

#[tokio::test(flavor = "multi_thread")]
async fn standby_acquires_an_expired_lease() {
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

#[tokio::test(flavor = "multi_thread")]
async fn stopped_operator_releases_its_lease() {
    let cluster = Cluster::start(&[]).await;
    let leases: Api<Lease> = Api::namespaced(cluster.client.clone(), "slate-system");
    let spec = async || leases.get_opt("slate-operator").await.expect("get").and_then(|lease| lease.spec);
    eventually(spec).await;
    cluster.operator.abort();
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let stopped = async { stopped.await.expect("the test") };
    let run = slate_operator::run(operator_client(&cluster.server), options(HashMap::new()), stopped);
    let second = tokio::spawn(run);
    cluster.create_server("main-db", json!({ "store": "memory" })).await;
    let deployments = cluster.api::<Deployment>();
    eventually(async || deployments.get_opt("main-db").await.expect("get")).await;
    stop.send(()).expect("the operator");
    second.await.expect("a task").expect("the operator");
    assert_eq!(spec().await.expect("a spec").holder_identity.as_deref(), Some(""));

    // A lease of an hour that nobody holds is acquired at once.
    let patch = json!({ "spec": { "leaseDurationSeconds": 3600 } });
    leases.patch("slate-operator", &PatchParams::default(), &Patch::Merge(&patch)).await.expect("patch");
    let third = run_operator(operator_client(&cluster.server), HashMap::new());
    let held = async || spec().await.filter(|spec| spec.holder_identity.as_deref() != Some(""));
    assert_eq!(eventually(held).await.lease_transitions, Some(2));
    third.abort();
}
