//! API Priority and Fairness: configuration in force, headers, rejections, dumps, metrics, defaults and status.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod support;

use std::{net::SocketAddr, sync::Arc, time::Duration};

use bytes::Bytes;
use http::{HeaderMap, Request};
use http_body_util::{BodyExt, Full};
use hyper_util::rt::{TokioExecutor, TokioIo};
use orlop_server::{
    FlowControlOptions, Tokens, User, auth::issuer::Issuer, bootstrap, chain::Chain, cluster::Cluster,
    registry::Kinds, serve::serve,
};
use orlop_store::{Config, Endpoint, Store};
use serde_json::{Value, json};
use support::{call, get};
use tokio::net::{TcpListener, TcpStream};

const SCHEMAS: &str = "/apis/flowcontrol.apiserver.k8s.io/v1/flowschemas";
const LEVELS: &str = "/apis/flowcontrol.apiserver.k8s.io/v1/prioritylevelconfigurations";
const MAPS: &str = "/api/v1/namespaces/default/configmaps";

/// A server with clients on connections: in-process requests have a level of their own.
struct Server {
    chain: Chain,
    address: SocketAddr,
}

impl Server {
    async fn start(options: FlowControlOptions) -> Self {
        let store = Store::open(Config::new(Endpoint::Memory)).await.unwrap();
        let cluster = Cluster::new(store, Kinds::builtin(), Issuer::generate().unwrap());
        let cluster = Arc::new(cluster.with_flow_control(options));
        let tokens = ["jane", "joe"].map(|name| (name.to_owned(), User::authenticated(name, [])));
        let admin = ("admin".to_owned(), User::master("admin"));
        let chain = Chain::new(cluster, Tokens::new(tokens.into_iter().chain([admin]).collect()));
        bootstrap::bootstrap(&chain, 6443, "").await.unwrap();
        // Everybody may do everything: flow control is what is tested.
        let binding = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
            "metadata": {"name": "all"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
            "subjects": [{"kind": "Group", "apiGroup": "rbac.authorization.k8s.io", "name": "system:authenticated"}]});
        let bindings = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings";
        assert_eq!(call(&chain, "POST", bindings, Some(&binding)).await.0, 201);
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(serve(listener, chain.clone(), None, std::future::pending()));
        Self { chain, address }
    }

    /// Sends a request on a connection of its own.
    async fn send(&self, user: &str, path: &str) -> http::Response<hyper::body::Incoming> {
        let stream = TcpStream::connect(self.address).await.unwrap();
        let builder = hyper::client::conn::http2::Builder::new(TokioExecutor::new());
        let (mut sender, connection) = builder.handshake(TokioIo::new(stream)).await.unwrap();
        tokio::spawn(connection);
        let request = Request::get(format!("http://{}{path}", self.address))
            .header("authorization", format!("Bearer {user}"))
            .body(Full::<Bytes>::default())
            .unwrap();
        sender.send_request(request).await.unwrap()
    }

    async fn ask(&self, user: &str, path: &str) -> (u16, HeaderMap, String) {
        let (parts, body) = self.send(user, path).await.into_parts();
        let body = body.collect().await.unwrap().to_bytes();
        (parts.status.as_u16(), parts.headers, String::from_utf8_lossy(&body).into_owned())
    }

    /// Returns a column of the row of a level in the dump of levels.
    async fn column(&self, level: &str, index: usize) -> u64 {
        let (_, dump) = get(&self.chain, "/debug/api_priority_and_fairness/dump_priority_levels").await;
        let dump = dump.as_str().unwrap().to_owned();
        let row = dump.lines().find(|line| line.starts_with(&format!("{level},"))).unwrap();
        row.split(',').nth(index).unwrap().trim().parse().unwrap()
    }

    /// Waits until a number of requests of a level execute.
    async fn until_executing(&self, level: &str, count: u64) {
        let waited = tokio::time::timeout(Duration::from_secs(20), async {
            while self.column(level, 5).await != count {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        });
        waited.await.unwrap_or_else(|_| panic!("{count} requests of {level} should execute"));
    }
}

fn level(name: &str, spec: Value) -> Value {
    json!({"apiVersion": "flowcontrol.apiserver.k8s.io/v1", "kind": "PriorityLevelConfiguration",
        "metadata": {"name": name}, "spec": {"type": "Limited", "limited": spec}})
}

fn schema(name: &str, level: &str, user: &str) -> Value {
    json!({"apiVersion": "flowcontrol.apiserver.k8s.io/v1", "kind": "FlowSchema", "metadata": {"name": name},
        "spec": {"priorityLevelConfiguration": {"name": level}, "matchingPrecedence": 50,
            "rules": [{"subjects": [{"kind": "User", "user": {"name": user}}],
                "resourceRules": [{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"], "namespaces": ["*"],
                    "clusterScope": true}]}]}})
}

async fn create(chain: &Chain, path: &str, object: &Value) -> String {
    let (code, object) = call(chain, "POST", path, Some(object)).await;
    assert_eq!(code, 201, "{object}");
    object["metadata"]["uid"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn defaults_exist_with_their_conditions_after_the_start() {
    let server = Server::start(FlowControlOptions::default()).await;
    let names = |list: Value| -> Vec<String> {
        let items = list["items"].as_array().unwrap().iter();
        items.map(|item| item["metadata"]["name"].as_str().unwrap().to_owned()).collect()
    };
    let levels = names(get(&server.chain, LEVELS).await.1);
    let expected = [
        "catch-all",
        "exempt",
        "global-default",
        "leader-election",
        "node-high",
        "system",
        "workload-high",
        "workload-low",
    ];
    assert_eq!(levels, expected);
    let (_, schemas) = get(&server.chain, SCHEMAS).await;
    for schema in schemas["items"].as_array().unwrap() {
        let condition = &schema["status"]["conditions"][0];
        assert_eq!(
            (&condition["type"], &condition["status"]),
            (&json!("Dangling"), &json!("False")),
            "{schema}"
        );
        assert_eq!(schema["metadata"]["annotations"]["apf.kubernetes.io/autoupdate-spec"], "true");
        assert_eq!(schema["metadata"]["generation"], 1);
    }
    assert_eq!(names(schemas).len(), 11);
    // A change of a mandatory object is refused.
    let change = json!({"spec": {"matchingPrecedence": 9999}});
    let (code, refused) = call(&server.chain, "PATCH", &format!("{SCHEMAS}/catch-all"), Some(&change)).await;
    assert_eq!(code, 422, "{refused}");
    // What is deleted or changed is restored at the next start.
    assert_eq!(call(&server.chain, "DELETE", &format!("{SCHEMAS}/probes"), None).await.0, 200);
    let change = json!({"spec": {"limited": {"nominalConcurrencyShares": 77}}});
    assert_eq!(call(&server.chain, "PATCH", &format!("{LEVELS}/system"), Some(&change)).await.0, 200);
    let mut mine = change.clone();
    mine["metadata"] = json!({"annotations": {"apf.kubernetes.io/autoupdate-spec": "false"}});
    assert_eq!(call(&server.chain, "PATCH", &format!("{LEVELS}/node-high"), Some(&mine)).await.0, 200);
    bootstrap::bootstrap(&server.chain, 6443, "").await.unwrap();
    assert_eq!(get(&server.chain, &format!("{SCHEMAS}/probes")).await.0, 200);
    let shares = "/spec/limited/nominalConcurrencyShares";
    let (_, system) = get(&server.chain, &format!("{LEVELS}/system")).await;
    assert_eq!(system.pointer(shares), Some(&json!(30)));
    let (_, node_high) = get(&server.chain, &format!("{LEVELS}/node-high")).await;
    assert_eq!(node_high.pointer(shares), Some(&json!(77)));
}

#[tokio::test]
async fn configuration_is_in_force_when_its_write_is_answered() {
    let server = Server::start(FlowControlOptions::default()).await;
    let (_, headers, _) = server.ask("jane", MAPS).await;
    let (_, default) = get(&server.chain, &format!("{SCHEMAS}/global-default")).await;
    assert_eq!(headers["x-kubernetes-pf-flowschema-uid"], default["metadata"]["uid"].as_str().unwrap());
    let level_uid = create(
        &server.chain,
        LEVELS,
        &level("mine", json!({"nominalConcurrencyShares": 10, "limitResponse": {"type": "Reject"}})),
    )
    .await;
    let schema_uid = create(&server.chain, SCHEMAS, &schema("mine", "mine", "jane")).await;
    let (code, headers, _) = server.ask("jane", MAPS).await;
    assert_eq!(code, 200);
    assert_eq!(headers["x-kubernetes-pf-flowschema-uid"], schema_uid.as_str());
    assert_eq!(headers["x-kubernetes-pf-prioritylevel-uid"], level_uid.as_str());
    let (_, headers, _) = server.ask("joe", MAPS).await;
    assert_ne!(headers["x-kubernetes-pf-flowschema-uid"], schema_uid.as_str());
    // No seats, and none to borrow: requests wait, are rejected, and told when to come again.
    let none = json!({"spec": {"limited": {"nominalConcurrencyShares": 0, "borrowingLimitPercent": 0, "limitResponse": {"type": "Queue",
        "queuing": {"queues": 1, "handSize": 1, "queueLengthLimit": 1}}}}});
    assert_eq!(call(&server.chain, "PATCH", &format!("{LEVELS}/mine"), Some(&none)).await.0, 200);
    let started = std::time::Instant::now();
    let (code, headers, text) = server.ask("jane", &format!("{MAPS}?timeout=2s")).await;
    assert_eq!((code, text.as_str()), (429, "Too many requests, please try again later.\n"));
    assert!(started.elapsed() < Duration::from_secs(10));
    assert_eq!(headers["retry-after"], "1");
    assert_eq!(headers["content-type"], "text/plain; charset=utf-8");
    assert_eq!(headers["x-kubernetes-pf-flowschema-uid"], schema_uid.as_str());
    assert_eq!((server.column("mine", 7).await, server.column("mine", 8).await), (1, 1));
    let (_, page) = get(&server.chain, "/metrics").await;
    let page = page.as_str().unwrap();
    for line in [
        r#"apiserver_flowcontrol_rejected_requests_total{flow_schema="mine",priority_level="mine",reason="time-out"} 1"#,
        r#"apiserver_flowcontrol_dispatched_requests_total{flow_schema="mine",priority_level="mine"} 1"#,
        r#"apiserver_flowcontrol_nominal_limit_seats{priority_level="mine"} 0"#,
        r#"apiserver_flowcontrol_current_inqueue_requests{flow_schema="mine",priority_level="mine"} 0"#,
    ] {
        assert!(page.contains(line), "{line} is missing");
    }
    // The administrator is exempt, and can set it right.
    assert_eq!(server.ask("admin", MAPS).await.0, 200);
    assert_eq!(call(&server.chain, "DELETE", &format!("{SCHEMAS}/mine"), None).await.0, 200);
    assert_eq!(server.ask("jane", MAPS).await.0, 200);
}

#[tokio::test]
async fn schema_without_its_level_is_dangling() {
    let server = Server::start(FlowControlOptions::default()).await;
    create(&server.chain, SCHEMAS, &schema("lost", "nowhere", "jane")).await;
    let path = format!("{SCHEMAS}/lost");
    let wait = |wanted: &'static str| {
        let (chain, path) = (server.chain.clone(), path.clone());
        async move {
            let found = tokio::time::timeout(Duration::from_secs(20), async {
                loop {
                    let (_, schema) = get(&chain, &path).await;
                    let condition = schema["status"]["conditions"][0].clone();
                    if condition["status"] == wanted {
                        return (condition, schema);
                    }
                    tokio::time::sleep(Duration::from_millis(20)).await;
                }
            });
            found.await.unwrap_or_else(|_| panic!("the condition should become {wanted}"))
        }
    };
    let (condition, schema) = wait("True").await;
    assert_eq!(condition["reason"], "NotFound");
    let manager = schema["metadata"]["managedFields"].as_array().unwrap().iter();
    let names: Vec<&str> = manager.map(|entry| entry["manager"].as_str().unwrap()).collect();
    assert!(names.contains(&"api-priority-and-fairness-config-consumer-v1"), "{names:?}");
    let queue = json!({"limitResponse": {"type": "Reject"}});
    create(&server.chain, LEVELS, &level("nowhere", queue)).await;
    let (condition, _) = wait("False").await;
    assert_eq!(
        condition["message"],
        "This FlowSchema references the PriorityLevelConfiguration object named \"nowhere\" and it exists"
    );
}

#[tokio::test]
async fn watch_holds_seats_only_until_it_is_initialized() {
    let server = Server::start(FlowControlOptions::default()).await;
    let queue = json!({"nominalConcurrencyShares": 1, "limitResponse": {"type": "Reject"}});
    create(&server.chain, LEVELS, &level("narrow", queue)).await;
    create(&server.chain, SCHEMAS, &schema("narrow", "narrow", "jane")).await;
    let mut open = Vec::new();
    for _ in 0..30 {
        let response = server.send("jane", &format!("{MAPS}?watch=1")).await;
        assert_eq!(response.status(), 200);
        server.until_executing("narrow", 0).await;
        open.push(response);
    }
    let (_, dump) = get(&server.chain, "/debug/api_priority_and_fairness/dump_requests").await;
    assert!(!dump.as_str().unwrap().contains("narrow,"), "{dump}");
}

#[tokio::test]
async fn client_that_reads_nothing_gives_back_its_seats() {
    let server = Server::start(FlowControlOptions::default()).await;
    let queue = json!({"nominalConcurrencyShares": 1, "limitResponse": {"type": "Reject"}});
    create(&server.chain, LEVELS, &level("narrow", queue)).await;
    create(&server.chain, SCHEMAS, &schema("narrow", "narrow", "jane")).await;
    for number in 0..12 {
        let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": format!("c{number}")},
            "data": {"text": "x".repeat(500_000)}});
        assert_eq!(call(&server.chain, "POST", MAPS, Some(&object)).await.0, 201);
    }
    let unread = server.send("jane", MAPS).await;
    assert_eq!(unread.status(), 200);
    server.until_executing("narrow", 0).await;
    // Its list goes on all the same.
    let body = unread.into_body().collect().await.unwrap().to_bytes();
    assert!(body.len() > 6_000_000);
}

#[tokio::test]
async fn without_fairness_requests_in_flight_are_limited() {
    let options = FlowControlOptions { is_fair: false, reading_max: 1, mutating_max: 0 };
    let server = Server::start(options).await;
    let (code, headers, _) = server.ask("jane", MAPS).await;
    assert_eq!(code, 200);
    assert!(!headers.contains_key("x-kubernetes-pf-flowschema-uid"));
    // Watches are not counted.
    let watch = server.send("jane", &format!("{MAPS}?watch=1")).await;
    assert_eq!(server.ask("jane", MAPS).await.0, 200);
    drop(watch);
    assert_eq!(get(&server.chain, "/debug/api_priority_and_fairness/dump_priority_levels").await.0, 404);
    assert_eq!(get(&server.chain, &format!("{SCHEMAS}/exempt")).await.0, 200);
}

#[tokio::test]
async fn list_is_in_flight_until_it_is_read() {
    let options = FlowControlOptions { is_fair: false, reading_max: 1, mutating_max: 0 };
    let server = Server::start(options).await;
    for number in 0..40 {
        let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": format!("large-{number}")},
            "data": {"value": "x".repeat(100_000)}});
        assert_eq!(call(&server.chain, "POST", MAPS, Some(&map)).await.0, 201);
    }
    let outcome = tokio::time::timeout(Duration::from_secs(60), async {
        // More than fits buffers and windows. A list that is not read for long is not counted: the other client may come
        // too late.
        loop {
            let mut list = server.send("jane", MAPS).await.into_body();
            let beside = server.ask("joe", MAPS).await.0;
            while list.frame().await.is_some() {}
            if beside == 429 {
                break;
            }
        }
        while server.ask("joe", MAPS).await.0 != 200 {}
    });
    outcome.await.unwrap();
}
