//! A cluster for tests.

use std::{collections::HashMap, time::Duration};

use k8s_openapi::api::{apps::v1::Deployment, core::v1::Namespace};
use kube::{
    Api, Client,
    api::{ApiResource, DynamicObject, GroupVersionKind, Patch, PatchParams, PostParams},
};
use serde_json::json;
use slate_operator::{
    Addresses, Options,
    api::{Collection, Server},
    manifests,
};
use slate_server::config::Config;

/// An API server with what `slate-operator crd` prints, and the operator running against it with the permissions of its
/// ServiceAccount, so that a permission that is lacking fails every test.
pub(crate) struct Cluster {
    pub(crate) server: orlop_test::Server,
    pub(crate) client: Client,
    pub(crate) operator: tokio::task::JoinHandle<()>,
}

impl Drop for Cluster {
    fn drop(&mut self) {
        self.operator.abort();
    }
}

impl Cluster {
    pub(crate) async fn start(addresses: &[(&str, String)]) -> Self {
        // No controller runs Deployments: the tests say when a rollout is complete.
        let controllers = ["garbage-collector-controller", "namespace-controller"];
        let server = orlop_test::Server::with_controllers(&controllers).await.expect("an API server");
        let client = server.client();
        for text in manifests::all().split("\n---\n") {
            apply_strictly(&client, &serde_saphyr::from_str(text).expect("YAML")).await;
        }
        let acme: Namespace =
            serde_json::from_value(json!({ "metadata": { "name": "acme" } })).expect("a namespace");
        Api::all(client.clone()).create(&PostParams::default(), &acme).await.expect("create");
        let addresses: HashMap<String, String> =
            addresses.iter().map(|(name, address)| ((*name).to_owned(), address.clone())).collect();
        let operator = run_operator(operator_client(&server), addresses);
        Self { server, client, operator }
    }

    pub(crate) fn api<K>(&self) -> Api<K>
    where
        K: kube::Resource<Scope = k8s_openapi::NamespaceResourceScope>,
        K::DynamicType: Default,
    {
        Api::namespaced(self.client.clone(), "acme")
    }

    pub(crate) async fn create_server(&self, name: &str, spec: serde_json::Value) {
        let server = json!({ "metadata": { "name": name }, "spec": spec });
        let server: Server = serde_json::from_value(server).expect("a Server");
        self.api::<Server>().create(&PostParams::default(), &server).await.expect("create");
    }

    pub(crate) async fn create_collection(&self, name: &str, indexes: &[&str]) {
        let spec = json!({ "server": "main-db", "indexes": indexes });
        let collection: Collection =
            serde_json::from_value(json!({ "metadata": { "name": name }, "spec": spec }))
                .expect("a Collection");
        self.api::<Collection>().create(&PostParams::default(), &collection).await.expect("create");
    }

    /// Does what the deployment controller and a node do once the pod runs.
    pub(crate) async fn finish_rollout(&self, name: &str) {
        let deployments = self.api::<Deployment>();
        let generation = eventually(async || deployments.get_opt(name).await.expect("get")).await;
        let status = json!({ "status": {
            "observedGeneration": generation.metadata.generation,
            "replicas": 1, "updatedReplicas": 1, "readyReplicas": 1, "availableReplicas": 1,
        }});
        deployments.patch_status(name, &PatchParams::default(), &Patch::Merge(&status)).await.expect("patch");
    }

    pub(crate) async fn server_when(&self, name: &str, accept: impl Fn(&Server) -> bool) -> Server {
        let servers = self.api::<Server>();
        eventually(async || Some(servers.get(name).await.expect("get")).filter(&accept)).await
    }

    pub(crate) async fn collection_when(
        &self,
        name: &str,
        accept: impl Fn(&Collection) -> bool,
    ) -> Collection {
        let collections = self.api::<Collection>();
        eventually(async || Some(collections.get(name).await.expect("get")).filter(&accept)).await
    }
}

/// Returns a client with the permissions of the operator's ServiceAccount.
pub(crate) fn operator_client(server: &orlop_test::Server) -> Client {
    let groups = ["system:serviceaccounts", "system:serviceaccounts:slate-system"];
    server.client_as("system:serviceaccount:slate-system:slate-operator", &groups)
}

/// Returns the settings of an operator that finds servers at these addresses.
pub(crate) fn options(addresses: HashMap<String, String>) -> Options {
    Options {
        image: "slate:test".to_owned(),
        lease_namespace: Some("slate-system".to_owned()),
        addresses: Addresses::Fixed(addresses),
    }
}

/// Starts an operator, which finds servers at these addresses.
pub(crate) fn run_operator(
    client: Client,
    addresses: HashMap<String, String>,
) -> tokio::task::JoinHandle<()> {
    let run = slate_operator::run(client, options(addresses), std::future::pending());
    tokio::spawn(async move { run.await.expect("the operator") })
}

/// Applies an object with strict validation: unknown and duplicate fields are errors.
pub(crate) async fn apply_strictly(client: &Client, object: &serde_json::Value) {
    let text =
        |path: &str| object.pointer(path).and_then(|value| value.as_str()).unwrap_or_default().to_owned();
    let (api_version, kind) = (text("/apiVersion"), text("/kind"));
    let (group, version) = api_version.rsplit_once('/').unwrap_or(("", &api_version));
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, &kind));
    let api: Api<DynamicObject> = match object.pointer("/metadata/namespace") {
        Some(_) => Api::namespaced_with(client.clone(), &text("/metadata/namespace"), &resource),
        None => Api::all_with(client.clone(), &resource),
    };
    let parameters = PatchParams::apply("lint").validation_strict();
    let applied = api.patch(&text("/metadata/name"), &parameters, &Patch::Apply(object)).await;
    assert!(applied.is_ok(), "{kind}: {:?}", applied.err());
}

/// Polls until there is a value, for at most a minute.
pub(crate) async fn eventually<T>(mut probe: impl AsyncFnMut() -> Option<T>) -> T {
    let deadline = tokio::time::Instant::now() + Duration::from_secs(60);
    loop {
        if let Some(value) = probe().await {
            return value;
        }
        assert!(tokio::time::Instant::now() < deadline, "timed out");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

pub(crate) fn is_ready(collection: &Collection) -> bool {
    let conditions =
        collection.status.as_ref().map(|status| status.conditions.as_slice()).unwrap_or_default();
    conditions.iter().any(|condition| condition.type_ == "Ready" && condition.status == "True")
}

pub(crate) async fn database() -> slate_server::Server {
    slate_server::Server::start(Config::for_test()).await.expect("a database")
}
