//! Tokens of service accounts against objects that come and go.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
};

use async_trait::async_trait;
use base64::{Engine, engine::general_purpose::STANDARD};
use orlop_api::status::Status;
use orlop_auth::{
    TokenAuthenticator,
    authentication::{LegacyServiceAccountTokens, ServiceAccountTokens, UseTracker},
    issuer::Issuer,
    lookup::{ObjectChanges, ObjectLookup, Observation, Resource},
    time::system_clock,
};
use serde_json::{Value, json};

const API: &str = "https://kubernetes.default.svc";

#[derive(Debug, Default)]
struct Objects {
    objects: Mutex<HashMap<(Resource, String, String), Value>>,
    changes: ObjectChanges,
}

impl Objects {
    fn set(&self, resource: Resource, namespace: &str, name: &str, object: Option<Value>) {
        let key = (resource, namespace.to_owned(), name.to_owned());
        match object {
            Some(object) => drop(self.objects.lock().unwrap().insert(key, object)),
            None => drop(self.objects.lock().unwrap().remove(&key)),
        }
    }
}

#[async_trait]
impl ObjectLookup for Objects {
    async fn get(&self, resource: Resource, namespace: &str, name: &str) -> Result<Option<Value>, Status> {
        let key = (resource, namespace.to_owned(), name.to_owned());
        Ok(self.objects.lock().unwrap().get(&key).cloned())
    }

    fn observe(&self, _resource: Resource, _namespace: &str, name: &str) -> Observation {
        self.changes.observe(name.as_bytes())
    }
}

fn object(name: &str, uid: &str) -> Value {
    json!({"metadata": {"name": name, "uid": uid}})
}

fn objects() -> Arc<Objects> {
    let objects = Arc::new(Objects::default());
    objects.set(Resource::ServiceAccounts, "ns", "builder", Some(object("builder", "sa-1")));
    objects.set(Resource::Pods, "ns", "pod", Some(object("pod", "pod-1")));
    objects.set(Resource::Secrets, "ns", "secret", Some(object("secret", "secret-1")));
    objects.set(Resource::Nodes, "", "node", Some(object("node", "node-1")));
    objects
}

fn claims(more: Value) -> Value {
    let now = system_clock();
    let mut private = json!({"namespace": "ns", "serviceaccount": {"name": "builder", "uid": "sa-1"}});
    for (name, value) in more.as_object().unwrap() {
        private[name] = value.clone();
    }
    json!({
        "iss": API, "sub": "system:serviceaccount:ns:builder", "aud": [API], "iat": now, "nbf": now,
        "exp": now + 600, "jti": "id", "kubernetes.io": private,
    })
}

async fn ask(authenticator: &impl TokenAuthenticator, token: &str) -> Result<Option<String>, String> {
    let outcome = authenticator.authenticate(token, &[API.to_owned()]).await;
    outcome.map(|found| found.map(|found| found.user.name.clone())).map_err(|error| error.to_string())
}

#[tokio::test]
async fn bound_tokens_live_as_long_as_their_objects() {
    let issuer = Arc::new(Issuer::generate().unwrap());
    for (claim, resource, namespace, name, uid) in [
        ("pod", Resource::Pods, "ns", "pod", "pod-1"),
        ("secret", Resource::Secrets, "ns", "secret", "secret-1"),
        ("node", Resource::Nodes, "", "node", "node-1"),
        ("serviceaccount", Resource::ServiceAccounts, "ns", "builder", "sa-1"),
    ] {
        let objects = objects();
        let tokens = ServiceAccountTokens::new(issuer.clone(), objects.clone(), vec![API.to_owned()]);
        let token = issuer.sign(&claims(json!({claim: {"name": name, "uid": uid}}))).unwrap();
        assert_eq!(ask(&tokens, &token).await, Ok(Some("system:serviceaccount:ns:builder".to_owned())));
        objects.set(resource, namespace, name, Some(object(name, "another")));
        assert!(ask(&tokens, &token).await.unwrap_err().contains("does not match"), "{claim}");
        let mut deleting = object(name, uid);
        deleting["metadata"]["deletionTimestamp"] = "2020-01-01T00:00:00Z".into();
        objects.set(resource, namespace, name, Some(deleting));
        assert!(ask(&tokens, &token).await.is_err(), "{claim} is being deleted");
        objects.set(resource, namespace, name, None);
        assert!(ask(&tokens, &token).await.is_err(), "{claim} is gone");
    }
}

#[tokio::test]
async fn claims_of_a_bound_token_are_checked() {
    let (issuer, other) = (Arc::new(Issuer::generate().unwrap()), Issuer::generate().unwrap());
    let tokens = ServiceAccountTokens::new(issuer.clone(), objects(), vec![API.to_owned()]);
    let now = system_clock();
    for (claim, value, why) in [
        ("exp", json!(now - 61), "service account token has expired"),
        ("nbf", json!(now + 120), "service account token is not valid yet"),
        ("iat", json!(now + 120), "service account token is issued in the future"),
        ("aud", json!(["other"]), "token audiences [\"other\"] is invalid for the target audiences"),
        ("kubernetes.io", json!({}), "not found"),
        ("kubernetes.io", json!("x"), "not found"),
    ] {
        let mut claims = claims(json!({}));
        claims[claim] = value;
        let refused = ask(&tokens, &issuer.sign(&claims).unwrap()).await.unwrap_err();
        assert!(refused.contains(why), "{claim}: {refused}");
    }
    let forged = other.sign(&claims(json!({}))).unwrap();
    assert!(ask(&tokens, &forged).await.unwrap_err().contains("invalid signature"));
    let mut elsewhere = claims(json!({}));
    elsewhere["iss"] = "https://elsewhere".into();
    assert_eq!(ask(&tokens, &issuer.sign(&elsewhere).unwrap()).await, Ok(None));
    assert_eq!(ask(&tokens, "a.b.c").await, Ok(None));
    let extended = claims(
        json!({"pod": {"name": "pod", "uid": "pod-1"}, "node": {"name": "gone"}, "warnafter": now - 5}),
    );
    let found = tokens.authenticate(&issuer.sign(&extended).unwrap(), &[]).await.unwrap().unwrap();
    assert_eq!(found.user.extra["authentication.kubernetes.io/pod-name"], ["pod"]);
    assert_eq!(found.user.extra["authentication.kubernetes.io/node-name"], ["gone"]);
    assert_eq!(found.user.extra["authentication.kubernetes.io/credential-id"], ["JTI=id"]);
    assert_eq!(found.annotations[0].0, "authentication.k8s.io/stale-token");
}

#[tokio::test]
async fn tokens_in_secrets_must_be_what_the_secret_holds() {
    let issuer = Arc::new(Issuer::generate().unwrap());
    let objects = objects();
    let (tracker, mut uses) = UseTracker::channel();
    let tokens =
        LegacyServiceAccountTokens::new(issuer.clone(), objects.clone(), vec![API.to_owned()], Some(tracker));
    let claims = json!({
        "iss": "kubernetes/serviceaccount", "sub": "system:serviceaccount:ns:builder",
        "kubernetes.io/serviceaccount/namespace": "ns", "kubernetes.io/serviceaccount/secret.name": "legacy",
        "kubernetes.io/serviceaccount/service-account.name": "builder",
        "kubernetes.io/serviceaccount/service-account.uid": "sa-1",
    });
    let token = issuer.sign(&claims).unwrap();
    let secret = |token: &str, labels: Value| json!({"metadata": {"name": "legacy", "uid": "1", "labels": labels}, "data": {"token": STANDARD.encode(token)}});
    assert_eq!(ask(&tokens, &token).await, Err("Token has been invalidated".to_owned()));
    objects.set(Resource::Secrets, "ns", "legacy", Some(secret("another", json!({}))));
    assert_eq!(ask(&tokens, &token).await, Err("Token does not match server's copy".to_owned()));
    objects.set(Resource::Secrets, "ns", "legacy", Some(secret(&token, json!({}))));
    assert_eq!(ask(&tokens, &token).await, Ok(Some("system:serviceaccount:ns:builder".to_owned())));
    assert_eq!(uses.try_recv().unwrap(), ("ns".to_owned(), "legacy".to_owned()));
    let label = json!({"kubernetes.io/legacy-token-invalid-since": "2026-01-01"});
    objects.set(Resource::Secrets, "ns", "legacy", Some(secret(&token, label)));
    assert!(ask(&tokens, &token).await.unwrap_err().contains("has been marked invalid"));
    objects.set(Resource::Secrets, "ns", "legacy", Some(secret(&token, json!({}))));
    objects.set(Resource::ServiceAccounts, "ns", "builder", Some(object("builder", "sa-2")));
    assert!(
        ask(&tokens, &token)
            .await
            .unwrap_err()
            .contains("ServiceAccount UID (sa-2) does not match claim (sa-1)")
    );
    let mut other_subject = claims.clone();
    other_subject["sub"] = "system:serviceaccount:ns:admin".into();
    let refused = ask(&tokens, &issuer.sign(&other_subject).unwrap()).await;
    assert_eq!(refused, Err("sub claim is invalid".to_owned()));
}
