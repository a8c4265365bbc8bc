//! Node authorization: a kubelet reads what its pods use.

use orlop_server::User;
use serde_json::{Value, json};

use crate::{
    call_as,
    support::{call, create, server},
};

fn node(name: &str) -> User {
    User::authenticated(format!("system:node:{name}"), ["system:nodes".to_owned()])
}

fn pod(name: &str, node: &str, secret: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": {
        "nodeName": node,
        "containers": [{"name": "c", "image": "i"}],
        "volumes": [{"name": "s", "secret": {"secretName": secret}},
            {"name": "c", "persistentVolumeClaim": {"claimName": "claim"}}],
    }})
}

#[tokio::test]
async fn node_reads_secrets_of_its_pods_only_while_they_are_there() {
    let (chain, _store) = server().await;
    let (pods, secrets) = ("/api/v1/namespaces/default/pods", "/api/v1/namespaces/default/secrets");
    let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}});
    create(&chain, secrets, &secret).await;
    let (one, two) = (node("one"), node("two"));
    let code = async |user: &User, path: &str| call_as(&chain, user, "GET", path, None).await.0;
    let (of_secret, of_pod) = (format!("{secrets}/s"), format!("{pods}/p"));
    assert_eq!(code(&one, &of_secret).await, 403);
    for _ in 0..10 {
        // In force at once: the decision catches up with the store.
        create(&chain, pods, &pod("p", "one", "s")).await;
        assert_eq!(code(&one, &of_secret).await, 200);
        assert_eq!(code(&one, &of_pod).await, 200);
        assert_eq!([code(&two, &of_secret).await, code(&two, &of_pod).await], [403, 403]);
        assert_eq!(code(&one, &format!("{secrets}?fieldSelector=metadata.name%3Ds")).await, 200);
        assert_eq!(code(&one, secrets).await, 403);
        let now = json!({"gracePeriodSeconds": 0});
        assert_eq!(call(&chain, "DELETE", &of_pod, Some(&now)).await.0, 200);
        // A graph that has not heard of the deletion yet leads to nothing: the pod is not there.
        while code(&one, &of_pod).await != 403 {
            tokio::task::yield_now().await;
        }
    }
    let (_, status) = call_as(&chain, &one, "GET", &of_secret, None).await;
    assert_eq!(
        status["message"],
        "secrets \"s\" is forbidden: User \"system:node:one\" cannot get resource \"secrets\" in API group \"\" in the \
         namespace \"default\": no relationship found between node 'one' and this object"
    );
}

#[tokio::test]
async fn node_reads_volumes_of_its_claims() {
    let (chain, _store) = server().await;
    create(&chain, "/api/v1/namespaces/default/pods", &pod("p", "one", "s")).await;
    let volume = json!({"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": "v"}, "spec": {
        "capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "hostPath": {"path": "/x"},
        "claimRef": {"namespace": "default", "name": "claim"}}});
    create(&chain, "/api/v1/persistentvolumes", &volume).await;
    let code = async |user: &User| call_as(&chain, user, "GET", "/api/v1/persistentvolumes/v", None).await.0;
    assert_eq!([code(&node("one")).await, code(&node("two")).await], [200, 403]);
    let lease = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/one";
    let (mine, other) = (
        call_as(&chain, &node("one"), "GET", lease, None).await.0,
        call_as(&chain, &node("two"), "GET", lease, None).await.0,
    );
    assert_eq!([mine, other], [404, 403]);
    // RBAC does not bind system:node to anybody: the Node authorizer alone decides.
    assert_eq!(call_as(&chain, &node("one"), "GET", "/api/v1/secrets", None).await.0, 403);
    assert_eq!(call_as(&chain, &node("one"), "GET", "/api/v1/services", None).await.0, 200);
}
