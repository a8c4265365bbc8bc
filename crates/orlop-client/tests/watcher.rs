//! Watches against a server that answers as a test tells it to.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use std::{
    collections::VecDeque,
    convert::Infallible,
    sync::{Arc, Mutex},
};

use bytes::Bytes;
use futures_util::{StreamExt, stream};
use http::{Request, Response};
use http_body_util::{Full, StreamBody, combinators::UnsyncBoxBody};
use k8s_openapi::api::core::v1::ConfigMap;
use orlop_client::{
    Api, Client, ResourceExt, watch_kind,
    watcher::{Config, Error, Event},
};
use serde_json::{Value, json};

/// Code of an answer whose body never comes.
const SILENT: u16 = 0;

/// Answers in order, and the requests that they answered.
#[derive(Clone, Default)]
struct Script {
    answers: Arc<Mutex<VecDeque<(u16, String)>>>,
    requests: Arc<Mutex<Vec<String>>>,
}

impl Script {
    fn then(self, code: u16, body: impl ToString) -> Self {
        self.answers.lock().unwrap().push_back((code, body.to_string()));
        self
    }

    fn list(self, names: &[&str], resource_version: &str, token: &str) -> Self {
        let items: Vec<Value> = names.iter().map(|name| object(name, "1")).collect();
        let metadata = json!({"resourceVersion": resource_version, "continue": token});
        self.then(
            200,
            json!({"kind": "ConfigMapList", "apiVersion": "v1", "metadata": metadata, "items": items}),
        )
    }

    fn watch(self, events: &[(&str, Value)]) -> Self {
        let line = |(kind, object): &(&str, Value)| format!("{}\n", json!({"type": kind, "object": object}));
        self.then(200, events.iter().map(line).collect::<String>())
    }

    fn client(&self) -> Client {
        let script = self.clone();
        let service = tower::service_fn(move |request: Request<Full<Bytes>>| {
            let next = script.answers.lock().unwrap().pop_front();
            script.requests.lock().unwrap().push(request.uri().to_string());
            async move {
                let Some((code, body)) = next else { return std::future::pending().await };
                let (code, body) = match code {
                    SILENT => (200, UnsyncBoxBody::new(StreamBody::new(stream::pending()))),
                    code => (code, UnsyncBoxBody::new(Full::new(Bytes::from(body)))),
                };
                Ok::<_, Infallible>(Response::builder().status(code).body(body).unwrap())
            }
        });
        Client::new(service, "default")
    }

    fn requests(&self) -> Vec<String> {
        self.requests.lock().unwrap().clone()
    }
}

fn object(name: &str, resource_version: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": name, "namespace": "default", "resourceVersion": resource_version}})
}

/// Returns the first events of a watch, in words.
async fn events(script: &Script, count: usize) -> Vec<String> {
    let api = Api::<ConfigMap>::namespaced(script.client(), "default");
    let events = watch_kind(&api, Config::default().labels("app=web")).take(count);
    let words = events.map(|event| match event {
        Ok(Event::Init) => "init".to_owned(),
        Ok(Event::InitApply(object)) => format!("list {}", object.name_any()),
        Ok(Event::InitDone) => "done".to_owned(),
        Ok(Event::Apply(object)) => format!("apply {}", object.name_any()),
        Ok(Event::Delete(object)) => format!("delete {}", object.name_any()),
        Err(Error::InitialListFailed(_)) => "list failed".to_owned(),
        Err(Error::WatchStartFailed(_)) => "start failed".to_owned(),
        Err(Error::WatchError(status)) => format!("error {}", status.code),
        Err(Error::WatchFailed(_)) => "failed".to_owned(),
        Err(Error::NoResourceVersion) => "no resourceVersion".to_owned(),
    });
    words.collect().await
}

#[tokio::test(start_paused = true)]
async fn pages_are_listed_and_then_watched_from_their_resource_version() {
    let script = Script::default()
        .list(&["a", "b"], "7", "next")
        .list(&["c"], "7", "")
        .watch(&[("ADDED", object("d", "8")), ("DELETED", object("a", "9"))]);
    let seen = events(&script, 7).await;
    assert_eq!(seen, ["init", "list a", "list b", "list c", "done", "apply d", "delete a"]);
    let requests = script.requests();
    assert!(
        requests[0].contains("limit=500") && requests[0].contains("labelSelector=app%3Dweb"),
        "{requests:?}"
    );
    assert!(requests[1].contains("continue=next"), "{requests:?}");
    assert!(requests[2].contains("watch=true") && requests[2].contains("resourceVersion=7"), "{requests:?}");
    assert!(requests[2].contains("allowWatchBookmarks=true"), "{requests:?}");
}

#[tokio::test(start_paused = true)]
async fn watch_that_ends_is_resumed_after_the_last_bookmark() {
    let bookmark = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"resourceVersion": "20"}});
    let script = Script::default()
        .list(&[], "7", "")
        .watch(&[("MODIFIED", object("a", "8")), ("BOOKMARK", bookmark)])
        .watch(&[("MODIFIED", object("a", "21"))]);
    assert_eq!(events(&script, 4).await, ["init", "done", "apply a", "apply a"]);
    assert!(script.requests()[2].contains("resourceVersion=20"), "{:?}", script.requests());
}

#[tokio::test(start_paused = true)]
async fn compacted_resource_version_needs_another_list() {
    let gone =
        json!({"kind": "Status", "status": "Failure", "reason": "Expired", "code": 410, "message": "old"});
    let script = Script::default()
        .list(&["a"], "7", "")
        .watch(&[("ERROR", gone.clone())])
        .list(&["b"], "30", "")
        .then(410, gone)
        .list(&["c"], "40", "");
    let seen = events(&script, 11).await;
    let first = ["init", "list a", "done", "error 410", "init", "list b", "done", "start failed"];
    assert_eq!(seen[..8], first);
    assert_eq!(seen[8..], ["init", "list c", "done"]);
}

#[tokio::test(start_paused = true)]
async fn failures_are_reported_and_retried_with_longer_pauses() {
    let script = Script::default().then(500, "no").then(503, "no").then(500, "no").list(&["a"], "7", "");
    let started = tokio::time::Instant::now();
    let seen = events(&script, 9).await;
    assert_eq!(
        seen,
        ["init", "list failed", "init", "list failed", "init", "list failed", "init", "list a", "done"]
    );
    let waited = started.elapsed().as_millis();
    assert!((800 + 1600 + 3200..2 * (800 + 1600 + 3200) + 100).contains(&waited), "{waited} ms");
}

#[tokio::test(start_paused = true)]
async fn object_that_cannot_be_decoded_stops_no_other() {
    let mut broken = object("broken", "8");
    broken["data"] = json!("text");
    let script =
        Script::default().list(&[], "7", "").watch(&[("ADDED", broken), ("ADDED", object("whole", "9"))]);
    assert_eq!(events(&script, 4).await, ["init", "done", "failed", "apply whole"]);
}

#[tokio::test(start_paused = true)]
async fn silent_watch_is_opened_again() {
    let script =
        Script::default().list(&[], "7", "").then(SILENT, "").watch(&[("MODIFIED", object("a", "8"))]);
    let started = tokio::time::Instant::now();
    assert_eq!(events(&script, 3).await, ["init", "done", "apply a"]);
    assert_eq!(started.elapsed().as_secs(), 295);
}
