//! Signers: only those sign who may do so for the signer.

use serde_json::json;

use crate::{
    RBAC, binding, call_as, role,
    support::{create, server},
    user,
};

/// A PKCS#10 request for an ECDSA key, without a subject.
const STUB: &str = "MIG6MGICAQAwADBZMBMGByqGSM49AgEGCCqGSM49AwEHA0IABAQI+GWZPOQh8Bt8h6uw9VanGfDMHMwHcOTkCofOu1P6++KiLulYn4ZjEIPHAm3z6ZGQH0nTwH6OH5tJQL0V4fCgADAKBggqhkjOPQQDAgNIADBFAiEAp40MEJJtFVe6ohsLL+Hu7xCOPFF13D7CcZ7XUAXKQBwCIEIb5TgGJLHW+YzrJZS/cOXv0Lzv4Tz2QA82dXXH90ky";

#[tokio::test]
async fn status_of_pod_certificate_requests_needs_sign() {
    let (chain, _store) = server().await;
    let grant = async |name: &str, resource: &str, verb: &str| {
        let rules = json!([{"verbs": [verb], "apiGroups": ["certificates.k8s.io"], "resources": [resource]}]);
        create(&chain, &format!("{RBAC}/clusterroles"), &role("ClusterRole", name, rules)).await;
        let bound = binding("ClusterRoleBinding", name, &format!("ClusterRole/{name}"), &["User:ann"]);
        create(&chain, &format!("{RBAC}/clusterrolebindings"), &bound).await;
    };
    let requests = "/apis/certificates.k8s.io/v1/namespaces/default/podcertificaterequests";
    let object = json!({"apiVersion": "certificates.k8s.io/v1", "kind": "PodCertificateRequest",
        "metadata": {"name": "r"}, "spec": {"signerName": "example.com/pods", "podName": "p", "podUID": "1",
        "serviceAccountName": "s", "serviceAccountUID": "2", "nodeName": "n", "nodeUID": "3",
        "maxExpirationSeconds": 86_400, "stubPKCS10Request": STUB}});
    create(&chain, requests, &object).await;
    grant("status", "podcertificaterequests/status", "patch").await;
    let (ann, path) = (user("ann"), format!("{requests}/r/status"));
    let denied = json!({"status": {"conditions": [{"type": "Denied", "status": "True", "reason": "R",
        "lastTransitionTime": "2026-01-01T00:00:00Z"}]}});
    let (code, status) = call_as(&chain, &ann, "PATCH", &path, Some(&denied)).await;
    assert_eq!(code, 422, "{status}");
    assert_eq!(
        status["details"]["causes"][0]["message"],
        "Forbidden: User \"ann\" is not permitted to \"sign\" for signer \"example.com/pods\""
    );
    grant("sign", "signers", "sign").await;
    let (code, status) = call_as(&chain, &ann, "PATCH", &path, Some(&denied)).await;
    assert_eq!(code, 200, "{status}");
}
