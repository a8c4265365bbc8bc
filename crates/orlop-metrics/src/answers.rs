//! Answers of the API: discovery, and metrics of nodes and pods.

use std::{collections::BTreeMap, time::Duration};

use futures_util::future::BoxFuture;
use k8s_openapi::api::core::v1::{Node, Pod};
use orlop_client::{Api, Client, ResourceExt, api::ListParams};
use serde_json::{Value, json};

use crate::{SharedSamples, samples::Usage};

const GROUP_VERSION: &str = "metrics.k8s.io/v1beta1";

/// Answers a GET. `Err` is the code of a Status.
pub(crate) fn answer(
    client: Client,
    samples: SharedSamples,
    path: String,
    query: String,
) -> BoxFuture<'static, Result<Value, (u16, String)>> {
    Box::pin(async move { answer_to(&client, samples, &path, &query).await })
}

async fn answer_to(
    client: &Client,
    samples: SharedSamples,
    path: &str,
    query: &str,
) -> Result<Value, (u16, String)> {
    let segments: Vec<&str> = path.split('/').filter(|segment| !segment.is_empty()).collect();
    match segments.as_slice() {
        ["apis"] => Ok(json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": [group()]})),
        ["apis", "metrics.k8s.io"] => Ok(group()),
        ["apis", "metrics.k8s.io", "v1beta1"] => Ok(resources()),
        ["apis", "metrics.k8s.io", "v1beta1", rest @ ..] => match rest {
            ["nodes"] => nodes(client, samples, query).await,
            ["nodes", name] => node(client, samples, name).await,
            ["pods"] => pods(client, samples, None, query).await,
            ["namespaces", namespace, "pods"] => pods(client, samples, Some(namespace), query).await,
            ["namespaces", namespace, "pods", name] => pod(client, samples, namespace, name).await,
            _ => Err(not_served()),
        },
        _ => Err(not_served()),
    }
}

fn not_served() -> (u16, String) {
    (404, "the server could not find the requested resource".to_owned())
}

fn group() -> Value {
    let version = json!({"groupVersion": GROUP_VERSION, "version": "v1beta1"});
    json!({"kind": "APIGroup", "apiVersion": "v1", "name": "metrics.k8s.io", "versions": [version], "preferredVersion": version})
}

fn resources() -> Value {
    let resource = |name: &str, kind: &str, namespaced: bool| json!({"name": name, "singularName": "", "namespaced": namespaced, "kind": kind, "verbs": ["get", "list"]});
    json!({"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": GROUP_VERSION,
        "resources": [resource("nodes", "NodeMetrics", false), resource("pods", "PodMetrics", true)]})
}

fn parameters(query: &str) -> ListParams {
    let mut parameters = ListParams::default();
    for (name, value) in form_urlencoded::parse(query.as_bytes()) {
        match name.as_ref() {
            "labelSelector" => parameters = parameters.labels(&value),
            "fieldSelector" => parameters = parameters.fields(&value),
            _ => {}
        }
    }
    parameters
}

fn refused(error: &orlop_client::Error) -> (u16, String) {
    match error {
        orlop_client::Error::Api(status) => (status.code, status.message.clone()),
        other => (500, other.to_string()),
    }
}

async fn nodes(client: &Client, samples: SharedSamples, query: &str) -> Result<Value, (u16, String)> {
    let api: Api<Node> = Api::all(client.clone());
    let found = api.list(&parameters(query)).await.map_err(|error| refused(&error))?;
    let items: Vec<Value> = found.items.iter().filter_map(|node| node_metrics(&samples, node)).collect();
    Ok(list("NodeMetricsList", items))
}

async fn node(client: &Client, samples: SharedSamples, name: &str) -> Result<Value, (u16, String)> {
    let api: Api<Node> = Api::all(client.clone());
    let found = api.get_opt(name).await.map_err(|error| refused(&error))?;
    let metrics = found.and_then(|node| node_metrics(&samples, &node));
    metrics.ok_or_else(|| (404, format!("nodemetrics.metrics.k8s.io {name:?} not found")))
}

async fn pods(
    client: &Client,
    samples: SharedSamples,
    namespace: Option<&str>,
    query: &str,
) -> Result<Value, (u16, String)> {
    let api: Api<Pod> = match namespace {
        Some(namespace) => Api::namespaced(client.clone(), namespace),
        None => Api::all(client.clone()),
    };
    let found = api.list(&parameters(query)).await.map_err(|error| refused(&error))?;
    let items: Vec<Value> = found.items.iter().filter_map(|pod| pod_metrics(&samples, pod)).collect();
    Ok(list("PodMetricsList", items))
}

async fn pod(
    client: &Client,
    samples: SharedSamples,
    namespace: &str,
    name: &str,
) -> Result<Value, (u16, String)> {
    let api: Api<Pod> = Api::namespaced(client.clone(), namespace);
    let found = api.get_opt(name).await.map_err(|error| refused(&error))?;
    let metrics = found.and_then(|pod| pod_metrics(&samples, &pod));
    metrics.ok_or_else(|| (404, format!("podmetrics.metrics.k8s.io \"{namespace}/{name}\" not found")))
}

fn node_metrics(samples: &SharedSamples, node: &Node) -> Option<Value> {
    let name = node.name_any();
    let measured = samples.lock().node(&name)?;
    let mut metrics = object("NodeMetrics", &name, None, node.labels(), measured.at, measured.window);
    metrics["usage"] = measured.usage.to_json();
    Some(metrics)
}

fn pod_metrics(samples: &SharedSamples, pod: &Pod) -> Option<Value> {
    let (namespace, name) = (pod.namespace()?, pod.name_any());
    let measured = samples.lock().pod(&namespace, &name)?;
    let mut metrics =
        object("PodMetrics", &name, Some(&namespace), pod.labels(), measured.at, measured.window);
    let of_container = |(name, usage): &(String, Usage)| json!({"name": name, "usage": usage.to_json()});
    metrics["containers"] = measured.usage.iter().map(of_container).collect();
    Some(metrics)
}

fn object(
    kind: &str,
    name: &str,
    namespace: Option<&str>,
    labels: &BTreeMap<String, String>,
    at: k8s_openapi::jiff::Timestamp,
    window: Duration,
) -> Value {
    let time = at.strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    let mut metadata = json!({"name": name, "creationTimestamp": time, "labels": labels});
    if let Some(namespace) = namespace {
        metadata["namespace"] = json!(namespace);
    }
    let window = format!("{:.3}s", window.as_secs_f64());
    json!({"kind": kind, "apiVersion": GROUP_VERSION, "metadata": metadata, "timestamp": time, "window": window})
}

fn list(kind: &str, items: Vec<Value>) -> Value {
    json!({"kind": kind, "apiVersion": GROUP_VERSION, "metadata": {}, "items": items})
}
