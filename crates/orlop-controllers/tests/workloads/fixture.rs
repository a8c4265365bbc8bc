//! A cluster for a test.

use std::fmt::Debug;

use k8s_openapi::{
    NamespaceResourceScope,
    api::core::v1::{Event, Pod},
};
use kube::{
    Api, Client, ResourceExt,
    api::{ListParams, Patch, PatchParams, PostParams},
};
use orlop_test::Server;
use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;

use crate::support::{eventually, kubelet};

/// A server with all controllers, and nodes.
pub(crate) struct Cluster {
    pub(crate) client: Client,
    _server: Server,
    nodes: Vec<tokio::task::JoinHandle<()>>,
}

impl Cluster {
    /// A cluster without nodes.
    pub(crate) async fn empty() -> Self {
        Self::with_controllers(&["*"]).await
    }

    /// A cluster without nodes and without one of the controllers.
    pub(crate) async fn without(controller: &str) -> Self {
        Self::with_controllers(&["*", &format!("-{controller}")]).await
    }

    async fn with_controllers(controllers: &[&str]) -> Self {
        let server = Server::with_controllers(controllers).await.unwrap();
        Self { client: server.client(), _server: server, nodes: Vec::new() }
    }

    /// A cluster with one node, whose pods are ready at once.
    pub(crate) async fn new() -> Self {
        Self::empty().await.with_node("node-1").await
    }

    pub(crate) async fn with_node(mut self, name: &str) -> Self {
        self.nodes.push(kubelet::start(&self.client, name).await);
        self
    }

    /// Adds a node with more fields, whose pods fare as `outcome` says.
    pub(crate) async fn with_node_of(
        mut self,
        name: &str,
        change: Value,
        outcome: impl Fn(&Pod) -> Option<Value> + Send + Sync + 'static,
    ) -> Self {
        self.nodes.push(kubelet::start_with(&self.client, name, change, std::sync::Arc::new(outcome)).await);
        self
    }

    pub(crate) fn api<K>(&self) -> Api<K>
    where
        K: kube::Resource<Scope = NamespaceResourceScope, DynamicType = ()>,
    {
        Api::default_namespaced(self.client.clone())
    }

    /// Creates an object of JSON.
    pub(crate) async fn create<K>(&self, object: Value) -> K
    where
        K: kube::Resource<Scope = NamespaceResourceScope, DynamicType = ()> + Object,
    {
        let object: K = serde_json::from_value(object).unwrap();
        self.api().create(&PostParams::default(), &object).await.unwrap()
    }

    /// Patches an object by merging.
    pub(crate) async fn patch<K>(&self, name: &str, patch: Value) -> K
    where
        K: kube::Resource<Scope = NamespaceResourceScope, DynamicType = ()> + Object,
    {
        self.api().patch(name, &PatchParams::default(), &Patch::Merge(patch)).await.unwrap()
    }

    /// Waits until an object is as wanted.
    pub(crate) async fn wait<K>(&self, name: &str, wanted: impl Fn(&K) -> bool) -> K
    where
        K: kube::Resource<Scope = NamespaceResourceScope, DynamicType = ()> + Object,
    {
        let api: Api<K> = self.api();
        let last = std::sync::Mutex::new(None);
        let found = tokio::time::timeout(
            std::time::Duration::from_secs(60),
            eventually(name, || async {
                let object = api.get_opt(name).await.unwrap();
                let found = object.clone().filter(|object| wanted(object));
                *last.lock().unwrap() = object;
                found
            }),
        )
        .await;
        found.unwrap_or_else(|_| panic!("{name} is not as wanted: {:#?}", last.lock().unwrap()))
    }

    /// Returns the pods with labels.
    pub(crate) async fn pods(&self, labels: &str) -> Vec<Pod> {
        self.api::<Pod>().list(&ListParams::default().labels(labels)).await.unwrap().items
    }

    /// Waits until pods with labels are as wanted.
    pub(crate) async fn wait_for_pods(&self, labels: &str, wanted: impl Fn(&[Pod]) -> bool) -> Vec<Pod> {
        eventually("the pods", || async { Some(self.pods(labels).await).filter(|pods| wanted(pods)) }).await
    }

    /// Waits for an event about an object, and returns its message.
    pub(crate) async fn event(&self, name: &str, reason: &str) -> String {
        eventually(reason, || async { self.messages(name, reason).await.into_iter().next() }).await
    }

    /// Waits for an event with a message. Earlier ones may tell of a state that has passed.
    pub(crate) async fn event_with_message(&self, name: &str, reason: &str, message: &str) {
        eventually(message, || async {
            self.messages(name, reason).await.iter().any(|said| said == message).then_some(())
        })
        .await;
    }

    async fn messages(&self, name: &str, reason: &str) -> Vec<String> {
        let events = self.api::<Event>().list(&ListParams::default()).await.unwrap().items;
        let found = events.into_iter().filter(|event| {
            event.involved_object.name.as_deref() == Some(name) && event.reason.as_deref() == Some(reason)
        });
        found.filter_map(|event| event.message).collect()
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        self.nodes.iter().for_each(tokio::task::JoinHandle::abort);
    }
}

/// An object that can be written and compared.
pub(crate) trait Object: Clone + Debug + Serialize + DeserializeOwned + ResourceExt {}

impl<K: Clone + Debug + Serialize + DeserializeOwned + ResourceExt> Object for K {}

/// Returns a pod template with labels.
pub(crate) fn template(app: &str, image: &str) -> Value {
    serde_json::json!({"metadata": {"labels": {"app": app}},
        "spec": {"containers": [{"name": "main", "image": image}], "terminationGracePeriodSeconds": 1}})
}
