//! Service account tokens: audiences, TokenReview, bound objects.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod support;

use http::Request;
use http_body_util::Full;
use orlop_server::{auth::issuer::Issuer, chain::Chain, cluster::Cluster, registry::Kinds};
use orlop_store::{Config, Endpoint, Store};
use serde_json::{Value, json};
use support::{call, create, server, started, whole};

const ACCOUNTS: &str = "/api/v1/namespaces/default/serviceaccounts";
const ISSUER: &str = "https://kubernetes.default.svc";

async fn with_account() -> Chain {
    let (chain, _store) = server().await;
    create_account(&chain).await;
    chain
}

async fn create_account(chain: &Chain) {
    let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "builder"}});
    create(chain, ACCOUNTS, &account).await;
}

/// Requests a token with a TokenRequest spec.
async fn token(chain: &Chain, spec: Value) -> String {
    let body = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec});
    let (code, answer) = call(chain, "POST", &format!("{ACCOUNTS}/builder/token"), Some(&body)).await;
    assert_eq!(code, 201, "{answer}");
    answer["status"]["token"].as_str().unwrap().to_owned()
}

/// Returns the status code of a request with a bearer token: 403 if it authenticates, since service accounts may do
/// nothing here, and 401 if not.
async fn code_with(chain: &Chain, token: &str) -> u16 {
    let request = Request::get("/api/v1/pods").header("authorization", format!("Bearer {token}"));
    let response = chain.answer(request.body(Full::<bytes::Bytes>::default()).unwrap(), None).await;
    whole(response).await.0
}

async fn review(chain: &Chain, token: &str, audiences: &[&str]) -> Value {
    let body = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview",
        "spec": {"token": token, "audiences": audiences}});
    let (code, answer) =
        call(chain, "POST", "/apis/authentication.k8s.io/v1/tokenreviews", Some(&body)).await;
    assert_eq!(code, 201, "{answer}");
    answer["status"].clone()
}

#[tokio::test]
async fn token_for_another_audience_does_not_authenticate() {
    let chain = with_account().await;
    let own = token(&chain, json!({})).await;
    let both = token(&chain, json!({"audiences": ["vault", ISSUER]})).await;
    let other = token(&chain, json!({"audiences": ["vault"]})).await;
    assert_eq!([code_with(&chain, &own).await, code_with(&chain, &both).await], [403, 403]);
    assert_eq!(code_with(&chain, &other).await, 401);
    assert_eq!(code_with(&chain, "nonsense").await, 401);
}

#[tokio::test]
async fn api_audiences_replace_the_issuer_as_audience() {
    let store = Store::open(Config::new(Endpoint::Memory)).await.unwrap();
    let cluster = Cluster::new(store, Kinds::builtin(), Issuer::generate().unwrap());
    let chain = started(cluster.with_audiences(vec!["api".to_owned()])).await;
    create_account(&chain).await;
    let default = token(&chain, json!({})).await;
    assert_eq!(code_with(&chain, &default).await, 403, "a token without audiences is for the API server");
    let issuer = token(&chain, json!({"audiences": [ISSUER]})).await;
    assert_eq!(code_with(&chain, &issuer).await, 401);
}

#[tokio::test]
async fn token_review_answers_the_intersection_of_audiences() {
    let chain = with_account().await;
    let token = token(&chain, json!({"audiences": ["vault", "registry"]})).await;
    let status = review(&chain, &token, &["registry", "mail"]).await;
    assert_eq!((&status["authenticated"], &status["audiences"]), (&json!(true), &json!(["registry"])));
    assert_eq!(status["user"]["username"], "system:serviceaccount:default:builder");
    assert!(!status["user"]["uid"].as_str().unwrap().is_empty());
    let extra = &status["user"]["extra"]["authentication.kubernetes.io/credential-id"][0];
    assert!(extra.as_str().unwrap().starts_with("JTI="), "{extra}");

    for audiences in [&["mail"][..], &[]] {
        let status = review(&chain, &token, audiences).await;
        assert_eq!(status["authenticated"], Value::Null, "{status}");
        assert!(status["error"].as_str().unwrap().contains("invalid"), "{status}");
    }
}

#[tokio::test]
async fn token_of_a_deleted_bound_object_is_refused() {
    let chain = with_account().await;
    let objects = [
        ("Secret", "/api/v1/namespaces/default/secrets", json!({})),
        ("Node", "/api/v1/nodes", json!({})),
        (
            "Pod",
            "/api/v1/namespaces/default/pods",
            json!({"serviceAccountName": "builder", "containers": [{"name": "c", "image": "i"}]}),
        ),
    ];
    for (kind, path, spec) in objects {
        let mut object = json!({"apiVersion": "v1", "kind": kind, "metadata": {"name": "bound"}});
        if kind == "Pod" {
            object["spec"] = spec;
        }
        create(&chain, path, &object).await;
        let reference = json!({"apiVersion": "v1", "kind": kind, "name": "bound"});
        let token = token(&chain, json!({"boundObjectRef": reference})).await;
        assert_eq!(code_with(&chain, &token).await, 403, "{kind}");
        let (code, answer) = call(&chain, "DELETE", &format!("{path}/bound"), None).await;
        assert_eq!(code, 200, "{answer}");
        assert_eq!(code_with(&chain, &token).await, 401, "the {kind} is gone");
        create(&chain, path, &object).await;
        assert_eq!(code_with(&chain, &token).await, 401, "another {kind} of the same name has another uid");
    }
}
