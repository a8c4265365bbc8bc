//! Quotas: charged in the transaction of a write, and never exceeded.

use futures_util::future::join_all;
use orlop_server::{admission::chain, chain::Chain};
use orlop_store::{Config, Endpoint, Store};
use serde_json::{Value, json};
use tokio::time::{Duration, Instant, sleep};

use crate::{
    server_with,
    support::{call, get},
};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const QUOTAS: &str = "/api/v1/namespaces/default/resourcequotas";

async fn open() -> Store {
    Store::open(Config::new(Endpoint::Memory)).await.unwrap()
}

/// Creates a quota with the status that the controller would compute.
async fn create_quota(chain: &Chain, name: &str, hard: &Value, used: &Value) {
    let quota = json!({"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": name}, "spec": {"hard": hard}});
    assert_eq!(call(chain, "POST", QUOTAS, Some(&quota)).await.0, 201);
    let status = json!({"status": {"hard": hard, "used": used}});
    assert_eq!(call(chain, "PATCH", &format!("{QUOTAS}/{name}/status"), Some(&status)).await.0, 200);
}

async fn used(chain: &Chain, quota: &str) -> Value {
    get(chain, &format!("{QUOTAS}/{quota}")).await.1["status"]["used"].clone()
}

fn map(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}})
}

#[tokio::test]
async fn create_beyond_the_quota_is_forbidden() {
    let chain = server_with(open().await, &chain::defaults()).await;
    let hard = json!({"count/configmaps": "1", "services": "5"});
    create_quota(&chain, "q", &hard, &json!({"count/configmaps": "0", "services": "0"})).await;
    assert_eq!(call(&chain, "POST", &format!("{MAPS}?dryRun=All"), Some(&map("dry"))).await.0, 201);
    assert_eq!(call(&chain, "POST", MAPS, Some(&map("a"))).await.0, 201);
    let (code, refused) = call(&chain, "POST", MAPS, Some(&map("b"))).await;
    assert_eq!(code, 403);
    assert_eq!(
        refused["message"],
        "configmaps \"b\" is forbidden: exceeded quota: q, requested: count/configmaps=1, used: count/configmaps=1, \
         limited: count/configmaps=1"
    );
    assert_eq!(used(&chain, "q").await, json!({"count/configmaps": "1", "services": "0"}));
}

#[tokio::test]
async fn failed_create_is_not_charged() {
    let chain = server_with(open().await, &chain::defaults()).await;
    create_quota(&chain, "q", &json!({"configmaps": "9"}), &json!({"configmaps": "0"})).await;
    assert_eq!(call(&chain, "POST", MAPS, Some(&map("a"))).await.0, 201);
    for _ in 0..5 {
        assert_eq!(call(&chain, "POST", MAPS, Some(&map("a"))).await.0, 409);
    }
    assert_eq!(used(&chain, "q").await, json!({"configmaps": "1"}));
}

#[tokio::test]
async fn service_that_becomes_a_load_balancer_is_charged_for_the_difference() {
    let chain = server_with(open().await, &chain::defaults()).await;
    let hard = json!({"services": "9", "services.loadbalancers": "1", "services.nodeports": "5"});
    let zero = json!({"services": "0", "services.loadbalancers": "0", "services.nodeports": "0"});
    create_quota(&chain, "q", &hard, &zero).await;
    let services = "/api/v1/namespaces/default/services";
    for name in ["a", "b"] {
        let service = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": name},
            "spec": {"ports": [{"port": 80}]}});
        assert_eq!(call(&chain, "POST", services, Some(&service)).await.0, 201);
    }
    let balanced = json!({"spec": {"type": "LoadBalancer"}});
    assert_eq!(call(&chain, "PATCH", &format!("{services}/a"), Some(&balanced)).await.0, 200);
    let expected = json!({"services": "2", "services.loadbalancers": "1", "services.nodeports": "1"});
    assert_eq!(used(&chain, "q").await, expected);
    let (code, refused) = call(&chain, "PATCH", &format!("{services}/b"), Some(&balanced)).await;
    assert_eq!(code, 403);
    let message = refused["message"].as_str().unwrap();
    assert!(message.contains("exceeded quota: q, requested: services.loadbalancers=1"), "{message}");
    assert_eq!(used(&chain, "q").await, expected);
}

/// Creates ConfigMaps at once through several servers on one database. Returns how many were created.
async fn race(servers: &[Chain], creates: usize) -> usize {
    let create = |index: usize| {
        let server = &servers[index % servers.len()];
        async move { call(server, "POST", MAPS, Some(&map(&format!("m{index}")))).await }
    };
    let answers = join_all((0..creates).map(create)).await;
    for (code, body) in answers.iter().filter(|(code, _)| *code != 201) {
        assert_eq!(*code, 403, "{body}");
        assert!(body["message"].as_str().unwrap().contains("exceeded quota"), "{body}");
    }
    answers.iter().filter(|(code, _)| *code == 201).count()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn quota_is_not_exceeded_by_concurrent_creates_through_two_servers() {
    let store = open().await;
    let servers =
        [server_with(store.clone(), &chain::defaults()).await, server_with(store, &chain::defaults()).await];
    let zero = json!({"count/configmaps": "0", "count/secrets": "0"});
    create_quota(&servers[0], "q", &json!({"count/configmaps": "20", "count/secrets": "0"}), &zero).await;
    // The second server has heard of the quota once it refuses by it.
    let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}});
    let secrets = "/api/v1/namespaces/default/secrets?dryRun=All";
    let deadline = Instant::now() + Duration::from_secs(30);
    while call(&servers[1], "POST", secrets, Some(&secret)).await.0 == 201 {
        assert!(Instant::now() < deadline, "the second server has not heard of the quota");
        sleep(Duration::from_millis(5)).await;
    }
    assert_eq!(race(&servers, 60).await, 20);
    assert_eq!(used(&servers[0], "q").await["count/configmaps"], "20");
    let list = get(&servers[1], MAPS).await.1;
    let names = list["items"].as_array().unwrap().iter().map(|map| map["metadata"]["name"].as_str().unwrap());
    assert_eq!(names.filter(|name| name.starts_with('m')).count(), 20);
}
