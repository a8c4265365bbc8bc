//! exec, attach and portforward: streams to the node of a pod.

use bytes::Bytes;
use http::{Method, Response};
use orlop_api::status::Status;
use serde_json::Value;

use super::{nodes, pods};
use crate::{
    endpoints::Request,
    http::body::Body,
    proxy::{Forwarded, forward, tunnel},
    request::{Subresource, Verb},
};

/// Connects a client to the node of a pod.
pub(super) async fn connect(request: &Request) -> Result<Response<Body>, Status> {
    let attributes = &request.attributes;
    if request.query.get("dryRun").is_some() {
        return Err(Status::bad_request("dryRun is not supported"));
    }
    let pod = request.cluster.objects.object(&request.kind, &attributes.namespace, &attributes.name).await?;
    let is_port_forward = attributes.subresource == Some(Subresource::PortForward);
    let options = if is_port_forward { Vec::new() } else { options(request) };
    // A port is forwarded to the pod, not to a container.
    let container = if is_port_forward { String::new() } else { pods::container(&request.query, &pod)? };
    let node = pod.pointer("/spec/nodeName").and_then(Value::as_str).unwrap_or_default();
    if node.is_empty() {
        return Err(Status::bad_request(format!("pod {} does not have a host assigned", attributes.name)));
    }
    let backend = nodes::backend(request, node).await?;
    let (namespace, name) = (&attributes.namespace, &attributes.name);
    let path = match &attributes.subresource {
        Some(Subresource::PortForward) => format!("/portForward/{namespace}/{name}"),
        Some(Subresource::Attach) => format!("/attach/{namespace}/{name}/{container}"),
        _ => format!("/exec/{namespace}/{name}/{container}"),
    };
    let ports = request.query.all("ports").filter(|_| is_port_forward).map(|port| ("port", port.to_owned()));
    let query =
        form_urlencoded::Serializer::new(String::new()).extend_pairs(options).extend_pairs(ports).finish();
    let path = format!("{path}?{query}");
    if is_port_forward
        && let Some(answer) = tunnel(&backend, &path, &request.headers, request.upgrade.clone()).await
    {
        return answer;
    }
    let forwarded = Forwarded {
        method: if attributes.verb == Verb::Get { Method::GET } else { Method::POST },
        path,
        headers: request.headers.clone(),
        body: Bytes::new(),
        upgrade: request.upgrade.clone(),
    };
    let response = forward(&backend, forwarded, None).await?;
    match response.status().as_u16() {
        101 | 200..400 => Ok(response),
        _ => Err(nodes::failure(response).await),
    }
}

/// Returns the options of exec and attach by their names at a node.
fn options(request: &Request) -> Vec<(&'static str, String)> {
    let query = &request.query;
    let is_set = |name: &str| query.flag(name);
    let tty = is_set("tty");
    let mut options = Vec::new();
    for (name, sent) in [("stdin", "input"), ("stdout", "output"), ("stderr", "error"), ("tty", "tty")] {
        // A terminal has one output.
        if is_set(name) && !(tty && name == "stderr") {
            options.push((sent, "1".to_owned()));
        }
    }
    options.extend(query.all("command").map(|part| ("command", part.to_owned())));
    options
}
