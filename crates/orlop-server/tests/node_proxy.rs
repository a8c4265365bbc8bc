//! Proxies to nodes, whose certificate is for kubelets only.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod support;

use std::sync::Arc;

use bytes::Bytes;
use http::Request;
use http_body_util::Full;
use orlop_server::{
    Tokens, User,
    auth::{
        issuer::Issuer,
        pki::{Authority, server_tls},
    },
    bootstrap::bootstrap,
    chain::Chain,
    cluster::Cluster,
    proxy::NodeTls,
    registry::Kinds,
    serve::serve,
};
use orlop_store::{Config, Endpoint, Store};
use serde_json::json;
use support::{call, create, whole};
use tokio::net::TcpListener;

const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";

/// A server that listens on all addresses of this machine, and its port.
async fn server() -> (Chain, u16) {
    let ca = Authority::generate().unwrap();
    let store = Store::open(Config::new(Endpoint::Memory)).await.unwrap();
    let kubelet_client = ca.client("kube-apiserver-kubelet-client", "system:masters").unwrap();
    let cluster = Cluster::new(store, Kinds::builtin(), Issuer::generate().unwrap())
        .with_node_tls(NodeTls::new(&kubelet_client, None).unwrap());
    let chain = Chain::new(Arc::new(cluster), Tokens::default());
    bootstrap(&chain, 6443, "").await.unwrap();
    let listener = TcpListener::bind("0.0.0.0:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let serving = ca.server(&["localhost".to_owned()], &[]).unwrap();
    let tls = server_tls(&serving, ca.certificate()).unwrap();
    tokio::spawn(serve(listener, chain.clone(), Some(tls), std::future::pending()));
    (chain, port)
}

/// Makes a node at an address.
async fn node(chain: &Chain, name: &str, address: &str) {
    let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}});
    create(chain, "/api/v1/nodes", &node).await;
    let status = json!({"status": {"addresses": [{"type": "InternalIP", "address": address}],
        "daemonEndpoints": {"kubeletEndpoint": {"Port": 10250}}}});
    let (code, _) = call(chain, "PATCH", &format!("/api/v1/nodes/{name}/status"), Some(&status)).await;
    assert_eq!(code, 200);
}

/// Without this, whoever may proxy to nodes would be an administrator: this server listens on a port of its node.
#[tokio::test]
async fn other_ports_of_a_node_do_not_see_the_certificate_for_kubelets() {
    let (chain, port) = server().await;
    let role = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": "proxy"},
        "rules": [{"verbs": ["get"], "apiGroups": [""], "resources": ["nodes/proxy"]}]});
    create(&chain, &format!("{RBAC}/clusterroles"), &role).await;
    let binding = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
        "metadata": {"name": "proxy"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "proxy"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "ann"}]});
    create(&chain, &format!("{RBAC}/clusterrolebindings"), &binding).await;
    // The range that pods of this program have: other addresses of 127.0.0.0/8 are this machine's own.
    node(&chain, "pods", "127.64.0.9").await;
    node(&chain, "own", "127.0.0.1").await;
    node(&chain, "mapped", "::ffff:127.0.0.1").await;
    node(&chain, "named", "localhost").await;
    let ask = async |node: &str| {
        let path = format!("/api/v1/nodes/https:{node}:{port}/proxy/api/v1/namespaces/kube-system/secrets");
        let request = Request::get(path).body(Full::<Bytes>::default()).unwrap();
        let answer = chain.answer(request, Some(&User::authenticated("ann", []))).await;
        let (code, _, body) = whole(answer).await;
        (code, String::from_utf8(body.to_vec()).unwrap())
    };
    let (code, answer) = ask("pods").await;
    assert_eq!(code, 403, "{answer}");
    assert!(answer.contains("User \\\"system:anonymous\\\" cannot list"), "{answer}");
    for name in ["own", "mapped", "named"] {
        let (code, answer) = ask(name).await;
        assert_eq!(code, 400, "{name}: {answer}");
        assert!(answer.contains("address not allowed"), "{name}: {answer}");
    }
}
