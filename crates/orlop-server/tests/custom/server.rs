//! An in-process server and its clients.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use http::{Method, Request, header};
use http_body_util::{BodyExt, Full};
use orlop_server::{
    Tokens, User, auth::issuer::Issuer, bootstrap::bootstrap, chain::Chain, cluster::Cluster,
    http::body::Body, registry::Kinds,
};
use orlop_store::{Config, Endpoint, Store};
use serde_json::{Value, json};

/// Longer than anything here takes.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// An in-process server.
pub(crate) struct Server {
    pub(crate) store: Store,
    pub(crate) chain: Chain,
}

/// A response.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) code: u16,
    pub(crate) body: Value,
    pub(crate) warnings: Vec<String>,
}

impl Answer {
    /// Returns the body of a successful response.
    #[track_caller]
    pub(crate) fn ok(self) -> Value {
        assert!((200..300).contains(&self.code), "{} {}", self.code, self.body);
        self.body
    }

    /// Returns the message of a failure with this code.
    #[track_caller]
    pub(crate) fn refused(self, code: u16) -> String {
        assert_eq!(self.code, code, "{}", self.body);
        self.body["message"].as_str().unwrap_or_default().to_owned()
    }
}

impl Server {
    pub(crate) async fn start() -> Self {
        Self::on(Store::open(Config::new(Endpoint::Memory)).await.unwrap()).await
    }

    /// Starts another server on the same store.
    pub(crate) async fn on(store: Store) -> Self {
        let cluster = Arc::new(Cluster::new(store.clone(), Kinds::builtin(), Issuer::generate().unwrap()));
        let admin = ("secret".to_owned(), User::authenticated("admin", ["system:masters".to_owned()]));
        let chain = Chain::new(cluster, Tokens::new(vec![admin]));
        bootstrap(&chain, 6443, "certificate").await.unwrap();
        Self { store, chain }
    }

    pub(crate) async fn call(&self, method: Method, path: &str, media_type: &str, body: &Value) -> Answer {
        let body = if body.is_null() { String::new() } else { body.to_string() };
        self.send_text(method, path, media_type, body).await
    }

    /// Sends a body as it is.
    pub(crate) async fn send_text(
        &self,
        method: Method,
        path: &str,
        media_type: &str,
        body: String,
    ) -> Answer {
        let request = Request::builder().method(method).uri(path).header(header::CONTENT_TYPE, media_type);
        let request = request.header(header::USER_AGENT, "test").body(Full::new(Bytes::from(body))).unwrap();
        let admin = User::authenticated("admin", ["system:masters".to_owned()]);
        let response = self.chain.answer(request, Some(&admin)).await;
        let code = response.status().as_u16();
        let warnings = response.headers().get_all(header::WARNING).iter();
        let warnings = warnings.map(|value| value.to_str().unwrap().to_owned()).collect();
        let bytes = response.into_body().collect().await.unwrap().to_bytes();
        let body = serde_json::from_slice(&bytes).unwrap_or_else(|_| String::from_utf8_lossy(&bytes).into());
        Answer { code, body, warnings }
    }

    pub(crate) async fn get(&self, path: &str) -> Answer {
        self.call(Method::GET, path, "", &Value::Null).await
    }

    pub(crate) async fn create(&self, path: &str, object: &Value) -> Answer {
        self.call(Method::POST, path, "application/json", object).await
    }

    pub(crate) async fn replace(&self, path: &str, object: &Value) -> Answer {
        self.call(Method::PUT, path, "application/json", object).await
    }

    pub(crate) async fn merge(&self, path: &str, patch: Value) -> Answer {
        self.call(Method::PATCH, path, "application/merge-patch+json", &patch).await
    }

    pub(crate) async fn apply(&self, path: &str, object: &Value) -> Answer {
        self.call(Method::PATCH, path, "application/apply-patch+yaml", object).await
    }

    pub(crate) async fn delete(&self, path: &str) -> Answer {
        self.call(Method::DELETE, path, "", &Value::Null).await
    }

    /// Opens a watch.
    pub(crate) async fn watch(&self, path: &str) -> Watch {
        let request = Request::get(path).body(Full::new(Bytes::new())).unwrap();
        let admin = User::authenticated("admin", ["system:masters".to_owned()]);
        let response = self.chain.answer(request, Some(&admin)).await;
        assert_eq!(response.status(), 200, "{path}");
        Watch { body: response.into_body(), rest: Vec::new() }
    }

    /// Repeats a request until its response is as wanted.
    pub(crate) async fn eventually(&self, path: &str, wanted: impl Fn(&Answer) -> bool) -> Answer {
        let deadline = tokio::time::Instant::now() + PATIENCE;
        loop {
            let answer = self.get(path).await;
            if wanted(&answer) {
                return answer;
            }
            assert!(tokio::time::Instant::now() < deadline, "{path} is still {answer:?}");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}

/// An open watch.
pub(crate) struct Watch {
    body: Body,
    rest: Vec<u8>,
}

impl Watch {
    /// Returns the next event; `None` when the watch has ended.
    pub(crate) async fn next(&mut self) -> Option<Value> {
        loop {
            if let Some(end) = self.rest.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.rest.drain(..=end).collect();
                return Some(serde_json::from_slice(&line).unwrap());
            }
            let frame = tokio::time::timeout(PATIENCE, self.body.frame()).await.expect("an event in time")?;
            self.rest.extend_from_slice(&frame.unwrap().into_data().unwrap());
        }
    }
}

pub(crate) const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";

/// Returns a definition of `Widget`s in `example.com` with these versions.
pub(crate) fn widgets(versions: Value) -> Value {
    definition("example.com", "widgets", "Widget", versions)
}

/// Returns a definition.
pub(crate) fn definition(group: &str, plural: &str, kind: &str, versions: Value) -> Value {
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{plural}.{group}")},
        "spec": {
            "group": group, "scope": "Namespaced", "names": {"plural": plural, "kind": kind},
            "versions": versions,
        },
    })
}

/// Returns a served version whose `spec` has these properties; the first of a definition is the storage version.
pub(crate) fn version(name: &str, storage: bool, spec: Value) -> Value {
    json!({
        "name": name, "served": true, "storage": storage,
        "schema": {"openAPIV3Schema": {"type": "object", "properties": {
            "spec": {"type": "object", "properties": spec},
            "status": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
        }}},
    })
}

/// Returns a widget.
pub(crate) fn widget(version: &str, name: &str, spec: Value) -> Value {
    json!({"apiVersion": format!("example.com/{version}"), "kind": "Widget", "metadata": {"name": name}, "spec": spec})
}

/// Returns the path of widgets.
pub(crate) fn path(version: &str) -> String {
    format!("/apis/example.com/{version}/namespaces/default/widgets")
}

impl Server {
    /// Sends a request with headers. Returns the body of the response.
    pub(crate) async fn send(&self, request: http::request::Builder) -> Value {
        self.send_body(request, String::new()).await
    }

    /// Sends a request with a body that is not JSON.
    pub(crate) async fn send_body(&self, request: http::request::Builder, body: String) -> Value {
        let admin = User::authenticated("admin", ["system:masters".to_owned()]);
        let response = self.chain.answer(request.body(Full::new(body.into())).unwrap(), Some(&admin)).await;
        let bytes = response.into_body().collect().await.unwrap().to_bytes();
        serde_json::from_slice(&bytes).unwrap()
    }
}
