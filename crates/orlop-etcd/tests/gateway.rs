//! The JSON gateway over HTTP/1.1.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod support;

use std::time::Duration;

use orlop_etcd::{Options, Server};
use orlop_store::{Config, Endpoint, Store};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader},
    net::TcpStream,
    sync::oneshot,
    time::timeout,
};

const DEADLINE: Duration = Duration::from_secs(20);

/// A gateway. Orlop's stops when it is dropped.
struct Gateway {
    address: std::net::SocketAddr,
    _stop: Option<oneshot::Sender<()>>,
}

impl Gateway {
    async fn start() -> Self {
        let store = Store::open(Config::new(Endpoint::Memory)).await.unwrap();
        let server = Server::new(store, Options::default()).await.unwrap();
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (stop, stopped) = oneshot::channel::<()>();
        tokio::spawn(async move {
            let stopped = async { drop(stopped.await) };
            server.serve(listener.into(), None, stopped).await;
        });
        Self { address, _stop: Some(stop) }
    }

    /// Sends a request, and returns the connection after the response's head, and the status code.
    async fn send(&self, method: &str, path: &str, body: &str) -> (BufReader<TcpStream>, u16) {
        self.send_with("", method, path, body).await
    }

    /// Sends a request with more headers.
    async fn send_with(
        &self,
        headers: &str,
        method: &str,
        path: &str,
        body: &str,
    ) -> (BufReader<TcpStream>, u16) {
        let mut connection = BufReader::new(TcpStream::connect(self.address).await.unwrap());
        let head = format!(
            "{method} {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n{headers}content-length: {}\r\n\r\n{body}",
            body.len()
        );
        connection.write_all(head.as_bytes()).await.unwrap();
        let mut line = String::new();
        connection.read_line(&mut line).await.unwrap();
        let code = line.split(' ').nth(1).unwrap().parse().unwrap();
        while line != "\r\n" {
            line.clear();
            connection.read_line(&mut line).await.unwrap();
        }
        (connection, code)
    }

    async fn request(&self, method: &str, path: &str, body: &str) -> (u16, Value) {
        let (mut connection, code) = timeout(DEADLINE, self.send(method, path, body)).await.unwrap();
        let mut text = String::new();
        timeout(DEADLINE, connection.read_to_string(&mut text)).await.unwrap().unwrap();
        // The body may be chunked: the JSON object is what is within the outermost braces.
        let json = &text[text.find('{').unwrap()..=text.rfind('}').unwrap()];
        (code, serde_json::from_str(json).unwrap())
    }

    async fn post(&self, path: &str, body: Value) -> (u16, Value) {
        self.request("POST", path, &body.to_string()).await
    }
}

#[tokio::test]
async fn pages_of_browsers_are_refused() {
    let gateway = Gateway::start().await;
    let headers = "origin: https://example.org\r\ncontent-type: text/plain\r\n";
    let put = r#"{"key": "a2V5", "value": "dmFsdWU="}"#;
    assert_eq!(gateway.send_with(headers, "POST", "/v3/kv/put", put).await.1, 403);
    let (code, range) = gateway.request("POST", "/v3/kv/range", r#"{"key": "a2V5"}"#).await;
    assert_eq!((code, range.get("kvs")), (200, None));
}

#[tokio::test]
async fn keys_are_put_ranged_compared_and_deleted() {
    let gateway = Gateway::start().await;
    let (code, put) = gateway.post("/v3/kv/put", json!({"key": "Zm9v", "value": "YmFy"})).await;
    assert_eq!((code, &put["header"]["revision"]), (200, &json!("2")), "{put}");
    let (_, found) = gateway.post("/v3/kv/range", json!({"key": "Zm9v"})).await;
    let kv =
        json!({"key": "Zm9v", "value": "YmFy", "create_revision": "2", "mod_revision": "2", "version": "1"});
    assert_eq!((&found["kvs"], &found["count"]), (&json!([kv]), &json!("1")));
    // Names of fields may be in camel case, numbers may be numbers, and unknown fields are ignored.
    let (_, found) = gateway
        .post("/v3/kv/range", json!({"key": "AA==", "rangeEnd": "AA==", "limit": 1, "later": true}))
        .await;
    assert_eq!(found["count"], "1");
    let txn = json!({
        "compare": [{"target": "VALUE", "key": "Zm9v", "value": "YmFy", "result": "EQUAL"}],
        "success": [{"request_delete_range": {"key": "Zm9v"}}],
    });
    let (_, answer) = gateway.post("/v3/kv/txn", txn).await;
    assert_eq!(answer["succeeded"], true);
    assert_eq!(answer["responses"][0]["response_delete_range"]["deleted"], "1");
    let (_, granted) = gateway.post("/v3/kv/lease/grant", json!({"TTL": 60, "ID": "7"})).await;
    assert_eq!((&granted["ID"], &granted["TTL"]), (&json!("7"), &json!("60")));
    let (_, locked) = gateway.post("/v3/lock/lock", json!({"name": "am9i", "lease": "7"})).await;
    assert_eq!(locked["key"], "am9iLzc=", "job/7");
    let (code, status) = gateway.request("POST", "/v3/maintenance/status", "").await;
    assert_eq!(code, 200, "a body is not needed: {status}");
}

#[tokio::test]
async fn errors_have_code_and_message() {
    let gateway = Gateway::start().await;
    let (code, error) = gateway.post("/v3/kv/put", json!({"value": "YmFy"})).await;
    assert_eq!((code, &error["code"]), (400, &json!(3)));
    assert_eq!(
        (&error["message"], &error["error"]),
        (&json!("etcdserver: key is not provided"), &error["message"])
    );
    assert_eq!(gateway.request("POST", "/v3/kv/put", "{").await.0, 400);
    assert_eq!(gateway.post("/v3/kv/put", json!({"key": "not base64!"})).await.0, 400);
    assert_eq!(gateway.post("/v3/kv/nothing", json!({})).await.0, 404);
    assert_eq!(gateway.request("GET", "/v3/kv/range", "").await.0, 501);
}

#[tokio::test]
async fn watch_is_a_stream_of_results() {
    let gateway = Gateway::start().await;
    let create = json!({"create_request": {"key": "Zm9v"}}).to_string();
    let (mut watch, code) = gateway.send("POST", "/v3/watch", &create).await;
    assert_eq!(code, 200);
    let mut next = async || -> Value {
        let mut line = String::new();
        // Lines between results are those of chunks.
        while !line.starts_with('{') {
            line.clear();
            timeout(DEADLINE, watch.read_line(&mut line)).await.unwrap().unwrap();
        }
        serde_json::from_str(&line).unwrap()
    };
    assert_eq!(next().await["result"]["created"], true);
    gateway.post("/v3/kv/put", json!({"key": "Zm9v", "value": "YmFy"})).await;
    let event = next().await;
    assert_eq!(event["result"]["events"][0]["kv"]["value"], "YmFy");
}

/// Removes ids and terms, which differ between any two servers, and the field that only old clients need.
fn comparable(mut answer: Value) -> Value {
    if let Some(map) = answer.as_object_mut() {
        map.remove("error");
    }
    if let Some(header) = answer.get_mut("header").and_then(Value::as_object_mut) {
        header.retain(|field, _| field == "revision");
    }
    answer
}

#[tokio::test]
async fn answers_match_etcd() {
    let peer = support::peer::Peer::start(&[]).unwrap();
    let address = peer.url.trim_start_matches("http://").parse().unwrap();
    let (etcd, orlop) = (Gateway { address, _stop: None }, Gateway::start().await);
    // A new etcd answers once it has elected itself.
    let elected = async {
        while etcd.post("/v3/kv/range", json!({"key": "Zm9v"})).await.0 != 200 {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    timeout(DEADLINE, elected).await.unwrap();
    let everything =
        json!({"key": "AA==", "range_end": "AA==", "sort_order": "DESCEND", "sort_target": "KEY"});
    let compare = json!([{"target": "VALUE", "key": "Zm9v", "value": "YmF6", "result": "EQUAL"}]);
    for (path, body) in [
        ("/v3/kv/put", json!({"key": "Zm9v", "value": "YmFy"})),
        ("/v3/kv/put", json!({"key": "Zm9v", "value": "YmF6", "prev_kv": true})),
        ("/v3/kv/put", json!({"key": "YQ==", "unknown": 1})),
        ("/v3/kv/put", json!({})),
        ("/v3/kv/range", everything),
        ("/v3/kv/range", json!({"key": "Zm9v", "revision": 100})),
        ("/v3/kv/range", json!({"key": "AA==", "rangeEnd": "AA==", "countOnly": true})),
        ("/v3/kv/txn", json!({"compare": compare, "success": [{"requestRange": {"key": "Zm9v"}}]})),
        ("/v3/kv/txn", json!({"compare": compare, "success": [{"request_put": {"key": "Yg=="}}]})),
        ("/v3/kv/deleterange", json!({"key": "Yg==", "prev_kv": true})),
        ("/v3/lease/grant", json!({"TTL": 60, "ID": 7})),
        ("/v3/lease/grant", json!({"TTL": "60", "ID": "7"})),
        ("/v3/lease/keepalive", json!({"ID": 99})),
        ("/v3/lock/lock", json!({"name": "am9i", "lease": 7})),
        ("/v3/lock/unlock", json!({"key": "am9iLzc="})),
        ("/v3/election/leader", json!({"name": "bm9uZQ=="})),
        ("/v3/election/campaign", json!({"name": "YQ==", "value": "Yg==", "lease": 7})),
        ("/v3/election/leader", json!({"name": "YQ=="})),
        ("/v3/election/proclaim", json!({"value": "Yg=="})),
        ("/v3/lease/revoke", json!({"ID": 99})),
        ("/v3/kv/lease/revoke", json!({"ID": 7})),
        ("/v3/kv/compaction", json!({"revision": 3})),
        ("/v3/auth/status", json!({})),
        ("/v3/kv/nothing", json!({})),
    ] {
        let (theirs, ours) = (etcd.post(path, body.clone()).await, orlop.post(path, body.clone()).await);
        let (mut their_body, mut our_body) = (comparable(theirs.1), comparable(ours.1));
        if path.ends_with("keepalive") {
            their_body = comparable(their_body["result"].take());
            our_body = comparable(our_body["result"].take());
        }
        assert_eq!((ours.0, our_body), (theirs.0, their_body), "{path} {body}");
    }
}
