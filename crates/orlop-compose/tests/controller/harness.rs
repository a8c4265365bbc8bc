//! A server with the controller beside it.

use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use http::Request;
use kube::Client;
use orlop_compose::{Metrics, Settings};
use orlop_controllers::runtime::Manager;
use orlop_test::Server;
use serde_json::{Value as Json, json};
use tokio::task::JoinHandle;

/// Deadline of every wait.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

pub(crate) struct Harness {
    pub(crate) server: Server,
    pub(crate) client: Client,
    controller: JoinHandle<()>,
}

impl Drop for Harness {
    fn drop(&mut self) {
        self.controller.abort();
    }
}

fn spawn(server: &Server, settings: Settings) -> JoinHandle<()> {
    spawn_with(server.client(), settings)
}

/// Runs the controller with a client.
pub(crate) fn spawn_with(client: Client, settings: Settings) -> JoinHandle<()> {
    spawn_measured(client, settings, Metrics::default())
}

/// Runs the controller with a client and metrics.
pub(crate) fn spawn_measured(client: Client, settings: Settings, metrics: Metrics) -> JoinHandle<()> {
    let mut manager = Manager::new(orlop_test::for_controllers(client));
    manager.register(orlop_compose::NAME, move |context| {
        orlop_compose::run(context, settings.clone(), metrics.clone())
    });
    tokio::spawn(manager.run(std::future::pending()))
}

/// Paths of resources by kind, for those that tests use.
fn path_of(api_version: &str, kind: &str, namespace: Option<&str>) -> String {
    let root = if api_version.contains('/') {
        format!("/apis/{api_version}")
    } else {
        format!("/api/{api_version}")
    };
    let lower = kind.to_lowercase();
    let plural = match lower.strip_suffix('y') {
        Some(stem) => format!("{stem}ies"),
        None if lower.ends_with('s') => format!("{lower}es"),
        None => format!("{lower}s"),
    };
    let cluster_scoped =
        ["Namespace", "ResourceGraphDefinition", "GraphRevision", "CustomResourceDefinition", "ClusterRole"];
    match namespace {
        _ if cluster_scoped.contains(&kind) || kind.starts_with("Cluster") => format!("{root}/{plural}"),
        namespace => format!("{root}/namespaces/{}/{plural}", namespace.unwrap_or("default")),
    }
}

impl Harness {
    pub(crate) async fn start() -> anyhow::Result<Self> {
        Self::with(Settings::default()).await
    }

    pub(crate) async fn with(settings: Settings) -> anyhow::Result<Self> {
        let server = Server::start().await?;
        let client = server.client();
        let controller = spawn(&server, settings);
        let harness = Self { server, client, controller };
        harness
            .until("the CRDs are served", async || {
                Ok(harness.list("kro.run/v1alpha1", "ResourceGraphDefinition", None).await.ok())
            })
            .await?;
        Ok(harness)
    }

    /// Stops the controller at whatever it is doing; another one runs from now on.
    pub(crate) fn replace(&mut self, controller: JoinHandle<()>) {
        self.controller.abort();
        self.controller = controller;
    }

    /// Stops the controller at whatever it is doing and starts another.
    pub(crate) fn restart(&mut self) {
        self.controller.abort();
        self.controller = spawn(&self.server, Settings::default());
    }

    pub(crate) async fn call(
        &self,
        method: &str,
        path: &str,
        body: Option<(&str, &Json)>,
    ) -> kube::Result<Json> {
        let mut request = Request::builder().method(method).uri(path);
        let bytes = match body {
            Some((content_type, body)) => {
                request = request.header("Content-Type", content_type);
                serde_json::to_vec(body).map_err(kube::Error::SerdeError)?
            }
            None => Vec::new(),
        };
        self.client.request(request.body(bytes).map_err(kube::Error::HttpError)?).await
    }

    /// Applies an object as a user.
    pub(crate) async fn apply_json(&self, object: &Json) -> anyhow::Result<Json> {
        let text = |pointer: &str| object.pointer(pointer).and_then(Json::as_str);
        let (version, kind) = (text("/apiVersion").unwrap_or_default(), text("/kind").unwrap_or_default());
        let path = format!(
            "{}/{}?fieldManager=user&force=true",
            path_of(version, kind, text("/metadata/namespace")),
            text("/metadata/name").unwrap_or_default()
        );
        let applied = self.call("PATCH", &path, Some(("application/apply-patch+yaml", object))).await;
        applied.with_context(|| format!("apply {kind}"))
    }

    pub(crate) async fn patch(&self, at: (&str, &str, &str), patch: Json) -> anyhow::Result<Json> {
        self.patch_in(at, None, "", patch).await
    }

    pub(crate) async fn patch_in(
        &self,
        (version, kind, name): (&str, &str, &str),
        namespace: Option<&str>,
        subresource: &str,
        patch: Json,
    ) -> anyhow::Result<Json> {
        let path = format!("{}/{name}{subresource}", path_of(version, kind, namespace));
        Ok(self.call("PATCH", &path, Some(("application/merge-patch+json", &patch))).await?)
    }

    pub(crate) async fn get(&self, version: &str, kind: &str, name: &str) -> kube::Result<Option<Json>> {
        self.get_in(version, kind, None, name).await
    }

    pub(crate) async fn get_in(
        &self,
        version: &str,
        kind: &str,
        namespace: Option<&str>,
        name: &str,
    ) -> kube::Result<Option<Json>> {
        match self.call("GET", &format!("{}/{name}", path_of(version, kind, namespace)), None).await {
            Ok(object) => Ok(Some(object)),
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(None),
            Err(error) => Err(error),
        }
    }

    pub(crate) async fn config_map(&self, name: &str) -> anyhow::Result<Option<Json>> {
        Ok(self.get("v1", "ConfigMap", name).await?)
    }

    pub(crate) async fn list(
        &self,
        version: &str,
        kind: &str,
        namespace: Option<&str>,
    ) -> kube::Result<Vec<Json>> {
        let list = self.call("GET", &path_of(version, kind, namespace), None).await?;
        Ok(list["items"].as_array().cloned().unwrap_or_default())
    }

    pub(crate) async fn delete(&self, version: &str, kind: &str, name: &str) -> anyhow::Result<()> {
        self.call("DELETE", &format!("{}/{name}", path_of(version, kind, None)), None).await?;
        Ok(())
    }

    /// Waits until `look` finds something.
    pub(crate) async fn until<T>(
        &self,
        what: &str,
        look: impl AsyncFn() -> anyhow::Result<Option<T>>,
    ) -> anyhow::Result<T> {
        let deadline = Instant::now() + PATIENCE;
        while Instant::now() < deadline {
            if let Some(found) = look().await? {
                return Ok(found);
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        bail!("{what}: not within {PATIENCE:?}")
    }

    /// Waits until a definition has a state; returns it.
    pub(crate) async fn definition(&self, name: &str, state: &str) -> anyhow::Result<Json> {
        let found = self
            .until("the definition has its state", async || {
                let found = self.get("kro.run/v1alpha1", "ResourceGraphDefinition", name).await?;
                Ok(found.filter(|found| {
                    let current = found.pointer("/status/conditions/0/observedGeneration").is_some()
                        && found["status"]["conditions"].as_array().is_some_and(|conditions| {
                            conditions.iter().any(|condition| {
                                condition["type"] == "Ready"
                                    && condition["observedGeneration"] == found["metadata"]["generation"]
                            })
                        });
                    current && found["status"]["state"] == state
                }))
            })
            .await;
        if found.is_err() {
            let found = self.get("kro.run/v1alpha1", "ResourceGraphDefinition", name).await?;
            bail!(
                "{name} is not {state}: {}",
                serde_json::to_string_pretty(&found.unwrap_or_default()["status"])?
            );
        }
        found
    }

    /// Waits until an instance has a state for its current generation; returns it.
    pub(crate) async fn instance(&self, kind: &str, name: &str, state: &str) -> anyhow::Result<Json> {
        let found = self
            .until("the instance has its state", async || {
                let found = self.get("kro.run/v1alpha1", kind, name).await?;
                Ok(found.filter(|found| {
                    let conditions = found["status"]["conditions"].as_array();
                    found["status"]["state"] == state
                        && conditions.into_iter().flatten().all(|condition| {
                            condition["observedGeneration"] == found["metadata"]["generation"]
                        })
                }))
            })
            .await;
        if found.is_err() {
            let found = self.get("kro.run/v1alpha1", kind, name).await?;
            bail!("{name} is not {state}: {}", serde_json::to_string_pretty(&found.unwrap_or_default())?);
        }
        found
    }

    /// Waits until an object is gone.
    pub(crate) async fn gone(&self, version: &str, kind: &str, name: &str) -> anyhow::Result<()> {
        let gone = self
            .until("the object is gone", async || {
                Ok(self.get(version, kind, name).await?.is_none().then_some(()))
            })
            .await;
        if gone.is_err() {
            let found = self.get(version, kind, name).await?;
            bail!("{kind} {name} is still there: {}", serde_json::to_string_pretty(&found)?);
        }
        gone
    }

    /// The condition of a type.
    pub(crate) fn condition<'o>(object: &'o Json, kind: &str) -> &'o Json {
        static NONE: Json = Json::Null;
        let conditions = object.pointer("/status/conditions").and_then(Json::as_array);
        conditions.into_iter().flatten().find(|condition| condition["type"] == kind).unwrap_or(&NONE)
    }
}

/// A definition of kind `App` whose resources are given, with `spec.name` and `spec.value`.
pub(crate) fn app(resources: Json) -> Json {
    definition(
        "app",
        "App",
        json!({"name": "string | required=true", "value": "string | default=one"}),
        json!({}),
        resources,
    )
}

pub(crate) fn definition(name: &str, kind: &str, spec: Json, status: Json, resources: Json) -> Json {
    json!({
        "apiVersion": "kro.run/v1alpha1", "kind": "ResourceGraphDefinition", "metadata": {"name": name},
        "spec": {"schema": {"kind": kind, "apiVersion": "v1alpha1", "spec": spec, "status": status},
            "resources": resources}})
}

pub(crate) fn instance(kind: &str, name: &str, spec: Json) -> Json {
    json!({"apiVersion": "kro.run/v1alpha1", "kind": kind, "metadata": {"name": name}, "spec": spec})
}

/// A node with a ConfigMap.
pub(crate) fn map(id: &str, name: &str, data: Json) -> Json {
    json!({"id": id, "template": {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data}})
}

/// The metrics as a scrape shows them.
pub(crate) fn exposition(metrics: &Metrics) -> String {
    let mut registry = prometheus_client::registry::Registry::default();
    metrics.register(&mut registry);
    let mut text = String::new();
    prometheus_client::encoding::text::encode(&mut text, &registry).unwrap_or_default();
    text
}
