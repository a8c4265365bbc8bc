//! Webhook tokens.

use std::time::Duration;

use orlop_auth::{
    TokenAuthenticator,
    authentication::{Cached, Lifetimes, TokenReviewVersion, TokenReviewWebhook},
    webhook::{Backoff, WebhookClient},
};
use serde_json::{Value, json};

use crate::server::{Answer, Server};

const API: &str = "https://kubernetes.default.svc";

fn authenticator(server: &Server, version: TokenReviewVersion) -> (TokenReviewWebhook, tempfile::TempDir) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("kubeconfig");
    server.write_kubeconfig(&path, "{}");
    let backoff = Backoff { initial: Duration::from_millis(1), attempts: 2 };
    let client = WebhookClient::from_kubeconfig(path, backoff).unwrap();
    let client = client.with_attempt_timeout(Duration::from_millis(300));
    (TokenReviewWebhook::new(client, version, vec![API.to_owned()]), folder)
}

fn review(status: Value) -> Value {
    json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "status": status})
}

fn ann() -> Value {
    json!({"authenticated": true, "user": {
        "username": "ann", "uid": "1", "groups": ["dev"], "extra": {"example.com/a": ["b"]}}})
}

#[tokio::test]
async fn webhook_names_the_user_of_a_token() {
    for (version, sent) in [
        (TokenReviewVersion::V1, "authentication.k8s.io/v1"),
        (TokenReviewVersion::V1Beta1, "authentication.k8s.io/v1beta1"),
    ] {
        let server = Server::start(move |asked| {
            let asked = asked.json();
            assert_eq!((&asked["apiVersion"], &asked["kind"]), (&json!(sent), &json!("TokenReview")));
            assert_eq!(asked["spec"], json!({"token": "t", "audiences": [API]}));
            Answer::Json(201, review(ann()))
        })
        .await;
        let (authenticator, _folder) = authenticator(&server, version);
        let found = authenticator.authenticate("t", &[API.to_owned()]).await.unwrap().unwrap();
        assert_eq!((found.user.name.as_str(), found.user.uid.as_str()), ("ann", "1"));
        assert_eq!(
            (&found.user.groups[..], &found.user.extra["example.com/a"][..]),
            (&["dev".into()][..], &["b".into()][..])
        );
        assert_eq!(found.audiences, [API]);
    }
}

#[tokio::test]
async fn webhooks_that_refuse_lie_or_fail_authenticate_nobody() {
    let server = Server::start(|_| Answer::Hang).await;
    let (authenticator, _folder) = authenticator(&server, TokenReviewVersion::V1);
    let with = |field: &str, value: Value| {
        let mut status = ann();
        status[field] = value;
        review(status)
    };
    let mut nameless = ann();
    nameless["user"]["username"] = json!("");
    let answers: Vec<(&str, Answer, Option<&str>)> = vec![
        ("unknown token", Answer::Json(200, review(json!({"authenticated": false}))), None),
        (
            "error",
            Answer::Json(200, review(json!({"authenticated": false, "error": "expired"}))),
            Some("expired"),
        ),
        ("other audience", Answer::Json(200, with("audiences", json!(["other"]))), None),
        ("no name", Answer::Json(200, review(nameless)), Some("named no user")),
        ("wrong type", Answer::Json(200, with("authenticated", json!("true"))), Some("invalid type")),
        (
            "wrong groups",
            Answer::Json(200, with("user", json!({"username": "a", "groups": [1]}))),
            Some("invalid type"),
        ),
        (
            "another kind",
            Answer::Json(200, json!({"apiVersion": "v1", "kind": "Status"})),
            Some("no kind \"Status\""),
        ),
        ("nothing", Answer::Json(200, json!({})), Some("missing field")),
        ("not JSON", Answer::Text(200, "", "yes".to_owned()), Some("expected value")),
        ("redirect", Answer::Text(301, "location: /ok\r\n", String::new()), Some("status code 301")),
        ("unauthorized", Answer::Json(401, json!({})), Some("asked for the client to provide credentials")),
        ("failing", Answer::Json(500, json!({"message": "broken"})), Some("broken")),
        ("cut", Answer::Cut, Some("")),
        ("silent", Answer::Hang, Some("context deadline exceeded")),
    ];
    for (case, answer, why) in answers {
        server.answer(move |_| answer.clone());
        let outcome = authenticator.authenticate("t", &[API.to_owned()]).await;
        match (outcome, why) {
            (Ok(None), None) => {}
            (Err(error), Some(why)) => assert!(error.to_string().contains(why), "{case}: {error}"),
            (outcome, _) => panic!("{case}: {outcome:?}"),
        }
    }
}

#[tokio::test]
async fn answers_are_cached_and_failures_are_not() {
    let server = Server::start(|asked| match asked.json()["spec"]["token"].as_str() {
        Some("good") => Answer::Json(200, review(ann())),
        Some("bad") => Answer::Json(200, review(json!({"authenticated": false}))),
        _ => Answer::Json(400, json!({"message": "no"})),
    })
    .await;
    let (webhook, _folder) = authenticator(&server, TokenReviewVersion::V1);
    let ttl = Duration::from_secs(120);
    let cached = Cached::new(webhook, Lifetimes { success: ttl, failure: ttl, errors: false }, None);
    for (token, requests) in [("good", 1), ("bad", 1), ("error", 3)] {
        let before = server.asked();
        for _ in 0..3 {
            let _ = cached.authenticate(token, &[API.to_owned()]).await;
        }
        assert_eq!(server.asked() - before, requests, "{token}");
    }
}
