//! Namespace controllers while requests fail: one failing namespace delays no other, and watches back off.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod support;

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use k8s_openapi::api::core::v1::{ConfigMap, Namespace, ServiceAccount};
use kube::{
    Api, Client,
    api::{DeleteParams, ObjectMeta, PostParams},
};
use orlop_test::Server;
use support::{eventually, failing};

async fn create_namespace(client: &Client, name: &str) {
    let metadata = ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() };
    let namespace = Namespace { metadata, ..Namespace::default() };
    Api::all(client.clone()).create(&PostParams::default(), &namespace).await.unwrap();
}

async fn delete_namespace(client: &Client, name: &str) {
    Api::<Namespace>::all(client.clone()).delete(name, &DeleteParams::default()).await.unwrap();
}

async fn create_config_map(client: &Client, namespace: &str) {
    let metadata = ObjectMeta { name: Some("a".to_owned()), ..ObjectMeta::default() };
    let map = ConfigMap { metadata, ..ConfigMap::default() };
    Api::namespaced(client.clone(), namespace).create(&PostParams::default(), &map).await.unwrap();
}

async fn wait_for_deletion(client: &Client, name: &str) {
    let namespaces = Api::<Namespace>::all(client.clone());
    eventually("the deletion", || async { namespaces.get_opt(name).await.unwrap().is_none().then_some(()) })
        .await;
}

/// Runs one controller with a client whose requests fail while the flag is set and the predicate holds.
fn run(
    client: &Client,
    controller: &'static str,
    fails: impl Fn(&str, &str) -> bool + Send + Sync + 'static,
) -> (Arc<AtomicBool>, Arc<std::sync::atomic::AtomicUsize>, tokio::task::JoinHandle<()>) {
    let broken = Arc::new(AtomicBool::new(true));
    let is_broken = broken.clone();
    let (client, failures) = failing(client.clone(), move |request| {
        is_broken.load(Ordering::Relaxed) && fails(request.method().as_str(), request.uri().path())
    });
    let options = orlop_controllers::Options { root_ca: "CA".to_owned().into(), ..Default::default() };
    let task = tokio::spawn(async move {
        orlop_controllers::run(orlop_test::for_controllers(client), &[controller], options).await;
    });
    (broken, failures, task)
}

#[tokio::test]
async fn failing_namespace_does_not_delay_service_accounts_of_others() {
    let server = Server::with_controllers(&[]).await.unwrap();
    let client = server.client();
    let (broken, failures, task) = run(&client, "serviceaccount-controller", |method, path| {
        method == "POST" && path == "/api/v1/namespaces/bad/serviceaccounts"
    });
    create_namespace(&client, "bad").await;
    eventually("the first failures", || async { (failures.load(Ordering::Relaxed) > 2).then_some(()) }).await;
    create_namespace(&client, "good").await;
    let account = async |namespace: &'static str| {
        let accounts = Api::<ServiceAccount>::namespaced(client.clone(), namespace);
        eventually("the account", || async { accounts.get_opt("default").await.unwrap() }).await
    };
    account("good").await;
    assert!(
        Api::<ServiceAccount>::namespaced(client.clone(), "bad").get_opt("default").await.unwrap().is_none()
    );
    broken.store(false, Ordering::Relaxed);
    account("bad").await;
    task.abort();
}

#[tokio::test]
async fn failing_namespace_does_not_delay_deletion_of_others_and_says_why_it_remains() {
    let server = Server::with_controllers(&[]).await.unwrap();
    let client = server.client();
    for name in ["bad", "good"] {
        create_namespace(&client, name).await;
        create_config_map(&client, name).await;
    }
    let (broken, _, task) = run(&client, "namespace-controller", |method, path| {
        method == "DELETE" && path == "/api/v1/namespaces/bad/configmaps"
    });
    delete_namespace(&client, "bad").await;
    delete_namespace(&client, "good").await;
    wait_for_deletion(&client, "good").await;
    let namespaces = Api::<Namespace>::all(client.clone());
    let condition = eventually("the condition", || async {
        let status = namespaces.get("bad").await.unwrap().status.unwrap_or_default();
        let mut conditions = status.conditions.unwrap_or_default().into_iter();
        conditions.find(|condition| {
            condition.type_ == "NamespaceDeletionContentFailure" && condition.status == "True"
        })
    })
    .await;
    assert!(condition.message.unwrap_or_default().contains("configmaps: "));
    broken.store(false, Ordering::Relaxed);
    wait_for_deletion(&client, "bad").await;
    task.abort();
}

#[tokio::test]
async fn failing_watch_is_retried() {
    let server = Server::with_controllers(&[]).await.unwrap();
    let client = server.client();
    create_namespace(&client, "terminating").await;
    delete_namespace(&client, "terminating").await;
    let (broken, failures, task) =
        run(&client, "namespace-controller", |_, path| path == "/api/v1/namespaces");
    eventually("the first failure", || async { (failures.load(Ordering::Relaxed) > 0).then_some(()) }).await;
    broken.store(false, Ordering::Relaxed);
    wait_for_deletion(&client, "terminating").await;
    task.abort();
}
