//! Two servers on one database: what one is told, the other hears of.

use std::time::Duration;

use orlop_server::chain::Chain;
use orlop_store::{Config, Endpoint};

use crate::{
    RBAC, binding, call_as, in_namespace,
    support::{call, create, server_on},
    user,
};

/// Waits until a request of `ann` is answered with a code.
async fn eventually(chain: &Chain, path: &str, expected: u16) {
    let answered = async {
        while call_as(chain, &user("ann"), "GET", path, None).await.0 != expected {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), answered)
        .await
        .expect("the other server hears of a binding");
}

#[tokio::test(flavor = "multi_thread")]
async fn binding_written_through_one_server_holds_on_the_other() {
    let cluster = orlop_testbed::Cluster::shared().unwrap();
    let url = cluster.url(&cluster.create_database().unwrap());
    let config = || Config::new(Endpoint::parse(&url).unwrap());
    // Both start at once, on an empty database: each completes the same bootstrap policy.
    let ((one, _), (other, _)) = tokio::join!(server_on(config()), server_on(config()));
    let nodes = "/api/v1/nodes";
    for (writer, reader) in [(&one, &other), (&other, &one)] {
        let bound = binding("ClusterRoleBinding", "ann", "ClusterRole/system:kube-scheduler", &["User:ann"]);
        create(writer, &format!("{RBAC}/clusterrolebindings"), &bound).await;
        assert_eq!(call_as(writer, &user("ann"), "GET", nodes, None).await.0, 200);
        eventually(reader, nodes, 200).await;
        let path = format!("{RBAC}/clusterrolebindings/ann");
        assert_eq!(call(reader, "DELETE", &path, None).await.0, 200);
        assert_eq!(call_as(reader, &user("ann"), "GET", nodes, None).await.0, 403);
        eventually(writer, nodes, 403).await;
    }
    let secrets = "/api/v1/namespaces/default/secrets";
    let bound = binding("RoleBinding", "ann", "ClusterRole/cluster-admin", &["User:ann"]);
    create(&one, &in_namespace("default", "rolebindings"), &bound).await;
    eventually(&other, secrets, 200).await;
    assert_eq!(call_as(&other, &user("ann"), "GET", nodes, None).await.0, 403);
}
