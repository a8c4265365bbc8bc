//! Two servers on one database serve the same definitions.

use std::time::Duration;

use bytes::Bytes;
use futures_util::{FutureExt, StreamExt, stream};
use http::Request;
use http_body_util::Full;
use orlop_server::User;
use orlop_store::{Config, Endpoint, Store};
use serde_json::{Value, json};
use tower::ServiceExt;

use crate::server::{DEFINITIONS, Server, definition, path, version, widget, widgets};

/// Two servers on one database.
struct Pair {
    one: Server,
    other: Server,
    /// Directory of the database.
    _folder: Option<tempfile::TempDir>,
}

impl Pair {
    /// Two handles of one SQLite file, as in one process.
    async fn on_sqlite() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let config = Config::new(Endpoint::Sqlite(folder.path().join("orlop.db")));
        let store = Store::open(config).await.unwrap();
        Self { one: Server::on(store.clone()).await, other: Server::on(store).await, _folder: Some(folder) }
    }

    /// Two stores with connections of their own, as in two processes.
    async fn on_postgres() -> Self {
        let cluster = orlop_testbed::Cluster::shared().unwrap();
        let url = cluster.url(&cluster.create_database().unwrap());
        let open = async || Store::open(Config::new(Endpoint::parse(&url).unwrap())).await.unwrap();
        Self { one: Server::on(open().await).await, other: Server::on(open().await).await, _folder: None }
    }
}

async fn what_is_defined_through_one_is_served_by_the_other(pair: Pair) {
    let Pair { one, other, .. } = &pair;
    one.create(DEFINITIONS, &widgets(json!([version("v1", true, json!({"size": {"type": "integer"}}))])))
        .await
        .ok();
    other.eventually(&path("v1"), |answer| answer.code == 200).await;
    let resources = other.get("/apis/example.com/v1").await.ok();
    assert_eq!(resources["resources"][0]["name"], "widgets");
    let document = other.get("/openapi/v3/apis/example.com/v1").await.ok();
    assert!(document["components"]["schemas"].get("com.example.v1.Widget").is_some());

    // Both write, and each reads what the other wrote under the same schema.
    other.create(&path("v1"), &widget("v1", "a", json!({"size": 1}))).await.ok();
    let a = format!("{}/a", path("v1"));
    assert_eq!(one.get(&a).await.ok()["spec"]["size"], 1);
    one.merge(&a, json!({"spec": {"size": 2}})).await.ok();
    other.eventually(&a, |answer| answer.body["spec"]["size"] == 2).await;
    other.create(&path("v1"), &widget("v1", "b", json!({"size": "x"}))).await.refused(422);

    // A watch on one sees writes through the other.
    let mut watch = one.watch(&format!("{}?watch=true&resourceVersion=0", path("v1"))).await;
    assert_eq!(watch.next().await.unwrap()["object"]["metadata"]["name"], "a");
    other.create(&path("v1"), &widget("v1", "c", json!({}))).await.ok();
    assert_eq!(watch.next().await.unwrap()["object"]["metadata"]["name"], "c");

    // A schema change takes effect on both, and ends watches of the old kind.
    let changed = json!([version("v1", true, json!({"size": {"type": "integer", "default": 7}}))]);
    let definition = format!("{DEFINITIONS}/widgets.example.com");
    other.merge(&definition, json!({"spec": {"versions": changed}})).await.ok();
    assert_eq!(other.get(&format!("{}/c", path("v1"))).await.ok()["spec"]["size"], 7);
    while watch.next().await.is_some() {}
    one.eventually(&format!("{}/c", path("v1")), |answer| answer.body["spec"]["size"] == 7).await;

    // Deletion deletes the objects first, through either server.
    one.delete(&definition).await.ok();
    one.eventually(&definition, |answer| answer.code == 404).await;
    other.eventually(&path("v1"), |answer| answer.code == 404).await;
    other.eventually("/apis/example.com/v1", |answer| answer.code == 404).await;
}

async fn a_name_is_given_once_whichever_server_is_asked(pair: Pair) {
    let Pair { one, other, .. } = &pair;
    const ROUNDS: usize = 8;
    for round in 0..ROUNDS {
        let group = format!("g{round}.example.com");
        let named = |plural: &str| {
            let mut made =
                definition(&group, plural, &format!("K{plural}"), json!([version("v1", true, json!({}))]));
            made["spec"]["names"]["shortNames"] = json!(["short"]);
            made
        };
        let (firsts, seconds) = (named("firsts"), named("seconds"));
        let (first, second) =
            tokio::join!(one.create(DEFINITIONS, &firsts), other.create(DEFINITIONS, &seconds));
        let given = |made: &Value| made["status"]["acceptedNames"].get("shortNames").is_some();
        let (first, second) = (first.ok(), second.ok());
        assert!(given(&first) != given(&second), "{first}\n{second}");
        // The conflicting definition gets the name once the other is gone, on any server.
        let (winner, loser) = if given(&first) { ("firsts", "seconds") } else { ("seconds", "firsts") };
        one.delete(&format!("{DEFINITIONS}/{winner}.{group}")).await.ok();
        other.eventually(&format!("{DEFINITIONS}/{loser}.{group}"), |answer| given(&answer.body)).await;
    }
}

async fn writes_through_both_are_all_there(pair: Pair) {
    let Pair { one, other, .. } = &pair;
    const COUNT: usize = 60;
    one.create(DEFINITIONS, &widgets(json!([version("v1", true, json!({"n": {"type": "integer"}}))])))
        .await
        .ok();
    other.eventually(&path("v1"), |answer| answer.code == 200).await;
    one.create(&path("v1"), &widget("v1", "shared", json!({"n": 0}))).await.ok();
    let shared = format!("{}/shared", path("v1"));
    let work = |index: usize| {
        let (server, shared) = (if index.is_multiple_of(2) { one } else { other }, shared.clone());
        async move {
            let made = widget("v1", &format!("w{index:03}"), json!({"n": index}));
            server.create(&path("v1"), &made).await.ok();
            // Concurrent patches through both servers are all applied.
            let label = json!({"metadata": {"labels": {format!("by{index}"): "x"}}});
            server.merge(&shared, label).await.ok();
        }
    };
    stream::iter(0..COUNT).map(work).buffer_unordered(8).collect::<Vec<()>>().await;
    for server in [one, other] {
        let all = |answer: &crate::server::Answer| {
            answer.body["items"].as_array().is_some_and(|items| items.len() == COUNT + 1)
        };
        server.eventually(&path("v1"), all).await;
        let labels = |answer: &crate::server::Answer| {
            answer.body["metadata"]["labels"].as_object().is_some_and(|labels| labels.len() == COUNT)
        };
        server.eventually(&shared, labels).await;
    }
}

/// A controller that awaits one response while others are pending, which hold what it waits for.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn in_process_requests_progress_without_being_polled() {
    let cluster = orlop_testbed::Cluster::shared().unwrap();
    let url = cluster.url(&cluster.create_database().unwrap());
    let config = Config { readers: 1, ..Config::new(Endpoint::parse(&url).unwrap()) };
    let server = Server::on(Store::open(config).await.unwrap()).await;
    let admin = User::authenticated("admin", ["system:masters".to_owned()]);
    let service = server.chain.service(admin);
    let ask = |path: &str| {
        let request = Request::builder().uri(path).body(Full::new(Bytes::new())).unwrap();
        service.clone().oneshot(request)
    };
    for path in ["/api/v1/namespaces", "/api/v1/namespaces?watch=true", "/api/v1/namespaces/default"] {
        let mut begun = Box::pin(ask(path));
        // Its own task may have answered already.
        let answered = begun.as_mut().now_or_never();
        let other = ask("/api/v1/namespaces/default");
        let other = tokio::time::timeout(Duration::from_secs(20), other).await;
        assert_eq!(other.expect(path).unwrap().status(), 200);
        let begun = match answered {
            Some(answer) => answer,
            None => begun.await,
        };
        assert_eq!(begun.unwrap().status(), 200);
    }
}

macro_rules! on_each_database {
    ($($name:ident)*) => {
        mod on_sqlite {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $name() {
                super::$name(super::Pair::on_sqlite().await).await;
            })*
        }
        mod on_postgres {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $name() {
                super::$name(super::Pair::on_postgres().await).await;
            })*
        }
    };
}

on_each_database! {
    what_is_defined_through_one_is_served_by_the_other
    a_name_is_given_once_whichever_server_is_asked
    writes_through_both_are_all_there
}
