//! The client of webhooks.

use std::{fs, sync::Mutex, time::Duration};

use orlop_auth::webhook::{Backoff, WebhookClient};
use serde_json::json;

use crate::server::{Answer, Server};

const QUICK: Backoff = Backoff { initial: Duration::from_millis(1), attempts: 3 };

fn client(server: &Server, folder: &tempfile::TempDir) -> WebhookClient {
    let path = folder.path().join("kubeconfig");
    server.write_kubeconfig(&path, "{token: abc}");
    WebhookClient::from_kubeconfig(path, QUICK).unwrap()
}

#[tokio::test]
async fn value_is_posted_with_the_credentials_of_the_kubeconfig() {
    let server = Server::start(|asked| {
        assert_eq!(asked.headers["authorization"], "Bearer abc");
        assert!(asked.line.starts_with("POST "));
        assert_eq!((asked.path(), asked.json()), ("/review", json!({"a": 1})));
        Answer::Json(201, json!({"b": 2}))
    })
    .await;
    let folder = tempfile::tempdir().unwrap();
    let client = client(&server, &folder);
    for _ in 0..3 {
        assert_eq!(client.post(&json!({"a": 1})).await, Ok(json!({"b": 2})));
    }
}

#[tokio::test]
async fn transient_failures_are_retried_and_others_are_not() {
    let folder = tempfile::tempdir().unwrap();
    for (code, attempts) in [(500, 3), (429, 3), (504, 3), (400, 1), (403, 1), (404, 1), (302, 1)] {
        let server = Server::start(move |_| Answer::Json(code, json!({"message": "no"}))).await;
        let codes = Mutex::new(Vec::new());
        let observe = |attempt: orlop_auth::webhook::Attempt| codes.lock().unwrap().push(attempt.code);
        let error = client(&server, &folder).post_observed(&json!({}), observe).await.unwrap_err();
        assert_eq!((error.message.as_str(), error.code), ("no", Some(code)));
        assert_eq!(*codes.lock().unwrap(), vec![Some(code); attempts], "{code}");
        assert_eq!(server.asked(), attempts);
    }
}

#[tokio::test]
async fn nonsense_cuts_redirects_and_silence_are_errors() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(|_| Answer::Text(200, "", "<html>".to_owned())).await;
    let client = client(&server, &folder).with_attempt_timeout(Duration::from_millis(200));
    assert!(client.post(&json!({})).await.unwrap_err().message.contains("expected value"));
    server.answer(|_| Answer::Text(307, "location: https://127.0.0.1:1/\r\n", String::new()));
    let redirected = client.post(&json!({})).await.unwrap_err();
    assert_eq!(
        redirected.message,
        "the server responded with the status code 307 but did not return more information"
    );
    server.answer(|_| Answer::Cut);
    assert!(client.post(&json!({})).await.is_err());
    server.answer(|_| Answer::Text(200, "", format!("\"{}\"", "x".repeat(5 << 20))));
    assert!(client.post(&json!({})).await.unwrap_err().message.contains("the response is larger than"));
    server.answer(|_| Answer::Hang);
    let hung = client.post(&json!({})).await.unwrap_err();
    assert!(hung.message.ends_with("context deadline exceeded"), "{hung}");
}

#[tokio::test]
async fn server_of_another_ca_is_not_trusted() {
    let folder = tempfile::tempdir().unwrap();
    let (server, other) = (Server::start(|_| Answer::Hang).await, Server::start(|_| Answer::Hang).await);
    let path = folder.path().join("kubeconfig");
    server.write_kubeconfig(&path, "{}");
    fs::write(path.with_extension("ca"), other.ca.certificate()).unwrap();
    let client = WebhookClient::from_kubeconfig(path, QUICK).unwrap();
    let error = client.post(&json!({})).await.unwrap_err();
    assert!(error.message.contains("x509: certificate signed by unknown authority"), "{error}");
    assert_eq!(server.asked(), 0);
}

#[tokio::test]
async fn unusable_certificates_in_a_kubeconfig_are_refused_at_start() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(|_| Answer::Hang).await;
    let path = folder.path().join("kubeconfig");
    server.write_kubeconfig(&path, "{client-certificate-data: eA==, client-key-data: eA==}");
    let error = WebhookClient::from_kubeconfig(path, QUICK).unwrap_err();
    assert!(error.message.contains("client key"), "{error}");
}
