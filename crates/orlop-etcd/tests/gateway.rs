//! The JSON gateway over HTTP/1.1.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

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

/// A gateway, which stops when it is dropped.
struct Gateway {
    address: std::net::SocketAddr,
    _stop: oneshot::Sender<()>,
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
        Self { address, _stop: stop }
    }

    /// Sends a request, and returns the connection after the response's head, and the status code.
    async fn send(&self, method: &str, path: &str, body: &str) -> (BufReader<TcpStream>, u16) {
        let mut connection = BufReader::new(TcpStream::connect(self.address).await.unwrap());
        let head = format!(
            "{method} {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: {}\r\n\r\n{body}",
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
